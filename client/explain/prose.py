"""The parts of an explanation (Item, Sentence, Cost), and functions that put causes, values and numbers into words.

Used while an explanation is made; some of the words also when other commands print.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, InstanceOf, JsonValue

from client.history.records import AttemptFailure, Call, Event
from client.history.story import ReplacedStep
from client.remedy import Door, Remedy, Text, in_python, render
from client.text import one_line
from client.wording import times
from workflows.faults import retries
from workflows.faults.decision import Action, what_follows
from workflows.faults.fault import Code, Fault, Quadrant
from workflows.ids import rollback_id
from workflows.json_values import canonical
from workflows.plans.references import is_reference, label
from workflows.text import capitalised, service_words, shorten


class Sentence(BaseModel, frozen=True):
    """A sentence, and the events that prove it."""

    text: InstanceOf[str]
    """A plain str, or a Text with remedies."""
    events: tuple[Event, ...] = ()


class Cost(BaseModel, frozen=True):
    failed_attempts: int = 0
    """The number of attempts that ended in a fault."""
    observations: int = 0
    """The number of attempts of reads: they observed the world, or found out whether a call was applied."""
    planning_calls: int = 0
    """The number of requests to the planner that a fault or a rejected proposal made necessary."""
    waited: float = 0.0
    """Seconds that the task waited in backoffs and timers."""
    lost: float = 0.0
    """Seconds in attempts that ended without a response."""
    held: float = 0.0
    """Seconds that operators held calls back, as with `temporal activity pause`, if workers reported it."""
    unattended: float = 0.0
    """Seconds in which no worker took a scheduled workflow task or activity."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(**{name: getattr(self, name) + getattr(other, name) for name in Cost.model_fields})


Part = Sentence | Cost
"""What is said of what followed a decision, and what it cost."""


def said(text: str, *events: Event | None) -> Sentence:
    """The sentence with those of the events that have happened."""
    return Sentence(text=text, events=tuple(event for event in events if event))


class Item(BaseModel, frozen=True):
    """One deviation from the plan, explained."""

    steps: tuple[str, ...] = ()
    """The ids of the steps that the deviation concerns; empty if it concerns the whole task."""
    what: Sentence
    why: Sentence | None = None
    decision: Action
    then: tuple[Sentence, ...] = ()
    cost: Cost = Cost()

    @classmethod
    def of(cls, what: Sentence, why: str, decision: Action, *parts: Part, steps: Iterable[str] = ()) -> "Item":
        """The item with the sentences and the costs of what followed; `why` is empty if there is nothing to say."""
        then = tuple(part for part in parts if isinstance(part, Sentence))
        cost = sum((part for part in parts if isinstance(part, Cost)), Cost())
        because = said(why) if why else None
        return cls(steps=tuple(steps), what=what, why=because, decision=decision, then=then, cost=cost)

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return (self.what, *((self.why,) if self.why else ()), *self.then)

    @property
    def events(self) -> list[Event]:
        return sorted({event for part in self.sentences for event in part.events})

    @property
    def at(self) -> Event:
        """The event that made the deviation known: the newest event that `what` cites."""
        return max(self.what.events, default=Event(1, 1))

    def document(self, door: Door = in_python) -> dict[str, Any]:
        """The item as JSON; its `events` are ids in the run number `run`, and events of other runs are left out."""
        run = self.at.run
        return {
            "what": render(self.what.text, door),
            "why": render(self.why.text, door) if self.why else None,
            "decision": self.decision,
            "then": [render(part.text, door) for part in self.then],
            "steps": list(self.steps),
            "cost": self.cost.model_dump(),
            "run": run,
            "events": [event.id for event in self.events if event.run == run],
        }


MAX_VALUE = 90
"""Characters to which a result or an observation is cut."""
MAX_REASON = 300
"""Characters to which the reason of a fault or of an ending is cut."""

RETRY_BECAUSE: Mapping[tuple[bool, Quadrant | None], str] = {
    (False, Quadrant.TRANSIENT_INFRASTRUCTURAL): "The connection to the tool failed, not the call itself",
    (False, Quadrant.TRANSIENT_SEMANTIC): "The tool was busy",
    (True, Quadrant.TRANSIENT_INFRASTRUCTURAL): "No answer came back",
    (True, Quadrant.TRANSIENT_SEMANTIC): "The answer was to try later",
}
"""Why a call was made again, by whether it is Replan's own, and by the quadrant of the fault."""
RETRY_ANYWAY = "The fault counts as transient"
INTERRUPTED_BECAUSE = "The call was stopped by an operator, which is no fault of the call, so it was made again"
UNBLAMED = "which is no fault of the call, so it does not count as an attempt"
WAIT_BECAUSE: Mapping[Code | None, str] = {
    Code.CIRCUIT_OPEN: "The circuit breaker of the tool is open, so no call is made, and no attempt is used",
    Code.MISSING_TOOL: "No worker knew the kind; a worker that knows it may be starting, as in a deploy",
    Code.WORKER_SHUTDOWN: f"The worker was stopped during the call, {UNBLAMED}",
    **dict.fromkeys((Code.RATE_LIMITED, Code.BUSY), "The tool asked for a longer wait than a retry makes"),
    Code.STORE_UNAVAILABLE: f"The store was not available before anything was done, {UNBLAMED}",
}
WAIT_FOR_SERVICE = "The service is down, or limits its callers, so the call waits for its turn"
WAIT_AFTER_TRIAL = (
    "It was a trial call, and found the service still down, or still limiting its callers, so it does not count as an "
    "attempt"
)
WAIT_BECAUSE_LOST = (
    "The worker died or froze during the call, so it does not count as an attempt of the tool; up to "
    f"{retries.MAX_LOSSES} such calls are repeated"
)
WAIT_ANYWAY = "The fault is transient, and the step had attempts left"
WAIT_FOR_PLANNER = (
    "The planner may answer later, and the task cannot go on without it, so it is asked again for up to a day"
)
TOO_LITTLE_LEFT = (
    "A lost reply counts as all that was reserved for it, so the budget did not cover the same request once more"
)

UNCALLED_BECAUSE: Mapping[Code | None, str] = {
    Code.REJECTED: "A person rejected the call, so it was not made",
    Code.REPEATED_CALL: "The same call had failed before and nothing had changed since, so it was not made",
    Code.INVALID_INPUT: "Its arguments could not be made from the results that it refers to, so nothing was called",
}
UNCALLED_ANYWAY = "Nothing was called"


def failed_as(failing: AttemptFailure, often: str = "") -> str:
    """How an attempt failed: `was rejected (conflict): 14:00 is taken.`; `often`, such as `twice`, follows the verb."""
    if failing.code is Code.NEEDS_APPROVAL:
        return f"was not called at first: {reason(failing)}"
    if failing.code is Code.REJECTED:  # by a person
        return f"was not called: {reason(failing)}"
    verb = {
        Quadrant.PERSISTENT_SEMANTIC: "was rejected",
        Quadrant.TRANSIENT_SEMANTIC: "was told to wait",
    }.get(failing.quadrant or Quadrant.TRANSIENT_INFRASTRUCTURAL, "failed")
    return f"{verb}{often and ' ' + often} ({code(failing)}): {reason(failing)}"


def code(failing: AttemptFailure) -> str:
    """The code of the fault and, if it was guessed, its source; without a readable code, the quadrant or `unknown`."""
    if failing.fault and failing.fault.guessed:
        return f"{failing.fault.code.value}, guessed from {shorten(one_line(failing.fault.guessed), MAX_REASON)}"
    if failing.code:
        return failing.code.value
    return failing.quadrant.value.replace("_", " ") if failing.quadrant else "unknown"


def reason(failing: AttemptFailure) -> str:
    return sentence(failing.reason or "no reason is recorded")


def observed(failing: AttemptFailure) -> str:
    """What was observed with the fault, as ` Observed: free: 14:30, 15:00.`, and the service's words; else empty.

    The words are left out if the observation shows them.
    """
    if failing.fault is None:
        return ""
    observation = failing.fault.observed
    shown = "" if observation is None else f" Observed: {stop(value(observation))}"
    words = one_line(failing.fault.words)
    return shown if not words or words in shown else f"{shown} {stop(one_line(service_words(words)))}"


def why_doubted(failing: AttemptFailure, *, is_over: bool) -> str:
    """Why it had to be found out whether a call was applied; `is_over` is True if this was found out."""
    that = "that was found out" if is_over else "that has to be found out"
    # An exception of the tool is no rejection.
    if failing.quadrant and not failing.quadrant.is_transient and failing.code is not Code.BUG:
        return f"An earlier attempt may have been applied and have caused this: {that} before the rejection counts"
    return f"The outcome of the call was unknown: {that} before anything else"


def follows(
    decision: str,
    failing: AttemptFailure | None,
    reconciled: str | None = None,
    *,
    in_turns: bool = False,
    is_over: bool = False,
) -> str:
    """Why a decision was made and what follows, without a full stop; the arguments are as for `what_follows`."""
    fault = failing.fault if failing else None
    quadrant = (failing.quadrant if failing else None) or Quadrant.PERSISTENT_INFRASTRUCTURAL
    known = fault or Fault(quadrant=quadrant, code=Code.BUG, reason="")  # one that cannot be read
    clauses = what_follows(decision, known, reconciled, in_turns=in_turns, is_over=is_over)
    return capitalised(": ".join(filter(None, clauses)))


def not_waiting(then: str) -> Text:
    """The sentence about a task that did not ask a person, since its `on_escalation` forbids it; `then` ends it."""
    return Text.of("The task was not to wait for a person (`{on_escalation}`), {then}", then=then)


def rolled_back(task: str, stands: str) -> Text:
    """The sentence about the rollback of a closed task; `stands` is the rollback's status, in lower case."""
    how = {
        "running": "is being undone",
        "completed": "was undone completely after its end",
        "failed": "was undone after its end, but some effects stay",
    }.get(stands, f"was to be undone after its end, but that was {stands.replace('_', ' ')}")
    return Text(f"What it did {how} (workflow {rollback_id(task)}): ", Remedy("effects", task), " says what stands.")


def hold(call: Call) -> str:
    """How long an operator held a call back: `an operator held it back for 18.4 s (pause or reset)`."""
    return f"an operator held it back for {seconds(call.held)} (pause or reset)"


def sentence(*texts: str) -> str:
    """Untrusted texts as one sentence: each text is cut, all are on one line, with a full stop."""
    return stop("; ".join(shorten(one_line(text), MAX_REASON) for text in texts))


def value(data: JsonValue, width: int = MAX_VALUE) -> str:
    """A result or an observation in at most `width` characters: `free: 14:30, 15:00`."""
    match data:
        case [_, *_]:
            text = ", ".join(map(_as_text, data))
        case dict() if len(data) == 1 and "$from" not in data:
            name, item = next(iter(data.items()))
            text = f"{name}: {value(item, width)}"
        case dict() if data and "$from" not in data:
            text = ", ".join(f"{name}: {_as_text(item)}" for name, item in data.items())
        case _:
            text = _as_text(data)
    return shorten(one_line(text), width)


def stop(text: str) -> str:
    """The text with a full stop, unless it ends with `.`, `!`, `?`, or the `…` of a text that was cut."""
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def call_args(args: Mapping[str, JsonValue]) -> str:
    """Arguments in at most 50 characters: `day=2026-11-23, at=14:00`."""
    return shorten(one_line(", ".join(f"{name}={_as_text(item)}" for name, item in args.items())), 50)


def _as_text(data: JsonValue) -> str:
    match data:
        case dict() if is_reference(data):
            return label(data)
        case dict():
            return f"{{{', '.join(f'{name}: {_as_text(item)}' for name, item in data.items())}}}"
        case list():
            return f"[{', '.join(map(_as_text, data))}]"
        case str():
            return data or '""'
        case _:
            return canonical(data)


def differences(change: ReplacedStep) -> str:
    """The differences of a changed step: `at: 14:00 -> 14:30, needs: a -> b`."""
    names = ((one_line(name), was) for name, was in change.differences)
    return ", ".join(f"{name}: {value(was.before, 40)} -> {value(was.after, 40)}" for name, was in names)


def same(failings: Sequence[AttemptFailure]) -> bool:
    """Whether all failures have the same code and the same reason."""
    return len({(code(failing), failing.reason) for failing in failings}) == 1


def counted(failings: Sequence[AttemptFailure]) -> str:
    """Several faults in one clause: `server_error twice (503.), timeout once (No answer.)`."""
    number, last = Counter(map(code, failings)), {code(failing): failing for failing in failings}
    return ", ".join(f"{name} {times(number[name])} ({reason(failing)})" for name, failing in last.items())


def listed(items: Iterable[str], limit: int = 12) -> str:
    """`a`, `a and b`, `a, b and c`; words after the first `limit` are only counted."""
    all = [one_line(word) for word in items]
    if len(all) > limit:
        return f"{', '.join(all[:limit])} and {len(all) - limit} more"
    return " and ".join(filter(None, [", ".join(all[:-1]), *all[-1:]]))


def moment(when: datetime) -> str:
    """A time in UTC: `2026-11-21 10:15:31Z`."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def seconds(number: float) -> str:
    """A duration: `0.19 s`, `12.3 s`, `2 h 5 min`."""
    if number < 10:
        return f"{number:.2f} s"
    if number < 120:
        return f"{number:.1f} s"
    minutes = round(number / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
