"""Rewards in files, and scorers made of them: what is refused, what is named how, who hears what."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.fake import FakeEngine
from scorers import load_scorer
from scorers.composite import Composite
from scorers.composition import RewardSpec, named_rewards, read_reward
from scorers.fake import FakeScorer, FakeTaste
from scorers.heads import Clip, Head, Judgement, Term
from scorers.placed import HeadError, Here, HereStream
from scorers.rereader import Rereader
from search import ChunkSearch, SearchFailed, SpeechRequest

REQUEST = SpeechRequest("one two three four")


def written(option: str = "", *, term: str = "weight = 1.0", rest: str = "") -> str:
    """A file with one head, an option of it, one term, and what follows."""
    return f"[heads.listener]\n{option}\n[terms.listener]\n{term}\n{rest}"


class Loudness:
    """Hears how loud a clip is, and counts the clips that it is asked about."""

    name, device, sample_rate = "loudness", torch.device("cpu"), 50

    def __init__(self, *names: str, error: Exception | None = None) -> None:
        self.terms = tuple(Term(name, "lower" if name == "prefix_wer" else "higher") for name in names or ("loud",))
        self.asked: list[int] = []
        self.error = error

    def prepare(self, request: SpeechRequest) -> str:
        return request.text

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        if self.error is not None:
            raise self.error
        self.asked.append(len(clips))
        return [
            Judgement({term.name: float(abs(clip.pcm).mean()) for term in self.terms}, {"said": clip.prepared})
            for clip in clips
        ]


def composite(spec: dict[str, Any], **heads: Head) -> Composite:
    written = {"heads": {name: {} for name in heads}} | spec
    return Composite(
        "mine",
        RewardSpec.model_validate(written),
        {name: Here(head) for name, head in heads.items()},
        torch.device("cpu"),
    )


def heard(scorer: Composite, pcm: Tensor, finished: bool = False) -> Any:
    rows = len(pcm)
    stream = scorer.open([REQUEST], rows, 100, 10)
    return stream.score(pcm, torch.full((rows,), pcm.shape[1]), torch.full((rows,), finished))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight", "no valid TOML"),
        ("[heads.listener]", "terms: field required"),
        (written(rest="[gate.wer]"), "gate: unknown key; allowed are description, heads, terms, gates"),
        (written(term="wieght = 2.0"), r"terms\.listener\.(weight: field required|wieght: unknown key)"),
        (written(term="weight = 1.0\ntop = 1"), r"terms\.listener\.top: unknown key; allowed are weight, normalise"),
        (written(term="weight = -1.0"), r"terms\.listener\.weight: .*greater than 0, not -1\.0"),
        (written(term='weight = "much"'), r"terms\.listener\.weight: .*not 'much'"),
        (written(term="weight = nan"), r"terms\.listener\.weight: .*not nan"),
        (written(rest='normalise = "max"'), r"terms\.listener\.normalise: .*'minmax', 'zscore'.*not 'max'"),
        (written(rest='normalise = "reference"\nmean = 1.0'), r"terms\.listener: .* needs mean and sd"),
        (written(rest="sd = 1.0"), r"terms\.listener: mean and sd are for normalise = 'reference', not 'none'"),
        (written(rest="[terms.clap]\nweight = 1.0"), r"terms\.clap: no head finds it; allowed are listener, match"),
        (written(rest="[gates.prefix_wer]\nfull = 1.0\nzero = 0.0"), r"gates\.prefix_wer: full = 1 is worse than zero"),
        (written('place = "cloud"'), r"heads\.listener\.place: .*not 'cloud'"),
        (written("deadline_seconds = 1.0"), r"heads\.listener: deadline_seconds needs place"),
        (written("volume = 3"), r"heads\.listener: listener: 'volume' is no option; this head has no options"),
        ("heads.listener = 3\n[terms.listener]\nweight = 1.0", r"heads\.listener: give a table, not 3"),
        ('[heads.""]\nkind = "fake"\n[terms.""]\nweight = 1.0', r"a head has a name, without a dot"),
        (written('kind = "lisener"'), r"heads\.listener: kind: 'lisener' is not known; .*listener"),
        (written('device = "cuda:7"'), r"heads\.listener: device: 'cuda:7' is not there"),
        (written('two_stage = { by = "clap", top = 2 }'), r"two_stage\.by is 'clap'; allowed .* there is none"),
        (
            written('two_stage = { by = "fake", top = 2 }', rest="[heads.fake]"),
            r"listener\.two_stage: .* hears every row",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        load_scorer(str(path))
    assert "mine" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.toml: No such file"):
        load_scorer(str(tmp_path / "nowhere.toml"))


@pytest.mark.parametrize("name", named_rewards())
def test_what_comes_along_can_be_read(name: str) -> None:
    from scorers.composition import REWARDS

    assert read_reward(REWARDS / f"{name}.toml").description


def test_one_head_of_weight_one_is_that_head() -> None:
    """Bit for bit, through whole searches."""
    spec = {"terms": {"fake": {"weight": 1.0}}}
    for beams in (1, 2):
        alone = ChunkSearch(FakeEngine(), FakeScorer()).generate(REQUEST, n=4, beam_width=beams, chunk_frames=3)
        composed = ChunkSearch(FakeEngine(), composite(spec, fake=FakeScorer())).generate(
            REQUEST, n=4, beam_width=beams, chunk_frames=3
        )
        assert torch.equal(torch.as_tensor(alone.frames), torch.as_tensor(composed.frames))
        assert [step["scores"][0]["reward"] for step in alone.steps] == [
            step["scores"][0]["reward"] for step in composed.steps
        ]


def test_terms_of_one_name_are_told_apart() -> None:
    """The first head has the plain name, and so breaks ties; all raw terms are kept."""
    terms = {"prefix_wer": {"weight": 1.0}, "second.prefix_wer": {"weight": 10.0}}
    scorer = composite(
        {"terms": terms}, first=FakeScorer(FakeTaste(prefix_wer=(0.25,))), second=Rereader(Loudness("prefix_wer"))
    )
    scores = heard(scorer, torch.full((1, 20), 0.5))
    assert set(scores.heads) == {"first", "heard_seconds", "prefix_wer", "second", "second.prefix_wer"}
    assert float(scores.heads["prefix_wer"]) == 0.25
    assert float(scores.heads["second.prefix_wer"]) == pytest.approx(0.5, abs=0.1)
    assert float(scores.reward) == pytest.approx(-0.25 - 10 * float(scores.heads["second.prefix_wer"]))
    assert scores.notes[0]["shares"]["prefix_wer"] == pytest.approx(-0.25)


def test_the_second_stage_hears_the_best_of_the_first() -> None:
    loud = Loudness()
    spec = {"heads": {"fake": {}, "loud": {"two_stage": {"by": "fake", "top": 2}}}, "terms": {"loud": {"weight": 1.0}}}
    scorer = composite(spec, fake=FakeScorer(FakeTaste(script=((0.1, 0.4, 0.2, 0.3),))), loud=Rereader(loud))
    scores = heard(scorer, torch.rand(4, 20))
    assert loud.asked == [2]
    assert scores.reward.isnan().tolist() == [True, False, True, False]
    assert scores.notes[0]["not_judged"] == "not asked for"


def test_a_failed_head_is_an_error_or_absent() -> None:
    broken = Rereader(Loudness(error=RuntimeError("ear fell off")))
    terms = {"fake": {"weight": 1.0}, "loud": {"weight": 1.0}}
    with pytest.raises(HeadError, match="loudness: RuntimeError: ear fell off"):
        heard(composite({"terms": terms}, fake=FakeScorer(), loud=broken), torch.rand(2, 20))
    spec = {"heads": {"fake": {}, "loud": {"on_failure": "absent"}}, "terms": terms}
    pcm = torch.rand(2, 20)
    scores = heard(composite(spec, fake=FakeScorer(), loud=broken), pcm)
    alone = heard(composite({"terms": {"fake": {"weight": 1.0}}}, fake=FakeScorer()), pcm)
    assert torch.equal(scores.reward, alone.reward)
    assert math.isnan(scores.heads["loud"][0])
    assert scores.notes[0]["failed"] == ["loudness: RuntimeError: ear fell off"]


class Unopened(Here):
    """As a head whose process has died."""

    def open(self, *_: Any) -> HereStream:
        raise HeadError(f"{self.name}: no stream was opened")


def test_a_head_without_a_stream_is_an_error_or_absent() -> None:
    terms = {"fake": {"weight": 1.0}, "loud": {"weight": 1.0}}
    placed = {"fake": Here(FakeScorer()), "loud": Unopened(Rereader(Loudness()))}
    for on_failure in ("error", "absent"):
        spec = RewardSpec.model_validate({"heads": {"fake": {}, "loud": {"on_failure": on_failure}}, "terms": terms})
        search = ChunkSearch(FakeEngine(), Composite("mine", spec, placed, torch.device("cpu")))
        if on_failure == "error":
            with pytest.raises(SearchFailed, match="loudness: no stream was opened"):
                search.generate(REQUEST, n=3)
            continue
        result = search.generate(REQUEST, n=3, beam_width=2)
        assert result.status == "complete"
        assert all(score["judged"] for step in result.steps for score in step["scores"])
        assert result.steps[-1]["scores"][0]["failed"] == ["loudness: no stream was opened"]


def test_a_search_survives_an_absent_head_and_reports_a_failed_one() -> None:
    broken = Rereader(Loudness(error=RuntimeError("ear fell off")))
    terms = {"fake": {"weight": 1.0}, "loud": {"weight": 1.0}}
    with pytest.raises(SearchFailed) as failure:
        ChunkSearch(FakeEngine(), composite({"terms": terms}, fake=FakeScorer(), loud=broken)).generate(REQUEST, n=3)
    assert "ear fell off" in str(failure.value.__cause__)
    spec = {"heads": {"fake": {}, "loud": {"on_failure": "absent"}}, "terms": terms}
    result = ChunkSearch(FakeEngine(), composite(spec, fake=FakeScorer(), loud=broken)).generate(REQUEST, n=3)
    assert result.status == "complete"
    assert all(score["judged"] for step in result.steps for score in step["scores"])


def test_audio_that_is_no_number_is_not_judged() -> None:
    pcm = torch.rand(3, 20)
    pcm[1, 3] = math.nan
    scores = heard(composite({"terms": {"loud": {"weight": 1.0}}}, loud=Rereader(Loudness())), pcm)
    assert scores.reward.isnan().tolist() == [False, True, False]
    assert scores.notes[1]["not_judged"] == "audio is not finite"
