"""Does the listener pick the right reading? Readings by the language model, judged by Whisper and by the listener.

`sample` speaks development sentences several times and has Whisper write down each reading; `report` lets the listener
choose. The held-out sentences are not touched: weights of the reward may be tuned on what this prints.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.builtin.voice import load_voice
from experiments.builtin.resynthesis import Judges
from scorers.builtin.features import SAMPLE_RATE
from scorers.builtin.scorer import Listener
from scorers.builtin.weights import WEIGHTS
from scorers.text import reference_of, word_errors
from search import SpeechRequest
from search.config import Sampling
from search.protocols import Chunk

HERE = Path(__file__).parent
HOP = 1920
CHUNK = 10 * HOP


@torch.inference_mode()
def sample(folder: Path, sentences: list[str], n: int, temperature: float, whisper: Path, threads: int) -> None:
    """Speak every sentence n times; write `candidates.safetensors` (int16 PCM) and `candidates.jsonl` in `folder`."""
    engine, judges = load_voice(folder.parent / "lm"), Judges(whisper, threads)
    audio: list[NDArray[np.int16]] = []
    lines: list[str] = []
    for sentence in sentences:
        request = SpeechRequest(text=sentence, id=sentence)
        stream = engine.open([request], n, Sampling(temperature=temperature, guidance=1.0, seed=777))
        chunk = stream.advance(engine.budget(request))
        stream.close()
        speech = engine.codec.open(1, n).decode(Chunk(chunk.frames, chunk.lengths, chunk.finished))
        for row in range(n):
            pcm = speech[row, : int(chunk.lengths[row]) * HOP].numpy()
            heard, said = judges.transcript(pcm), reference_of(sentence)
            errors = word_errors(said, heard)
            record = {"text": sentence, "heard": heard, "errors": errors, "words": len(said.words)}
            lines.append(json.dumps({**record, "finished": bool(chunk.finished[row])}))
            audio.append((pcm.clip(-1, 1) * 32767).astype(np.int16))
    folder.mkdir(parents=True, exist_ok=True)
    offsets = np.cumsum([0, *(len(part) for part in audio)], dtype=np.int64)
    save_file({"pcm": np.concatenate(audio), "offsets": offsets}, str(folder / "candidates.safetensors"))
    (folder / "candidates.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def heard_by(
    listener: Listener, text: str, readings: list[NDArray[np.float32]], finished: list[bool]
) -> dict[str, Any]:
    """The listener's last word on each reading: reward and heads, lists over the readings; and its transcripts."""
    stream = listener.open([SpeechRequest(text=text)], len(readings), SAMPLE_RATE, HOP)
    lengths = torch.tensor([len(reading) for reading in readings])
    pcm = torch.zeros(len(readings), int(lengths.max()))
    for row, reading in enumerate(readings):
        pcm[row, : len(reading)] = torch.from_numpy(reading)
    for start in range(0, pcm.shape[1], CHUNK):
        fresh = (lengths - start).clamp(0, CHUNK)
        over = (lengths <= start + CHUNK) & torch.tensor(finished)
        scores = stream.score(pcm[:, start : start + CHUNK], fresh, over)
    heads = {name: head.tolist() for name, head in scores.heads.items()}
    return {"reward": scores.reward.tolist(), "transcripts": [note["transcript"] for note in scores.notes], **heads}


def area_under_curve(rewards: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float:
    """How often a reading without error has the higher reward than one with; ties count half; NaN if all are alike."""
    gap = rewards[~wrong][:, None] - rewards[wrong][None]
    return round(float(np.mean((gap > 0) + 0.5 * (gap == 0))), 4) if gap.size else float("nan")


def report(folder: Path, listener: Listener) -> dict[str, Any]:
    """Selection figures; the word error rates are Whisper's, over all words."""
    stored = load_file(str(folder / "candidates.safetensors"))
    lines = (folder / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    offsets, pcm = stored["offsets"], stored["pcm"].astype(np.float32) / np.float32(32767)
    totals = dict.fromkeys(("mean", "first", "pick", "oracle"), 0.0)
    words, wrong, rewards = 0, [], []
    for text in dict.fromkeys(record["text"] for record in records):
        places = [place for place, record in enumerate(records) if record["text"] == text]
        errors = [records[place]["errors"] for place in places]
        readings = [pcm[offsets[place] : offsets[place + 1]] for place in places]
        heard = heard_by(listener, text, readings, [records[place]["finished"] for place in places])
        pick = int(np.argmax(heard["reward"]))
        words += records[places[0]]["words"]
        for name, value in zip(totals, (np.mean(errors), errors[0], errors[pick], min(errors)), strict=True):
            totals[name] += float(value)
        wrong += [count > 0 for count in errors]
        rewards += heard["reward"]
        for row, place in enumerate(places):
            records[place] |= {name: values[row] for name, values in heard.items()}
    (folder / "heard.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    wer = {name: round(value / words, 4) for name, value in totals.items()}
    return {
        "wer": wer,
        "auc": area_under_curve(np.asarray(rewards), np.asarray(wrong)),
        "wrong": sum(wrong),
        "candidates": len(records),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["sample", "report"])
    parser.add_argument("--folder", type=Path, default=Path("runs/builtin/listener_check"))
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("-n", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--whisper", type=Path, help="folder with Whisper base for faster-whisper")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.action == "report":
        print(json.dumps(report(arguments.folder, Listener.load(arguments.weights))))
        return
    sentences = (HERE / "devset.txt").read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    sample(arguments.folder, sentences, arguments.n, arguments.temperature, arguments.whisper, arguments.threads)


if __name__ == "__main__":
    main()
