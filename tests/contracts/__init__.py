"""The ten laws of docs/design.md as functions: each raises `AssertionError` where an engine, codec or scorer breaks it.

A test module makes a `Subject` and inherits from `Laws`:

    class TestMine(Laws):
        @pytest.fixture
        def subject(self) -> Subject:
            return Subject(engine=MyEngine.tiny(), scorer=MyScorer(), requests=[...])

`CodecLaws` and `ScorerLaws` do with a codec or a scorer alone. Knows no model.
"""

from tests.contracts.subject import Subject
from tests.contracts.suites import CodecLaws, Laws, ScorerLaws

__all__ = ["CodecLaws", "Laws", "ScorerLaws", "Subject"]
