"""Reports and the demo, on the fakes: every candidate is there to be heard, and the page needs nothing but itself."""

from __future__ import annotations

import base64
import json
import re
import wave
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.fake import FakeEngine, FakeVoice
from experiments import demo
from experiments.cli import run
from experiments.report.page import rendered_page
from experiments.report.recorder import Recorder, Take
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SearchConfig, SpeechRequest

TEXT = "the early train was full so we walked along the river"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def report(*arguments: str) -> Path:
    assert run(["say", TEXT, "--engine", "fake", "--scorer", "fake", "--report", "report", *arguments]) == 0
    return Path("report")


def samples(path: Path) -> bytes:
    with wave.open(str(path)) as file:
        return file.readframes(file.getnframes())


def take(config: SearchConfig, text: str = TEXT, scorer: FakeScorer | None = None) -> Take:
    recorder = Recorder()
    stream = ChunkSearch(FakeEngine(), scorer or FakeScorer()).stream(
        SpeechRequest(text=text), config, on_step=recorder
    )
    commits = list(stream)
    return Take("", stream.result, commits, recorder.steps)


def test_a_report_has_the_audio_the_records_and_every_candidate() -> None:
    folder = report("-n", "4")
    records = [json.loads(line) for line in (folder / "steps.jsonl").read_text("utf-8").splitlines()]
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    assert len(records) > 3
    heard = sorted((folder / "candidates" / "text-1-take-1").iterdir())
    assert len(heard) == 4 * len(records)
    winners = [
        samples(folder / "candidates" / "text-1-take-1" / f"step-{record['step']:03d}-row-{best:02d}.wav")
        for record in records
        for best in record["retained_rows"]
    ]
    assert b"".join(winners) == samples(folder / "speech.wav")
    assert not Path("speech.wav").exists()
    assert json.loads((folder / "summary.json").read_text("utf-8"))["status"] == "complete"


def test_a_report_replaces_an_earlier_one_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    folder = report("-n", "8")
    report("-n", "2")
    assert {path.name[-10:] for path in folder.glob("candidates/*/*")} == {"row-00.wav", "row-01.wav"}
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert run(["say", "x", "--engine", "fake", "--scorer", "fake", "--report", "mine"]) == 2
    assert "'mine' has other files in it" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir()] == ["thesis.txt"]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "mistake", [("--chunk-ms", "81"), ("--engine", "nope"), ("--scorer", "nope"), ("-n", "0"), ("--chunk-ms", "nan")]
)
def test_a_mistake_leaves_the_earlier_report_and_makes_no_new_one(mistake: tuple[str, str]) -> None:
    folder = report("-n", "2")
    before = everything(folder)
    for name in ("report", "new"):
        arguments = ["say", TEXT, "--engine", "fake", "--scorer", "fake", "--report", name, *mistake]
        assert run(arguments) == 2
    assert everything(folder) == before
    assert not Path("new").exists()


@pytest.mark.parametrize("foreign", ["notes.txt", "candidates/mine.wav", "candidates/text-1-take-1/mine.wav"])
def test_a_report_with_something_else_in_it_is_left_alone(foreign: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = report("-n", "2")
    (folder / foreign).write_text("years of work")
    before = everything(folder)
    assert run(["say", "x", "--engine", "fake", "--scorer", "fake", "--report", "report"]) == 2
    assert foreign in capsys.readouterr().err
    assert everything(folder) == before


def test_a_file_with_the_name_of_the_records_makes_no_report() -> None:
    Path("training").mkdir()
    Path("training/steps.jsonl").write_text('{"loss": 1.0}\n')
    assert run(["say", "x", "--engine", "fake", "--scorer", "fake", "--report", "training"]) == 2
    assert everything(Path("training")) == {"steps.jsonl": b'{"loss": 1.0}\n'}


def test_hidden_files_of_the_desktop_are_no_obstacle() -> None:
    folder = report("-n", "2")
    (folder / "candidates" / ".DS_Store").write_text("view")
    report("-n", "2")
    assert (folder / "candidates" / ".DS_Store").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "long" * 100])
def test_a_report_that_cannot_be_written_fails_before_anything_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.commands.say.load_engine", lambda *_: pytest.fail("loaded an engine"))
    Path("file").touch()
    assert run(["say", "x", "--report", name]) == 2
    assert "--report: " in capsys.readouterr().err


def test_a_failed_search_is_reported_as_far_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.commands.say.load_scorer", lambda *_: FakeScorer(FakeTaste(fails_at=3)))
    assert run(["say", TEXT, "--engine", "fake", "--report", "report"]) == 1
    page = Path("report/index.html").read_text("utf-8")
    assert ">failed<" in page
    assert page.count('<section class="step"') == 2
    assert len(Path("report/steps.jsonl").read_text("utf-8").splitlines()) == 2


def test_the_page_asks_for_nothing_outside_itself() -> None:
    page = rendered_page([[take(SearchConfig(n=3))]])
    assert "default-src 'none'" in page
    assert not re.findall(r"https?:|@import|url\(", page)
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("data:audio/wav;base64,", "#")) for source in sources)


def test_the_page_plays_the_winner_and_every_candidate() -> None:
    shown = take(SearchConfig(n=3))
    page = rendered_page([[shown]])
    embedded = re.search(r'<audio [^>]*src="data:audio/wav;base64,([^"]+)"', page)
    assert embedded
    audio = np.frombuffer(base64.b64decode(embedded[1])[44:], "<i2")
    np.testing.assert_array_equal(audio, (np.clip(shown.result.audio, -1, 1) * 32767).round())
    sounds = json.loads(re.search(r'id="sounds">(.*?)</script>', page)[1])  # type: ignore[index]
    buttons = re.findall(r'data-sound="([^"]+)"', page)
    assert sorted(buttons) == sorted(sounds)
    assert len(buttons) == 3 * len(shown.result.steps)
    for step in shown.steps:
        for row, pcm in enumerate(step.pcm):
            sound = base64.b64decode(sounds[f"text-1-take-1-step-{step.record['step']}-row-{row}"])
            np.testing.assert_array_equal(np.frombuffer(sound, "<i2"), pcm)


def test_the_page_shows_rank_parents_and_who_was_kept() -> None:
    script = FakeTaste(script=((0.1, 0.9, float("nan")), (0.5, 0.2, 0.7)))
    page = rendered_page([[take(SearchConfig(n=3, beam_width=2), scorer=FakeScorer(script))]])
    first, second, *_ = re.findall(r'<section class="step".*?</section>', page, re.DOTALL)
    assert first.count('class="row kept"') == 2
    assert re.findall(r">(best|kept)<", first) == ["best", "kept"]
    assert re.findall(r">row (\d)", first) == ["1", "0", "2"]  # the row without a usable reward last
    assert re.findall(r">row (\d)", second) == ["2", "0", "1"]
    assert re.findall(r"from (\d)", second) == ["0", "1", "1"]  # children of row 1: rows 0 and 1; of row 0: row 2
    assert "–" in re.findall(r'class="reward"[^>]*>([^<]*)', first)[2]


def test_texts_are_shown_as_text() -> None:
    page = rendered_page([[take(SearchConfig(n=1), text="<script>alert(1)</script> & more")]])
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page


def test_a_take_without_audio_has_a_page() -> None:
    assert "audio</dt><dd>0.00 s" in rendered_page([[_silent()]])
    assert "Nothing was spoken" in rendered_page([])


def _silent() -> Take:
    stream = ChunkSearch(FakeEngine(FakeVoice(length=0)), FakeScorer()).stream(SpeechRequest(text=TEXT), n=2)
    return Take("", stream.result, list(stream), [])


def test_recorded_parents_are_those_of_the_step_before() -> None:
    shown = take(SearchConfig(n=4, beam_width=2))
    assert shown.steps[0].parents == []
    for before, after in pairwise(shown.steps):
        assert after.parents == before.record["parents"]


def test_demo_compares_search_with_plain_sampling(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(TEXT, Path("demo"), voice="fake") == 0
    printed = capsys.readouterr().out
    plain, searched = (
        ChunkSearch(FakeEngine(), FakeScorer()).generate(SpeechRequest(text=TEXT), n=n).audio for n in (1, 8)
    )
    for audio, name in ((plain, "speech-n1.wav"), (searched, "speech-n8.wav")):
        assert samples(Path("demo") / name) == (np.clip(audio, -1, 1) * 32767).round().astype("<i2").tobytes()
        assert f"{len(audio)} samples" in printed  # both transcripts, as the fake listener writes them
    page = Path("demo/index.html").read_text("utf-8")
    assert page.count('<section class="take"') == 2
    assert page.index("N = 1, plain sampling") < page.index("N = 8, search")
