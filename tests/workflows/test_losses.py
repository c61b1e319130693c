"""What follows when a worker went silent in the middle of a call: it is not the tool's failure, up to a limit."""

import pytest
from pydantic import JsonValue

from workflows.calls.asking import after_lost_replies
from workflows.calls.scheduling import InternalActivityFailed
from workflows.faults import retries
from workflows.faults.decision import Decision, Escalate, Reconcile, Remaining, Wait, decide
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import CompanionSpec, Effect, ToolSpec

SAFE = (Effect.READ, Effect.IDEMPOTENT, Effect.KEYED, Effect.TRANSACTIONAL)
FIND = CompanionSpec(kind="find")


def lost(effect: Applied = Applied.UNKNOWN) -> Fault:
    """An attempt that went with its worker."""
    return Fault.of(Code.WORKER_LOST, "No heartbeat came.", applied=effect, uncounted=True)


def spec(effect: Effect, *, reconcile: bool = False) -> ToolSpec:
    """A kind in one line."""
    return ToolSpec(kind="k", effect=effect, reconcile=FIND if reconcile else None, fallback="other")


@pytest.mark.parametrize("effect", SAFE)
def test_a_lost_attempt_is_made_again_although_no_attempt_is_left(effect: Effect) -> None:
    """After a wait that doubles; nothing is read first, since the repeat is safe."""
    known = Applied.NONE if effect is Effect.READ else Applied.UNKNOWN
    waits = [decide(lost(known), spec(effect), Remaining(attempts=0, losses=losses)) for losses in (1, 2, 5)]

    assert waits == [Wait(seconds=1), Wait(seconds=2), Wait(seconds=16)]


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT, Effect.KEYED, Effect.UNKEYED])
def test_what_takes_one_worker_after_the_other_with_it_is_for_a_person(effect: Effect) -> None:
    """The tool may be what kills its workers: neither a fallback nor a new plan goes round it."""
    known, left = Applied.NONE if effect is Effect.READ else Applied.UNKNOWN, retries.MAX_LOSSES + 1

    assert decide(lost(known), spec(effect), Remaining(attempts=3, losses=left, reconcile=False)) == Escalate()


@pytest.mark.parametrize(
    ("effect", "left", "then"),
    [
        (Effect.UNKEYED, Remaining(attempts=0, losses=1), Wait(seconds=1)),
        (Effect.KEYED, Remaining(attempts=3, losses=retries.MAX_LOSSES + 1), Escalate()),
    ],
    ids=["before it is made again", "before a person is asked"],
)
def test_what_can_be_found_out_is_found_out_first(effect: Effect, left: Remaining, then: Decision) -> None:
    """It may have taken effect, and a payment that stands is the result of the step, however many workers were lost."""
    one = spec(effect, reconcile=True)

    assert decide(lost(), one, left) == Reconcile()
    assert decide(lost(Applied.NONE), one, left.model_copy(update={"reconcile": False})) == then


def test_a_lost_answer_of_a_model_uses_up_what_may_be_lost() -> None:
    """A worker that dies again and again over one request does not pass the budget: more has to be reserved first.

    What a planner without limits uses is not counted: it is asked again as it was.
    """
    unlimited: list[dict[str, JsonValue]] = [{"turn": 1}, {"turn": 1, "max_lost_replies": None}]
    payload = after_lost_replies({"turn": 1, "max_lost_replies": 1}, lost(Applied.NONE), 1)
    with pytest.raises(InternalActivityFailed) as short:
        after_lost_replies(payload, lost(Applied.NONE), 1)

    assert [after_lost_replies(one, lost(Applied.NONE), 1) for one in unlimited] == unlimited
    assert (payload, short.value.fault.lost) == ({"turn": 1, "max_lost_replies": 0}, 1)


def test_a_thread_that_still_runs_is_known_to_the_task_before_the_call_is_made_again() -> None:
    """In the backoff of a retry policy a cancel would end the call, and nobody would know of the thread."""
    left = Fault.of(Code.TIMEOUT, "Late.", applied=Applied.UNKNOWN, still_running=True)

    assert not left.retryable(is_safe=True)
    assert isinstance(decide(left, spec(Effect.KEYED), Remaining(attempts=3)), Wait)
