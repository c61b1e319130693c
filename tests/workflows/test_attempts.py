"""What the attempts of one call come to."""

import pytest

from workflows.calls.attempts import AttemptTally
from workflows.faults.fault import Code, Fault


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_call_that_was_not_made_has_used_nothing_and_lost_no_worker(*, is_lost: bool) -> None:
    """An attempt whose worker was lost is counted apart: it takes none of those that may help a service."""
    tally = AttemptTally()
    before = (tally.used, tally.losses, tally.waits, tally.waited)
    tally.count(Fault.of(Code.WORKER_LOST, "No heartbeat came.", uncounted=is_lost))

    assert (before, tally.losses, tally.waits) == ((0, 0, 0, 0.0), is_lost, 0)
