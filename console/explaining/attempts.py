"""The attempts of one call: those before the last one, what they waited, and the item that explains a retry."""

from collections.abc import Sequence

from console.call import Call, Failing
from console.explaining import words
from console.explaining.item import Cost, Item, Sentence
from workflows import routing
from workflows.faults import Code, Fault

LOST = Failing.of(Fault.of(Code.WORKER_LOST, "The worker that ran it left no word: it was probably killed."))
SILENT = (Code.WORKER_LOST, Code.TIMEOUT)
"""What the server says of an attempt that no worker told of."""


def before(call: Call) -> list[Failing]:
    """What ended each attempt before the last one."""
    known = {fault.attempt: Failing.of(fault) for fault in call.earlier}
    last = {call.attempt - 1: call.last} if call.last else {}
    silent = call.last if call.last and call.last.code in SILENT else LOST
    return [known.get(number) or last.get(number) or silent for number in range(1, call.attempt)]


def waits(call: Call) -> list[float]:
    """Seconds of backoff before each attempt but the first, as far as they are known."""
    return [fault.waited for fault in call.earlier if fault.waited is not None and fault.attempt < call.attempt]


def waited(call: Call) -> float:
    """Seconds of backoff that its retries cost, as far as they are known."""
    return sum(waits(call))


def lost(call: Call) -> float:
    """Seconds of attempts that ended without reporting, the last one included where its worker went silent."""
    return _lost_before(call) + _lost_last(call)


def _lost_last(call: Call) -> float:
    fault = call.failing.fault if call.failing else None
    if fault is None or not fault.uncounted or call.started_at is None or call.ended_at is None:
        return 0.0
    return (call.ended_at - call.started_at).total_seconds()


def _lost_before(call: Call) -> float:
    """Until the last attempt began, without the known backoffs."""
    if len(waits(call)) == max(0, call.attempt - 1) or call.started_at is None:
        return 0.0
    return max(0.0, (call.started_at - call.at).total_seconds() - waited(call))


def name(call: Call) -> str:
    """Whom a call concerns, at the beginning of a sentence."""
    if call.is_planning:
        return f"The planner (request {call.id.removeprefix('plan:')})"
    if call.kind == routing.CATALOGUE.kind:
        return "The catalogue"
    if call.is_undo:
        return f"Undoing {call.step} ({call.kind})"
    return f"{call.step} ({call.kind})"


def steps(call: Call) -> tuple[str, ...]:
    """The steps that a call concerns."""
    return () if call.is_own else (call.step,)


def retried(call: Call) -> Item:
    """Why a call that succeeded in the end took more than one attempt."""
    failings = before(call)
    first = failings[0]
    because = words.ASKED_AGAIN_BECAUSE if call.is_own else words.RETRY_BECAUSE
    why = because.get(first.quadrant, words.RETRY_ANYWAY)
    proof = tuple(event for event in (call.started, call.ended) if event)
    result = f" It returned: {words.stop(words.value(call.result))}" if call.is_step and call.result is not None else ""
    return Item(
        steps=steps(call),
        what=Sentence(text=_what(call, failings), events=proof),
        why=Sentence(text=f"{why}: {followed(call)}."),
        decision="retry",
        then=(Sentence(text=f"Attempt {call.attempt} succeeded.{result}", events=proof[-1:]),),
        cost=Cost(failed_attempts=len(failings), waited=waited(call), lost=lost(call)),
    )


def _what(call: Call, failings: Sequence[Failing]) -> str:
    if not words.same(failings):
        return f"{name(call)} failed {words.times(len(failings))}: {words.counted(failings)}."
    return f"{name(call)} {words.failed_as(failings[0], words.times(len(failings)))}"


def followed(call: Call) -> str:
    """Which attempts followed, and after which waits."""
    numbers = words.listed(str(number) for number in range(2, call.attempt + 1))
    attempts = f"attempt{'s' if call.attempt > 2 else ''} {numbers} followed"
    if len(waits(call)) == call.attempt - 1:
        return f"{attempts} after {words.listed(map(words.seconds, waits(call)))}"
    last = "" if call.attempt == 2 else ", the last one"
    if call.started_at is None:
        return attempts
    return (
        f"{attempts}{last} {words.seconds((call.started_at - call.at).total_seconds())} after the first was scheduled"
    )
