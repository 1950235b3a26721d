"""The laws as test classes to inherit from."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from search import SpeechRequest
from search.protocols import Codec, Scorer
from tests.contracts.failures import failures_lose_nothing
from tests.contracts.forks import (
    a_fork_moves_every_part,
    futures_follow_the_parent,
    identity_forks_copy_nothing,
    opened_codec,
    opened_engine,
    opened_scorer,
    permutations_are_undone,
    unknown_state_raises,
)
from tests.contracts.searches import (
    each_prompt_is_read_once,
    one_candidate_is_plain_sampling,
    rows_are_nested_and_strangers,
    searches_are_strangers,
    segments_are_the_audio,
)
from tests.contracts.subject import Subject
from tests.contracts.walks import codec_streams_what_it_decodes, scorer_hears_only_the_row
from tests.contracts.work import codec_work_does_not_grow, engine_work_does_not_grow, scorer_work_does_not_grow


class CodecLaws:
    """Laws that a codec can be held to alone. Needs the fixtures `codec` and `pool` (frames [P, ...])."""

    tolerance = 0.0
    examples = 25

    def test_law_2_streamed_audio_is_the_offline_decode(self, codec: Codec, pool: Tensor) -> None:
        codec_streams_what_it_decodes(codec, pool, self.examples, self.tolerance)

    def test_law_3_a_fork_moves_every_part_of_the_state(self, codec: Codec, pool: Tensor) -> None:
        a_fork_moves_every_part(opened_codec(codec, pool), self.examples)

    def test_law_7_an_identity_fork_copies_nothing(self, codec: Codec, pool: Tensor) -> None:
        identity_forks_copy_nothing(opened_codec(codec, pool))

    def test_law_7_a_permutation_and_its_inverse_restore_the_state(self, codec: Codec, pool: Tensor) -> None:
        permutations_are_undone(opened_codec(codec, pool), self.examples)

    def test_law_8_unknown_state_raises(self, codec: Codec, pool: Tensor) -> None:
        unknown_state_raises(opened_codec(codec, pool))

    def test_law_9_work_does_not_grow(self, codec: Codec, pool: Tensor) -> None:
        codec_work_does_not_grow(codec, pool)


class ScorerLaws:
    """Laws that a scorer can be held to alone. Needs the fixtures `scorer`, `requests`, `pcm` (float32 [S]), `rate`."""

    hop = 8
    tolerance = 0.0
    examples = 15

    def test_laws_3_and_5_a_row_is_judged_as_if_alone(
        self, scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int
    ) -> None:
        scorer_hears_only_the_row(scorer, requests, pcm, rate, self.hop, self.examples, self.tolerance)

    def test_law_3_a_fork_moves_every_part_of_the_state(
        self, scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int
    ) -> None:
        a_fork_moves_every_part(opened_scorer(scorer, requests, pcm, rate, self.hop), self.examples)

    def test_law_7_an_identity_fork_copies_nothing(
        self, scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int
    ) -> None:
        identity_forks_copy_nothing(opened_scorer(scorer, requests, pcm, rate, self.hop))

    def test_law_7_a_permutation_and_its_inverse_restore_the_state(
        self, scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int
    ) -> None:
        permutations_are_undone(opened_scorer(scorer, requests, pcm, rate, self.hop), self.examples)

    def test_law_8_unknown_state_raises(
        self, scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int
    ) -> None:
        unknown_state_raises(opened_scorer(scorer, requests, pcm, rate, self.hop))

    def test_law_9_work_does_not_grow(
        self, scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int
    ) -> None:
        scorer_work_does_not_grow(scorer, requests, pcm, rate, self.hop)


class Laws:
    """All ten, on an engine with its codec and a scorer. Needs the fixture `subject`."""

    def test_law_1_segments_are_the_audio(self, subject: Subject) -> None:
        segments_are_the_audio(subject)

    def test_law_2_streamed_audio_is_the_offline_decode(self, subject: Subject) -> None:
        codec_streams_what_it_decodes(subject.engine.codec, subject.pool(), subject, subject.pcm_tolerance)

    def test_law_3_a_future_follows_from_the_parent(self, subject: Subject) -> None:
        futures_follow_the_parent(subject)

    def test_law_3_a_fork_moves_every_part_of_the_engine_state(self, subject: Subject) -> None:
        a_fork_moves_every_part(opened_engine(subject), subject)

    def test_law_4_one_candidate_is_plain_sampling(self, subject: Subject) -> None:
        one_candidate_is_plain_sampling(subject)

    def test_law_5_rows_are_nested_and_strangers(self, subject: Subject) -> None:
        rows_are_nested_and_strangers(subject)

    def test_law_5_searches_are_strangers(self, subject: Subject) -> None:
        searches_are_strangers(subject)

    def test_law_6_each_prompt_is_read_once(self, subject: Subject) -> None:
        each_prompt_is_read_once(subject)

    def test_law_7_an_identity_fork_copies_nothing(self, subject: Subject) -> None:
        identity_forks_copy_nothing(opened_engine(subject))

    def test_law_7_a_permutation_and_its_inverse_restore_the_state(self, subject: Subject) -> None:
        permutations_are_undone(opened_engine(subject), subject)

    def test_law_8_unknown_state_raises(self, subject: Subject) -> None:
        unknown_state_raises(opened_engine(subject))

    def test_law_9_work_does_not_grow(self, subject: Subject) -> None:
        engine_work_does_not_grow(subject)

    def test_law_10_failures_lose_nothing(self, subject: Subject) -> None:
        failures_lose_nothing(subject)
