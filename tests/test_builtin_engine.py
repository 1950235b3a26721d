"""The built-in voice's front end and loader: any English text becomes symbols, anything else a clear error."""

import json
from pathlib import Path

import pytest
import torch

from codec.builtin import BuiltinCodec, DecoderConfig, phonemes
from codec.builtin.phonemes import NothingToSayError, phonemize, sentences
from engine.builtin.text import LONGEST, BuiltinPrompt, split_sentences
from engine.builtin.voice import load_voice
from search import ChunkSearch, SpeechRequest
from tests.tiny import tiny_moss, tiny_moss_config

CONFIG = tiny_moss_config()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello there.", ["Hello", "there"]),
        ("  Hello\n there ", ["Hello", "there"]),
        ("Hello. Who is it? Me!", ["Hello", "Who", "is", "it", "Me"]),
        ("Dr. Smith paid $9.99.", ["Dr", "Smith", "paid", "$9.99"]),
        ("“Quoted,” she said (softly).", ["Quoted", "she", "said", "softly"]),
        ("Don't stop--now!", ["Don't", "stop", "now"]),
        ("☃ snow 😀 day", ["snow", "day"]),
        ("It was xyzzyplugh.", ["It", "was", "xyzzyplugh"]),
        ("Zoë's naïve café", ["Zoë's", "naïve", "café"]),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert [word for word, _ in phonemize(text).words] == words


@pytest.mark.parametrize(
    "text", ["Hello. ... World", "(Well) then, go!", "☃ snow 😀 day ☃", "A  b", "¿Qué? 3/4/2024 7:30"]
)
def test_every_symbol_belongs_to_a_word(text: str) -> None:
    read = phonemize(text)
    assert read.ids[0] == read.ids[-1] == 0
    assert read.ids[1:-1] == tuple(symbol for _, symbols in read.words for symbol in symbols)
    assert all(0 < symbol < 179 for symbol in read.ids[1:-1])
    space = phonemize("a b").words[0][1][-1]
    pairs = list(zip(read.ids, read.ids[1:], strict=False))
    assert (space, space) not in pairs
    assert (space, 0) not in pairs
    assert (0, space) not in pairs


def test_symbols_are_those_of_the_teacher() -> None:
    """The voice was trained on the symbols that hibari-tts gives itself; drift here is noise in every utterance."""
    from hibari import Hibari
    from hibari.tts import ASSETS

    class FrontEnd(Hibari):  # type: ignore[misc]
        def __init__(self) -> None:  # without the voice, which the front end does not need
            self._g2p, self.voice = None, "heart"
            self.vocab = json.loads((Path(ASSETS) / "vocab.json").read_text(encoding="utf-8"))

    teacher = FrontEnd()
    texts = (Path(__file__).parents[1] / "experiments" / "prompts" / "everyday.txt").read_text(encoding="utf-8")
    for text in [
        *texts.splitlines(),
        "At 7:30, 1,250 people paid $9.99. Really?",
        "Mr. O'Neil (58) left NASA in 1999.",
    ]:
        assert list(phonemize(text).ids) == teacher.ids(" ".join(teacher.phonemize(text))), text


@pytest.mark.parametrize("text", ["...", "😀", "?!", "—", "“”"])
def test_text_without_a_word_says_so(text: str) -> None:
    with pytest.raises(NothingToSayError, match="has nothing to say"):
        phonemize(text)


@pytest.mark.parametrize("text", ["你好", "Hello 你好", "Привет", "the π day"])
def test_text_in_another_script_says_which_word(text: str) -> None:
    with pytest.raises(ValueError, match=r"text: '(你好|Привет|π)' in .* reads English only"):
        phonemize(text)


def test_what_the_rules_cannot_cope_with_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        phonemize("9" * 60)


def test_reading_text_loads_no_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    """hibari-tts brings its own voice along; the front end must not pay for it."""
    for cached in (phonemize, phonemes._front_end):
        cached.cache_clear()
    monkeypatch.setattr("onnxruntime.InferenceSession", None)
    assert len(phonemize("Hello there.").words) == 2
    with pytest.raises(ValueError, match="cannot be read"):  # an unknown word does need a network, a small one
        phonemize("Hello xyzzyplugh.")


def test_prompts_frame_the_symbols() -> None:
    prompt = BuiltinPrompt(CONFIG).build(SpeechRequest("Hello."))
    ids, symbols = CONFIG.ids, phonemize("Hello.").ids
    assert prompt.conditional[:, 0].tolist() == [ids.im_start, *symbols, ids.im_end, ids.audio_start]
    assert prompt.unconditional is not None
    assert prompt.unconditional[:, 0].tolist() == [ids.im_start, ids.im_end, ids.audio_start]
    for rows in (prompt.conditional, prompt.unconditional):
        assert rows.dtype == torch.int64
        assert bool((rows[:, 1:] == CONFIG.audio_pad).all())


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SpeechRequest("Hello.", instruction="sadly"), "instruction: the built-in voice"),
        (SpeechRequest("Hello.", voice="heart"), "voice: the built-in voice"),
        (SpeechRequest("Hello.", reference="a.wav"), "reference: the built-in voice"),
        (SpeechRequest("Hello.", language="German"), "language: 'German' is not spoken here"),
        (SpeechRequest("..."), "has nothing to say"),
        (SpeechRequest("word " * 80), f"symbols, the built-in voice holds {LONGEST}; split it"),
    ],
)
def test_requests_that_the_voice_cannot_speak(request_: SpeechRequest, message: str) -> None:
    prompts = BuiltinPrompt(CONFIG)
    for use in (prompts.build, prompts.budget):
        with pytest.raises(ValueError, match=message):
            use(request_)


def test_the_budget_follows_the_symbols() -> None:
    prompts = BuiltinPrompt(CONFIG)
    short, long = SpeechRequest("Hi."), SpeechRequest("We should call grandma before it gets too late.")
    assert prompts.budget(short) < 30
    assert 45 < prompts.budget(long) < 90  # the teacher takes 38 frames for it


def test_sentences_are_split_and_silent_ones_left_out() -> None:
    assert split_sentences("Dr. Who left. 😀\n\n... Why? No. 5? Go!") == ["Dr. Who left.", "Why?", "No.", "5?", "Go!"]
    assert split_sentences("... 😀") == split_sentences("") == []
    assert sentences("One. Two.") == ["One.", "Two."]


@pytest.mark.parametrize("text", ["The cat sat on the mat, and " * 30 + "slept.", "word " * 200])
def test_long_sentences_are_cut_where_they_breathe(text: str) -> None:
    pieces = split_sentences(text)
    assert " ".join(pieces).split() == text.split()
    assert all(len(phonemize(piece).ids) <= LONGEST for piece in pieces)
    assert len(pieces) < 2.5 * len(phonemize(text).ids) / LONGEST
    if "," in text:
        assert all(piece.endswith((",", ".")) for piece in pieces)


def test_a_single_endless_word_is_refused() -> None:
    with pytest.raises(ValueError, match="is a single word of"):
        split_sentences("word-" * 60)


@pytest.fixture(scope="module")
def codec() -> BuiltinCodec:
    return BuiltinCodec.random(DecoderConfig(), seed=0)


def test_a_checkpoint_in_the_built_in_format_speaks(tmp_path: Path, codec: BuiltinCodec) -> None:
    engine = load_voice(tiny_moss(tmp_path, books=codec.book_sizes), codec=codec)
    assert (engine.name, engine.sample_rate, engine.hop) == ("builtin", 24_000, 1920)
    result = ChunkSearch(engine).generate(SpeechRequest("Hello there."), n=1, seed=3, max_seconds=0.4)
    assert len(result.audio) == len(result.frames) * 1920 > 0


def test_books_that_are_not_the_codecs_are_refused(tmp_path: Path, codec: BuiltinCodec) -> None:
    with pytest.raises(ValueError, match=r"audio_codebook_sizes is \[24, 24, 16\], the codec's books have \[180, "):
        load_voice(tiny_moss(tmp_path), codec=codec)


def test_another_sample_rate_names_the_file(tmp_path: Path, codec: BuiltinCodec) -> None:
    with pytest.raises(ValueError, match=r"config\.json: sampling_rate is 48000, the codec's is 24000"):
        load_voice(tiny_moss(tmp_path, books=codec.book_sizes, sample_rate=48_000), codec=codec)


def test_errors_quote_a_long_text_by_its_beginning() -> None:
    for text in ("Hello 你好 " + "word " * 200, "9" * 60 + " word" * 200, "..." * 100):
        with pytest.raises(ValueError, match="text: ") as caught:
            phonemize(text)
        assert len(str(caught.value)) < 200
