"""Opens a checkpoint by its place, a folder or a hub id: which family it is of, which base an adapter belongs to.

What can be told from a config is told before any weights are fetched. It does not know what is inside a family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from codec.checkpoints.errors import ConfigError
from codec.checkpoints.fields import Fields
from codec.checkpoints.hub import FILES, located
from engine.moss.codecs import codec_folder
from engine.moss.config import BUILTIN_CODEC, MODEL_TYPE, MossConfig
from engine.moss.engine import MossEngine
from engine.moss.lora import Adapter, find_adapter

WORKING = (
    "what works is OpenMOSS-Team/MOSS-TTS-Local-Transformer-v1.5 and fine-tunes of it (model_type moss_tts_local), "
    "and OpenMOSS-Team/MOSS-TTS-Nano (moss_tts_nano)"
)
_SETTINGS = ("config.json", "adapter_config.json", "adapter/adapter_config.json")


@dataclass(frozen=True)
class _Voice:
    """Where a voice is, and how it is to be loaded."""

    name: str
    place: str
    adapter: Adapter | None
    device: torch.device
    dtype: torch.dtype | None


def load_checkpoint(place: str, device: torch.device, dtype: torch.dtype | None = None) -> MossEngine:
    """The voice of a checkpoint folder or hub id; `dtype` None is float32, on a GPU bfloat16 for the large voices.

    A folder may hold an adapter, beside the weights that it changes or instead of them: then the base that it names is
    opened too.

    Raises:
        ValueError: the checkpoint is not there, of no family that is implemented, or damaged.
    """
    settings, adapter, base = located(place, _SETTINGS), None, place
    if find_adapter(settings):
        adapter = Adapter.load(find_adapter(located(place, FILES)) or settings)
        if not (settings / "config.json").is_file():
            base, settings = _base(adapter)
    family = _FAMILIES[_model_type(settings)]
    return family(_Voice(f"moss:{place}", base, adapter, device, dtype))


def _load_local(voice: _Voice) -> MossEngine:
    from codec.moss import load_moss_codec
    from engine.builtin.voice import load_voice
    from engine.moss.voice import load_moss

    folder = located(voice.place)
    config = MossConfig.load(folder / "config.json")
    if config.codec == BUILTIN_CODEC:
        _refuse_adapter(voice)
        return load_voice(folder, name=voice.name, device=voice.device, dtype=voice.dtype or torch.float32)
    codec = load_moss_codec(codec_folder(folder, config), books=config.books, device=voice.device)
    dtype = voice.dtype or (torch.bfloat16 if voice.device.type == "cuda" else torch.float32)
    return load_moss(folder, name=voice.name, codec=codec, device=voice.device, dtype=dtype, adapter=voice.adapter)


def _load_nano(voice: _Voice) -> MossEngine:
    from codec.moss import load_moss_codec
    from engine.nano.checkpoint import RELEASED
    from engine.nano.config import NanoConfig
    from engine.nano.voice import load_nano

    _refuse_adapter(voice)
    folder = located(voice.place, (*FILES, RELEASED))
    config = NanoConfig.load(folder / "config.json")
    codec = load_moss_codec(codec_folder(folder, config), books=config.books, device=voice.device)
    return load_nano(folder, name=voice.name, codec=codec, device=voice.device, dtype=voice.dtype or torch.float32)


_FAMILIES: dict[str, Callable[[_Voice], MossEngine]] = {MODEL_TYPE: _load_local, "moss_tts_nano": _load_nano}


def _model_type(folder: Path) -> str:
    """The family that `config.json` names; `ConfigError` where it is none that is implemented."""
    path = folder / "config.json"
    if not path.is_file():
        pickled = next((found.relative_to(folder) for found in sorted(folder.rglob("*.pt"))), None)
        other = f" and holds {pickled}, which is no layout that is known here" if pickled else ""
        raise ConfigError(f"{folder} has no config.json{other}; {WORKING}")
    kind = Fields.read(path, WORKING).values.get("model_type")
    if kind not in _FAMILIES:
        raise ConfigError(f"{path}: model_type is {kind!r}, which is not implemented; {WORKING}")
    return str(kind)


def _base(adapter: Adapter) -> tuple[str, Path]:
    """The place of the checkpoint that an adapter was trained on, and the folder of its settings."""
    config = adapter.folder / "adapter_config.json"
    if not adapter.base:
        raise ConfigError(
            f"{config}: base_model_name_or_path is missing; name the checkpoint that the adapter was trained on, "
            "a folder or a hub id"
        )
    on_hub = adapter.revision and not Path(adapter.base).expanduser().is_dir()
    place = f"{adapter.base}@{adapter.revision}" if on_hub else adapter.base
    try:
        return place, located(place, _SETTINGS)
    except ValueError as error:
        raise ConfigError(
            f"{config}: base_model_name_or_path: {error}; or move the adapter into a folder adapter/ in its base's"
        ) from None


def _refuse_adapter(voice: _Voice) -> None:
    if voice.adapter is not None:
        raise ConfigError(
            f"{voice.adapter.folder}: adapters are implemented for moss_tts_local voices with MOSS codecs"
        )
