"""How it was found out whether a call had happened that might have, and what was found."""

from collections.abc import Iterator
from dataclasses import dataclass

from console.call import Call, Closed
from console.explaining import following, words
from console.explaining.item import Cost, Decision, Sentence
from console.explaining.story import Story
from console.history import Timer
from workflows import routing
from workflows.faults import Code
from workflows.reconciling import Verdict
from workflows.record import FaultRecord

SO: dict[Decision, str] = {
    "wait": ", so the call could be made again",
    "fallback": ", so another kind could take over",
    "replan": ", so a new plan could be made",
}
"""What follows from it that a call did not happen."""


@dataclass(frozen=True)
class Inquest:
    """The looks for the effect of a call, the timers between them, and what was found."""

    looks: tuple[Call, ...]
    timers: tuple[Timer, ...]
    verdict: Verdict | None
    """None while it is not known."""

    @property
    def cost(self) -> Cost:
        """What it took to find out."""
        waited = sum(timer.seconds for timer in self.timers if timer.fired)
        return Cost(observations=sum(max(1, look.attempt) for look in self.looks), waited=waited)

    def sentences(self, decision: Decision) -> tuple[Sentence, ...]:
        """What was asked, and what came of it, in order."""
        told = [(look.scheduled, _asked(look)) for look in self.looks]
        told += [(timer.started, _settled(timer)) for timer in self.timers]
        return (*(sentence for _, sentence in sorted(told, key=lambda one: one[0])), *self._found(decision))

    def _found(self, decision: Decision) -> Iterator[Sentence]:
        match self.verdict:
            case Verdict.APPLIED:
                text = "It had happened: its result was found, nothing was done again."
            case Verdict.NOT_APPLIED:
                text = f"It had not happened{SO.get(decision, '')}."
            case Verdict.CANNOT_TELL if decision == "escalate":
                text = "It could not be found out: a person has to look."
            case Verdict.CANNOT_TELL:
                text = "It could not be found out, and a second time would do no harm."
            case None:
                return
        yield Sentence(text=text, events=self.looks[-1].events if self.looks else ())


def of(story: Story, call: Call, record: FaultRecord | None = None) -> Inquest | None:
    """What was done to find out about a call that ended; None where nothing was."""
    after, following_call = call.ended or call.scheduled, following.next_call(story, call)
    until = following_call.scheduled if following_call else None
    looks = tuple(
        look
        for look in story.history.reconciles(call.owner)
        if look.scheduled > after and (until is None or look.scheduled < until)
    )
    timers = tuple(
        timer
        for timer in story.history.timers
        if following.is_settling(timer, call) and timer.started > after and (until is None or timer.started < until)
    )
    same = [one for one in story.history.of_step(call.owner) if one.kind == call.kind]
    outlived = any(one.outlived for one in same if one.scheduled <= call.scheduled)
    recorded = Verdict(record.reconciled) if record and record.reconciled else None
    if not looks and recorded is None:
        return None
    return Inquest(looks, timers, _verdict(looks, timers, outlived=outlived) if looks else recorded)


def never_happened(story: Story) -> list[str]:
    """The steps of which a rollback of their closed task found that they had not happened."""
    looks = dict[str, tuple[Call, ...]]()
    for call in story.history.calls:
        if call.is_reconcile and not story.history.of_step(call.owner):
            looks[call.owner] = (*looks.get(call.owner, ()), call)
    found = {
        id: _verdict(made, tuple(timer for timer in story.history.timers if following.is_settling(timer, made[-1])))
        for id, made in looks.items()
    }
    return [id for id, verdict in found.items() if verdict is Verdict.NOT_APPLIED]


def _verdict(looks: tuple[Call, ...], timers: tuple[Timer, ...], *, outlived: bool = False) -> Verdict | None:
    """What the last look says; that it found nothing counts only when no other one is waited for.

    Where a thread of the call `outlived` its attempt, that counts never.
    """
    last = looks[-1]
    match last.closed:
        case Closed.COMPLETED:
            return Verdict.APPLIED
        case Closed.FAILED if last.failing and last.failing.code is Code.NOT_FOUND and not outlived:
            return None if any(timer.started > last.scheduled for timer in timers) else Verdict.NOT_APPLIED
        case Closed.FAILED:
            return Verdict.CANNOT_TELL
        case _:
            return None


def _asked(look: Call) -> Sentence:
    who = "The ledger" if look.kind == routing.FIND_EFFECT.kind else look.kind
    asked = f"{who} was asked whether it had happened, and"
    if look.closed is Closed.COMPLETED:
        text = f"{asked} had it: {words.stop(words.value(look.result))}"
    elif look.failing is None:
        text = f"{asked} {'was stopped' if look.closed else 'has not answered yet'}."
    elif look.failing.code is Code.NOT_FOUND:
        text = f"{asked} found nothing."
    else:
        text = f"{asked} {words.failed_as(look.failing)}"
    return Sentence(text=text, events=look.events)


def _settled(timer: Timer) -> Sentence:
    state = "" if timer.fired else " (the timer was stopped)" if timer.ended else " (it is still waiting)"
    text = f"It waited {words.seconds(timer.seconds)} on a timer{state}, until no attempt could be under way any more."
    return Sentence(text=text, events=tuple(event for event in (timer.started, timer.ended) if event))
