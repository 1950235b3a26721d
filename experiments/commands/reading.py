"""Reading aloud: one search a sentence, its audio handed on as it becomes final.

Knows nothing about options, files or the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.commands.sinks import Sink
from experiments.report.recorder import Recorder, Take
from search import ChunkSearch, Commit, SearchConfig, SpeechRequest
from search.record import Candidates

PAUSE_SECONDS = 0.3
"""Silence between two sentences, beside what each of them brings along."""


@dataclass
class Reading:
    """A text being read, sentence after sentence.

    Attributes:
        sinks: where the audio goes, in order, with a pause between sentences.
        watch: called with every step, for a display of progress.
        record: keep all candidates, at the price of memory.
        takes: one a sentence so far; the last may be partial after an error.
        samples: handed to the sinks so far.
    """

    search: ChunkSearch
    sinks: Sequence[Sink] = ()
    watch: Callable[[Candidates], object] | None = None
    record: bool = False
    takes: list[Take] = field(default_factory=list)
    samples: int = 0

    def speak(self, request: SpeechRequest, config: SearchConfig, label: str = "") -> Take:
        """Search one sentence. On an error or Ctrl-C the take keeps what was committed before."""
        recorder, commits = Recorder(), list[Commit]()

        def on_step(candidates: Candidates) -> None:
            if self.record:
                recorder(candidates)
            if self.watch is not None:
                self.watch(candidates)

        stream = self.search.stream(request, config, on_step=on_step)
        try:
            with stream:
                for commit in stream:
                    commits.append(commit)
                    self._hand_on(commit)
        finally:
            take = Take(label, stream.result, commits, recorder.steps)
            self.takes.append(take)
        return take

    def _hand_on(self, commit: Commit) -> None:
        audio = commit.segment
        if self.samples and not commit.start_frame:
            audio = np.concatenate([np.zeros(round(PAUSE_SECONDS * self.search.engine.sample_rate), np.float32), audio])
        for sink in self.sinks:
            sink.write(audio)
        self.samples += len(audio)
