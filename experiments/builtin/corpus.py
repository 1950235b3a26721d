"""Stage `corpus`: the sentences that the teacher will read, one a line; every prefix of the file is a fair sample.

Text comes from the Debian packages wordnet-base (usage examples and glosses) and fortunes, and from our own templates.
It does not know how a sentence is pronounced: what the teacher's front end cannot read is dropped in the next stage.
"""

import argparse
import gzip
import importlib.util
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

from experiments.builtin import templates

LOG = logging.getLogger(__name__)
WORDNET = Path("/usr/share/wordnet")
FORTUNES = Path("/usr/share/games/fortunes")
HERE = Path(__file__).parent
EVERYDAY = HERE.parent / "prompts" / "everyday.txt"
SEED = 20
MAX_WORDS = 25

# Shares of the utterances; what a source cannot fill is left to the WordNet examples.
SHARES = {
    "rare": 0.08,
    "numbers": 0.09,
    "everyday": 0.08,
    "short": 0.05,
    "pair": 0.07,
    "fortune": 0.14,
    "gloss": 0.12,
}
_ALLOWED = re.compile(r"^[A-Za-z0-9',.?!$%:; -]+$")
_WORD = re.compile(r"[A-Za-z']+")
_OFFENSIVE = re.compile(r"\b(fuck\w*|shit\w*|nigg\w*|cunt\w*|whore\w*|rape\w*|slut\w*|bitch\w*)\b", re.IGNORECASE)


def sentences_for_evaluation() -> tuple[list[str], list[str]]:
    """The 60 held-out sentences of the final table and the 60 development sentences of the gates."""
    heldout = EVERYDAY.read_text(encoding="utf-8").splitlines()
    development = (HERE / "devset.txt").read_text(encoding="utf-8").splitlines()
    return heldout, development


def fingerprint(sentence: str) -> str:
    """Letters and digits only, lower case: two sentences that are read alike compare equal."""
    return re.sub(r"[^a-z0-9]+", " ", sentence.lower()).strip()


def _lexicon() -> set[str]:
    found = importlib.util.find_spec("hibari")
    if found is None or found.origin is None:
        raise SystemExit("corpus: the teacher package 'hibari-tts' is not installed (pip install hibari-tts)")
    words: set[str] = set()
    with gzip.open(Path(found.origin).parent / "assets" / "lexicon_us_gold.json.gz") as stream:
        words.update(word.lower() for word in json.load(stream))
    return words


def clean(raw: str) -> str | None:
    """One tidy sentence of 1 to 25 words with end punctuation, or None when `raw` is not plain prose."""
    text = re.sub(r"\s+", " ", raw.replace("--", ", ").replace("`", "'")).strip(" ;:,-")
    if not text or not _ALLOWED.match(text) or _OFFENSIVE.search(text) or re.search(r"[.?!]\s", text):
        return None
    words = _WORD.findall(text)
    if not 1 <= len(words) <= MAX_WORDS or any(len(word) > 4 and word.isupper() for word in words):
        return None
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".?!" else text.rstrip(",:;' -") + "."


def _wordnet() -> Iterator[tuple[str, str]]:
    """(kind, sentence) pairs: kind is "example" or "gloss"."""
    for part in ("noun", "verb", "adj", "adv"):
        path = WORDNET / f"data.{part}"
        if not path.exists():
            raise SystemExit(f"corpus: {path} is missing (apt install wordnet-base)")
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            gloss = line.split("|", 1)[1]
            for quote in re.findall(r'"([^"]+)"', gloss):
                sentence = clean(quote.split(" - ")[0])
                if sentence:
                    yield "example", sentence
            definition = re.sub(r"\([^)]*\)", "", re.sub(r'"[^"]*"', "", gloss).split(";")[0])
            sentence = clean(definition)
            if sentence and len(sentence.split()) >= 5:
                yield "gloss", sentence


def _fortunes() -> Iterator[str]:
    if not FORTUNES.is_dir():
        raise SystemExit(f"corpus: {FORTUNES} is missing (apt install fortunes)")
    for path in sorted(FORTUNES.iterdir()):
        if path.suffix in (".dat", ".u8") or not path.is_file():
            continue
        for item in path.read_text(encoding="utf-8", errors="ignore").split("\n%"):
            prose = re.sub(r"\s+", " ", re.sub(r"\n\s*--.*", "", item, flags=re.DOTALL))
            for candidate in re.findall(r"[A-Z][^.?!]+[.?!]", prose):
                sentence = clean(candidate)
                if sentence and len(sentence.split()) >= 4:
                    yield sentence


def _is_known(sentence: str, lexicon: set[str]) -> bool:
    if re.search(r"[0-9$%]", sentence):
        return False
    stems = ((word.lower(), re.sub(r"'s?$", "", word.lower().strip("'"))) for word in _WORD.findall(sentence))
    return all(word in lexicon or stem in lexicon for word, stem in stems)


def gather(random: Random) -> dict[str, list[str]]:
    """All candidate sentences by source, shuffled, without repetition."""
    lexicon = _lexicon()
    pools: dict[str, list[str]] = {"example": [], "gloss": [], "fortune": [], "rare": []}
    found = [*_wordnet(), *(("fortune", sentence) for sentence in _fortunes())]
    for kind, sentence in dict.fromkeys(found):
        known = _is_known(sentence, lexicon)
        if known and kind == "example" and len(sentence.split()) < 4 and random.random() < 0.7:
            continue
        pools[kind if known else "rare"].append(sentence)
    for pool in pools.values():
        random.shuffle(pool)
    return pools


def compose(count: int, random: Random) -> list[str]:
    """`count` utterances mixed by `SHARES`, none of them (nor any of their parts) an evaluation sentence."""
    pools = gather(random)
    LOG.info("candidates: %s", {kind: len(pool) for kind, pool in pools.items()})
    heldout, development = sentences_for_evaluation()
    seen = {fingerprint(sentence) for sentence in (*heldout, *development)}
    kinds, weights = [*SHARES, "example"], [*SHARES.values(), 1 - sum(SHARES.values())]
    utterances: list[str] = []

    def fresh(kind: str) -> str | None:
        if kind == "numbers":
            return templates.numbers_and_names(random)
        if kind == "everyday":
            return templates.everyday(random)
        if kind == "short":
            return random.choice(templates.SHORT_UTTERANCES)
        return pools[kind].pop() if pools[kind] else None

    while len(utterances) < count and pools["example"]:
        kind = random.choices(kinds, weights)[0]
        pair = random.choices(["example", "everyday", "short", "fortune"], k=2)
        chosen = [fresh(part) for part in (pair if kind == "pair" else [kind])]
        if None in chosen or any(fingerprint(str(part)) in seen for part in chosen):
            continue
        text = " ".join(str(part) for part in chosen)
        if len(text.split()) > MAX_WORDS:
            continue
        if kind != "short":
            seen.add(fingerprint(text))
        utterances.append(text)
    return utterances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--count", type=int, default=40_000, help="utterances (40,000 are about 30 hours)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments.work.mkdir(parents=True, exist_ok=True)
    utterances = compose(arguments.count, Random(SEED))
    path = arguments.work / "corpus.txt"
    path.write_text("\n".join(utterances) + "\n", encoding="utf-8")
    words = sum(len(utterance.split()) for utterance in utterances)
    LOG.info("%s: %d utterances, %.1f words each", path, len(utterances), words / len(utterances))


if __name__ == "__main__":
    main()
