"""One account of a task: all that read a history say the same of it, also of one that was redacted."""

import pytest

from client.explain import explanation
from client.redaction import Redaction
from tests.console.histories import NAMES, events, history
from tests.counting import check_readers, is_alike


@pytest.mark.parametrize("name", NAMES)
async def test_every_reader_says_the_same_counts(name: str) -> None:
    """Of each saved history, whose account an older workflow did not write: a replay tells it."""
    check_readers(await history(events(name)))


@pytest.mark.parametrize("name", NAMES)
async def test_a_redacted_history_explains_the_same_decisions(name: str) -> None:
    """With the same sentences, but for values."""
    told = [explanation.explain_task(await history(one)) for one in (events(name), Redaction().events(events(name)))]
    whole, redacted = ([(item.decision, item.steps, item.cost, item.events) for item in one.items] for one in told)
    said, hidden = ([sentence.text for item in one.items for sentence in item.sentences] for one in told)

    assert whole == redacted
    assert [pair for pair in zip(said, hidden, strict=True) if not is_alike(*pair)] == []


async def test_a_sentence_with_another_decision_is_not_alike() -> None:
    """The comparison can fail."""
    assert is_alike("a (pay) failed (busy): Later.", "a (pay) failed (busy): <text-3>.")
    assert not is_alike("a (pay) failed (busy): Later.", "a (pay) was rejected (conflict): <text-3>.")
