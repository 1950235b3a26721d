"""Prompts of the published checkpoints: the golden id sequences, and what a request turns into."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.moss.languages import language_name
from engine.moss.packing import RowLayout, Script, pack
from engine.moss.references import Recording
from engine.moss.text import MossPrompt
from experiments.verify import verify
from search import SpeechRequest
from tests.tiny import tiny_moss_config

BUNDLE = Path(__file__).parent / "golden" / "moss_prompt"
CONFIG = tiny_moss_config()
LAYOUT = RowLayout.of(CONFIG)
CODES = torch.arange(6).view(2, 3)


def tokenize(text: str) -> list[int]:
    """A letter an id; 200 and more, beyond the tiny vocabulary, where it is no ASCII."""
    return [min(ord(letter), 200) for letter in text]


def said(rows: Tensor) -> str:
    """The text column in letters, special ids and audio slots left out."""
    return "".join(chr(number) for number in rows[:, 0].tolist() if number < CONFIG.ids.pad)


def built(**fields: Any) -> tuple[Tensor, Tensor]:
    prompt = MossPrompt(CONFIG, tokenize, lambda _: CODES).build(SpeechRequest(**{"text": "Oh.", **fields}))
    assert prompt.unconditional is not None
    return prompt.conditional, prompt.unconditional


def test_every_golden_prompt_is_packed_alike() -> None:
    checks = verify("moss-prompt", BUNDLE)
    assert [check.name for check in checks if not check.passed] == []
    golden = load_file(BUNDLE / "golden.safetensors").keys()
    assert {check.name for check in checks} == {name for name in golden if name[:5] not in ("codes", "batch")} | {
        "batch_ids",
        "batch_mask",
    }
    assert all(check.compared for check in checks)


@pytest.mark.parametrize(
    ("tensor", "failing"), [("codes.0", {"ids.2", "batch_ids"}), ("codes.3", {"ids.5"}), ("batch_mask", {"batch_mask"})]
)
def test_other_codes_or_ids_are_noticed(tmp_path: Path, tensor: str, failing: set[str]) -> None:
    bundle = Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))
    golden = load_file(bundle / "golden.safetensors")
    golden[tensor] = ~golden[tensor] if golden[tensor].dtype == torch.bool else golden[tensor] + 1
    save_file(golden, bundle / "golden.safetensors")
    assert {check.name for check in verify("moss-prompt", bundle) if not check.passed} == failing


def test_a_bundle_without_cases_is_named(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))
    (bundle / "cases.json").write_text(json.dumps({"n_vq": 12}))
    with pytest.raises(ValueError, match=r"cases\.json lists no cases"):
        verify("moss-prompt", bundle)
    (bundle / "cases.json").unlink()
    with pytest.raises(ValueError, match=r"cases\.json does not exist"):
        verify("moss-prompt", bundle)


def test_the_template_around_a_request() -> None:
    rows, _ = built(text=" (sigh) Oh. ", instruction=" softly ", language="de")
    assert said(rows) == (
        "user\n<user_inst>\n- Reference(s):\nNone\n- Instruction:\nsoftly\n- Tokens:\nNone\n- Quality:\nNone\n"
        "- Sound Event:\nNone\n- Ambient Sound:\nNone\n- Language:\nGerman\n- Text:\n (sigh) Oh. \n</user_inst>"
        "\nassistant\n"
    )
    ids = CONFIG.ids
    assert [number for number in rows[:, 0].tolist() if number >= ids.pad] == [
        ids.im_start,
        ids.im_end,
        ids.im_start,
        ids.audio_start,
    ]
    assert bool((rows[:, 1:] == CONFIG.audio_pad).all())


def test_pieces_are_tokenized_one_by_one() -> None:
    seen: list[str] = []

    def watching(text: str) -> list[int]:
        seen.append(text)
        return [1]

    pack(Script("a"), watching, LAYOUT, references=[CODES])
    assert [piece for piece in seen if len(piece) < 60] == [
        "user\n",
        "<user_inst>\n- Reference(s):\n",
        "a",
        "\n</user_inst>",
        "\n",
        "assistant\n",
    ]


def test_the_unconditional_side_has_words_and_voice_but_no_instruction() -> None:
    pcm = np.zeros(9, np.float32)
    fields: dict[str, Any] = {"reference": (pcm, 24_000), "language": "English"}
    conditional, unconditional = built(**fields, instruction="whisper")
    assert torch.equal(unconditional, built(**fields)[0])
    assert said(unconditional) == said(conditional).replace("whisper", "None")
    slots = conditional[:, 0] == CONFIG.ids.user_slot
    assert torch.equal(conditional[slots, 1:], CODES)
    assert torch.equal(unconditional[unconditional[:, 0] == CONFIG.ids.user_slot, 1:], CODES)


def test_a_continuation_ends_with_what_was_spoken() -> None:
    rows = pack(Script("One. Two."), tokenize, LAYOUT, spoken=CODES)
    slot = torch.full((2, 1), CONFIG.ids.assistant_slot)
    assert torch.equal(rows[-2:], torch.cat([slot, CODES], 1))
    assert rows[-3, 0] == CONFIG.ids.audio_start
    with pytest.raises(ValueError, match="references: a continuation has none"):
        pack(Script("a"), tokenize, LAYOUT, references=[CODES], spoken=CODES)
    with pytest.raises(ValueError, match=r"codes: \[2, 2\] is not \[T, 3\]"):
        pack(Script("a"), tokenize, LAYOUT, spoken=CODES[:, :2])


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, None),
        (" ", None),
        ("de", "German"),
        ("EN-us", "English"),
        ("zh_Hans", "Chinese"),
        ("yue", "Cantonese"),
        ("english", "English"),
        (" Persian ", "Persian"),
        ("Upper Sorbian", "Upper Sorbian"),
    ],
)
def test_languages_become_full_english_names(given: str | None, name: str | None) -> None:
    assert language_name(given) == name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alba"}, "voice: MOSS has no named voices; give a reference"),
        ({"language": "xx"}, "language: 'xx' is no known code"),
        ({"text": "Ä!"}, "text: the text column holds 196; allowed are 0 to 191"),
        ({"reference": "nowhere.wav"}, "reference: 'nowhere.wav' is no file"),
        ({"reference": [0.0]}, "reference: a list; give a path"),
        ({"reference": (np.ones(9, np.int16), 9)}, "reference: samples are int16; give floats with full scale at 1"),
    ],
)
def test_what_cannot_be_packed_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built(**fields)


def test_budgets_follow_letters_ideograms_and_pauses() -> None:
    prompt = MossPrompt(CONFIG, tokenize, lambda _: CODES)

    def frames(text: str) -> int:
        return prompt.budget(SpeechRequest(text=text))

    assert frames("a" * 100) == 25 + 191  # 2.2 * 0.867 frames a letter
    assert frames("早" * 10) == 25 + 69
    assert frames("a" * 100 + "[pause 3.2s]") == frames("a" * 100) + 40


def test_recordings_are_read_with_channels_first(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="reading recordings needs soundfile: pip install soundfile")
    sound = np.stack([np.linspace(-0.5, 0.5, 800), np.zeros(800)], 1).astype(np.float32)
    soundfile.write(tmp_path / "voice.wav", sound, 16_000, subtype="FLOAT")
    recording = Recording.of(str(tmp_path / "voice.wav"))
    assert recording.sample_rate == 16_000
    assert np.array_equal(recording.pcm, sound.T)
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(ValueError, match=r"text\.wav' is no readable recording"):
        Recording.of(tmp_path / "text.wav")
