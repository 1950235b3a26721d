"""`make demo`: one sentence by search with eight candidates beside plain sampling, to read, hear and compare.

Knows the built-in voice and the folder `demo/`; everything else is what `chunksearch say --report` uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from engine.registry import load_engine
from experiments.commands.outcome import described
from experiments.commands.reading import Reading
from experiments.commands.summary import shown, summary
from experiments.report.files import prepared_folder, write_report
from scorers.registry import load_scorer
from search import ChunkSearch, SearchConfig, SpeechRequest
from search.record import write_wav

TEXT = "The early train was full, so we walked along the river and talked about the summer instead."
FOLDER = Path("demo")


def main(text: str = TEXT, folder: Path = FOLDER, voice: str = "builtin") -> int:
    """Speak, print both transcripts, write the audio and a page that compares them."""
    console = Console(highlight=False)
    prepared_folder(folder)
    reading = Reading(ChunkSearch(load_engine(voice), load_scorer(voice)), record=True)
    request = SpeechRequest(text=text)
    with console.status("speaking"):
        takes = [
            reading.speak(request, SearchConfig(n=1), "N = 1, plain sampling"),
            reading.speak(request, SearchConfig(n=8), "N = 8, search"),
        ]
    for take in takes:
        write_wav(folder / f"speech-n{take.result.config.n}.wav", take.result.audio, take.result.sample_rate)
    write_report(folder, [takes], summary(reading, None))
    console.print(f"asked for:\n  {text}", markup=False)
    for take in takes:
        cost, score = take.result.performance, take.final_score
        console.print(f"\n{take.label}, heard by the listener:\n  {score.get('transcript', '')}", markup=False)
        console.print(
            f"  audio {take.result.seconds:.2f} s, real-time factor {shown(cost['search_rtf'])}, "
            f"first commit {shown(cost['first_commit_seconds'])} s, reward {shown(score.get('reward'), '{:.3g}')}",
            style="dim",
            markup=False,
        )
    console.print(f"\nhear and compare: {folder / 'index.html'}", markup=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        sys.exit(f"demo: {described(error)}")
