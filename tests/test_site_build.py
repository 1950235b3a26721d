"""A site is whole, says what the run says, loads nothing from elsewhere, and is the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

pytest.importorskip("pyarrow", reason="sites need pyarrow, scipy and matplotlib: pip install 'chunksearch[study]'")
pytest.importorskip("scipy", reason="sites need scipy: pip install 'chunksearch[study]'")
pytest.importorskip("matplotlib", reason="sites need matplotlib: pip install 'chunksearch[study]'")

from experiments.cli import run as program
from experiments.commands import study as command
from experiments.commands.outcome import InputError
from experiments.site import build as building
from experiments.site.build import build
from experiments.site.files import SiteError, read_site
from experiments.sweep.store import RunStore
from experiments.sweep.study import expand, read_study
from experiments.sweep.tables import read_table, write_tables
from tests.study_run import NASTY, made_run

LOADS = {"src", "href", "action", "poster", "data", "srcset", "formaction", "xlink:href", "data-file"}


class Page(HTMLParser):
    """Ids, addresses and words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.tags.append((tag, given))
        self.ids += [value for name, value in attributes if name == "id" and value]
        self.addresses += [value for name, value in attributes if name in LOADS and value]

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def site(run: Path) -> Path:
    out = run.parent / "site"
    build(run, out)
    return out


def pages(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = pages(site)
    assert sorted(found) == ["index.html", "prompts/foreign.html", "prompts/plain.html", "prompts/prompt.2.html"]
    for name, page in found.items():
        assert len(page.ids) == len(set(page.ids)), name
        assert page.addresses
        for address in page.addresses:
            assert not re.match(r"[a-z]+:|//", address), (name, address)
            path, _, fragment = unquote(address).partition("#")
            target = (site / name).parent / path if path else site / name
            assert target.resolve().is_relative_to(site.resolve())
            assert target.is_file(), (name, address)
            if fragment:
                assert fragment in found[target.resolve().relative_to(site.resolve()).as_posix()].ids, (name, address)
        style = (site / name).read_text("utf-8")
        assert not re.findall(r"@import|url\((?!#)", style)
        assert "default-src 'none'" in style


def test_texts_are_shown_as_text(site: Path) -> None:
    for name, page in pages(site).items():
        assert sum(tag == "script" for tag, _ in page.tags) == 1, name
        assert not any(tag in ("i", "b") for tag, _ in page.tags), name
    assert NASTY in pages(site)["prompts/prompt.2.html"].words
    assert "rain & <b>shine</b>" in pages(site)["index.html"].words


def test_a_run_of_which_all_failed_has_a_page_whose_links_lead_somewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "Es regnet.", "language": "German"}\n')
    folder, out = tmp_path / "[red]", tmp_path / "site"
    arguments = ["--engine", "fake", "--scorer", "fake", "--n", "1,2", "--prompts", str(tmp_path / "p.jsonl")]
    assert program(["sweep", *arguments, "-o", str(folder), "--workers", "1"]) == 1
    assert f"csv in {folder}\n" in capsys.readouterr().out  # on one line, and no colour
    assert program(["study", str(folder), "-o", str(out)]) == 0
    for tag, given in pages(out)["index.html"].tags:
        if tag == "a" and not given["href"].startswith("#"):
            assert (out / unquote(given["href"]).partition("#")[0]).exists(), given["href"]


def test_the_first_page_says_what_failed_and_how_it_was_made(site: Path, run: Path) -> None:
    page = pages(site)["index.html"]
    assert "language: the fake engine does not know it" in page.words
    commands = ["chunksearch sweep s.toml -o run", f"chunksearch judge {run} --scorer random"]
    for line in [*commands, f"chunksearch study {run} -o site"]:
        assert line in page.words
    heads = [given for tag, given in page.tags if tag == "figure"]
    assert len(heads) >= 3
    assert page.words.count("Reproduce:") == len(heads) + 5  # five tables
    summary = json.loads((site / "summary.json").read_text())
    assert summary["baseline"] == "n1"
    assert all(sentence in page.words for sentence in [*summary["headlines"], *summary["warnings"]])


def test_markdown_has_the_same_numbers(site: Path) -> None:
    text = (site / "README.md").read_text("utf-8")
    summary = json.loads((site / "summary.json").read_text())
    head, body = text.split("---\n", 2)[1:]
    assert 'pretty_name: "rain & <b>shine</b>"' in head
    for path in re.findall(r'data_files: "(.*)"', head):
        assert read_table(site / path)
    assert 'data_files: "data/table.parquet"\n  default: true' in head
    assert all(sentence.replace("_", "\\_") in body for sentence in summary["headlines"])
    assert "language: the fake engine" in body
    for path in re.findall(r"\]\((plots/[^)]*)\)", body):
        assert (site / path).is_file()


def test_the_study_can_be_run_again_from_the_site(site: Path, run: Path) -> None:
    study = read_study(site / "data/study.toml")
    assert (site / "data/study.toml").read_bytes() == (run / "study.toml").read_bytes()
    here = study.model_copy(update={"prompts": [str(site / "data/prompts.jsonl")]})
    assert [unit.digest for unit in expand(here).units] == RunStore.open(run).about["units"]
    assert "data/prompts.jsonl" in (site / "index.html").read_text("utf-8")


def test_audio_is_that_of_the_run_and_its_sums_are_kept(site: Path, run: Path) -> None:
    rows = read_table(site / "data/audio.parquet")
    assert {(row["kind"], row["format"]) for row in rows} == {("take", "flac"), ("take", "mp3"), ("candidates", "flac")}
    for row in rows:
        content = (site / row["file"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (row["bytes"], row["sha256"])
        decoded, rate = soundfile.read(site / row["file"], dtype="int16")
        assert (len(decoded), rate) == (row["samples"], row["sample_rate"])
        assert row["seconds"] == pytest.approx(len(decoded) / rate)
        if row["kind"] == "take":
            spoken, own_rate = soundfile.read(run / "units" / row["unit"] / "audio.wav", dtype="int16")
            assert row["pcm_sha256"] == hashlib.sha256(spoken.astype("<i2").tobytes()).hexdigest()
            assert row["seconds"] == pytest.approx(len(spoken) / own_rate, abs=1 / rate)
            if row["format"] == "flac":
                np.testing.assert_array_equal(decoded, spoken)
                assert row["delay_samples"] == 0
            else:
                assert row["delay_samples"] > 0


def test_candidates_are_found_behind_what_was_final_before_them(site: Path, run: Path) -> None:
    checked = 0
    for tag, given in pages(site)["prompts/plain.html"].tags:
        if tag != "button" or "data-file" not in given:
            continue
        file, unit = site / "prompts" / str(given["data-file"]), Path(str(given["data-file"])).stem
        row, step = map(int, re.findall(r"\d+", str(given["aria-label"])))
        pack, rate = soundfile.read(file, dtype="int16")
        lead, start, end = (round(float(str(given[f"data-{name}"])) * rate) for name in ("lead", "start", "end"))
        own, _ = soundfile.read(
            run / "units" / unit / "candidates" / f"step-{step:03d}-row-{row:02d}.wav", dtype="int16"
        )
        np.testing.assert_array_equal(pack[start:end], own)
        records = [json.loads(line) for line in (run / "units" / unit / "steps.jsonl").read_text().splitlines()]
        final = round((records[step - 2]["committed_until_seconds"] if step > 1 else 0.0) * rate)
        take, _ = soundfile.read(run / "units" / unit / "audio.wav", dtype="int16")
        np.testing.assert_array_equal(pack[lead:start], take[max(0, final - rate) : final])
        checked += 1
    assert checked > 20


def test_the_same_run_gives_the_same_bytes(run: Path, site: Path, tmp_path: Path) -> None:
    build(run, tmp_path / "again")
    files = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    assert files == sorted(
        path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file()
    )
    for name in files:
        assert (site / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_a_site_is_put_in_place_whole_or_not_at_all(
    run: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "site"
    shutil.copytree(site, out)

    def broken(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(building, "_write_pages", broken)
    with pytest.raises(OSError, match="no space left"):
        build(run, out)
    assert read_site(out) == read_site(site)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    monkeypatch.undo()
    (out / "audio").joinpath(next(iter(sorted(path.name for path in (out / "audio").iterdir())))).unlink()
    with pytest.raises(SiteError, match="not the file that the site was made with"):
        read_site(out)
    build(run, out)
    assert read_site(out) == read_site(site)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_folder_that_is_no_site_is_left_alone(run: Path, site: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-anna.txt").write_text("Dear Anna")
    shutil.copytree(site, tmp_path / "mixed")
    (tmp_path / "mixed" / "prompts" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    for name, message in (("letters", "to-anna.txt"), ("mixed", "prompts/mine.txt"), ("file", "a file")):
        options = command.Options(run, tmp_path / name, as_json=False)
        with pytest.raises(InputError, match=message):
            command.run(options)
    assert (tmp_path / "letters" / "to-anna.txt").read_text() == "Dear Anna"
    assert (tmp_path / "mixed" / "prompts" / "mine.txt").read_text() == "mine"
    with pytest.raises(InputError, match="no run in it"):
        command.run(command.Options(tmp_path / "nowhere", tmp_path / "out", as_json=False))
    assert not (tmp_path / "out").exists()


def test_tables_of_other_units_are_refused(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    store = RunStore.open(copy)
    result = next(store.place(unit) for unit, state in store.states().items() if state == "done") / "result.json"
    result.write_text(result.read_text().replace('"pcm_sha256": "', '"pcm_sha256": "0'))
    with pytest.raises(ValueError, match="not of the units that are there now"):
        build(copy, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_what_is_missing_is_said_before_anything_is_believed(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    store = RunStore.open(copy)
    shutil.rmtree(store.place(store.about["units"][0]))
    with pytest.raises(ValueError, match="not of the units that are there now"):
        build(copy, tmp_path / "site")
    write_tables(store)
    build(copy, tmp_path / "site")
    sentence = "1 of 18 units are missing or torn: the run is not complete"
    assert sentence in pages(tmp_path / "site")["index.html"].words
    assert sentence in (tmp_path / "site/README.md").read_text("utf-8")


def test_without_losers_the_page_says_how_to_keep_them(tmp_path: Path) -> None:
    build(made_run(tmp_path, losers=False), tmp_path / "site")
    page = pages(tmp_path / "site")["prompts/plain.html"]
    assert "the run kept none" in page.words
    assert "--losers" in page.words
    assert not any("data-file" in given for _, given in page.tags)
    assert not (tmp_path / "site/candidates").exists()
