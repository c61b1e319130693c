"""The waste receipt of a task: what its faults cost, and what Replan kept them from costing, each with its events."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from client.explain.words import Sentence, listed
from client.history.records import Call, CallEnd, Event
from client.history.story import Story
from client.receipt import by_call, counts
from client.wording import count
from workflows import measures
from workflows.measures import Metric

PURPOSES = (measures.PLANNING, measures.CORRECTING, measures.SUMMARISING, measures.STEPS, measures.LOST)


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True)

    events: tuple[Event, ...] = ()
    """The events of the calls that are counted."""

    def document(self) -> dict[str, Any]:
        return {**self.model_dump(exclude={"events"}), "events": [event.id for event in self.events]}


class Tally(_Line):
    number: int = 0


class Paid(_Line):
    tokens: int = 0
    usd: float = 0.0
    """US dollars, as far as prices are known."""


class Receipt(BaseModel):
    model_config = ConfigDict(frozen=True)

    wasted: Tally
    """Attempts that could not have helped: each followed a persistent fault of the same call."""
    helped: Tally
    """Retries of calls that the same tool completed in the end."""
    not_helped: Tally
    """The other retries."""
    replayed: Tally
    """Results that a ledger returned again instead of a second effect."""
    reconciled: Tally
    """Calls that seemed to have failed and were found applied, so that they were not repeated."""
    not_made: Tally
    """Activity executions that made no call, since the circuit breaker of the tool was open."""
    paid: dict[str, Paid]
    """What models were paid for, by purpose (PURPOSES)."""

    def document(self) -> dict[str, Any]:
        tallies = {name: getattr(self, name).document() for name in type(self).model_fields if name != "paid"}
        return {**tallies, "paid": {purpose: one.document() for purpose, one in self.paid.items()}}


def receipt_of(story: Story) -> Receipt:
    """The waste receipt of a task; before its end, of the calls that have ended."""
    found = [(call, one) for call, samples in by_call(story.history) for one in samples if one.value]
    sums = counts(story.history)
    paying = [(call, one.labels[0]) for call, one in found if one.metric is measures.TOKENS]
    paying += [(call, measures.LOST) for call in story.history.calls if call.earlier or call.closed is CallEnd.FAILED]
    applied = sum(sums[one] for one in sums if one[0] is measures.REPLAYED_RESULTS and one[1][1] == "reconciled")

    def tally(metric: Metric, *, has_helped: bool | None = None) -> Tally:
        calls = [call for call, one in found if one.metric is metric]
        return _tally([call for call in calls if has_helped in (None, is_completed(story, call))])

    return Receipt(
        wasted=tally(measures.WASTED_ATTEMPTS),
        helped=tally(measures.RETRIES, has_helped=True),
        not_helped=tally(measures.RETRIES, has_helped=False),
        replayed=tally(measures.REPLAYED_RESULTS),
        reconciled=Tally(
            number=applied, events=_events(call for call in (*story.done, *story.undone) if call.is_reconcile)
        ),
        not_made=tally(measures.CIRCUIT_OPEN),
        paid={
            purpose: Paid(
                tokens=sums[measures.TOKENS, (purpose,)],
                usd=sums[measures.COST, (purpose,)] / measures.MICRO,
                events=_events(call for call, of in paying if of == purpose),
            )
            for purpose in PURPOSES
            if sums[measures.TOKENS, (purpose,)]
        },
    )


def is_completed(story: Story, call: Call) -> bool:
    """Whether a call, or its repetition by the same tool, was completed, so that its retries helped."""
    return any(
        one.closed is CallEnd.COMPLETED and one.kind == call.kind for one in story.history.calls if one.id == call.id
    )


def _tally(calls: Sequence[Call]) -> Tally:
    return Tally(number=len(calls), events=_events(calls))


def _events(calls: Iterable[Call]) -> tuple[Event, ...]:
    return tuple(sorted({event for call in calls for event in call.events[-1:]}))


def sentences(receipt: Receipt, *, has_faults: bool) -> Iterator[Sentence]:
    """The receipt in sentences, without what is zero; wasted attempts are named wherever steps met faults."""
    number = receipt.helped.number + receipt.not_helped.number
    if has_faults or number or receipt.wasted.number:
        helped = f" ({receipt.helped.number} helped)" if number else ""
        text = f"Retries of tools: {number}{helped}; wasted attempts: {receipt.wasted.number}."
        yield _sentence(text, receipt.helped, receipt.not_helped, receipt.wasted)
    prevented = {
        count(receipt.replayed.number, "recorded result returned", "recorded results returned"): receipt.replayed,
        count(receipt.reconciled.number, "call found applied", "calls found applied"): receipt.reconciled,
    }
    if any(one.number for one in prevented.values()):
        text = f"Duplicates prevented: {listed(text for text, one in prevented.items() if one.number)}."
        yield _sentence(text, *prevented.values())
    if receipt.not_made.number:
        text = f"Calls not made while a circuit breaker was open: {receipt.not_made.number}."
        yield _sentence(text, receipt.not_made)
    if receipt.paid:
        paid = (f"{purpose} {paid_words(one.tokens, one.usd)}" for purpose, one in receipt.paid.items())
        yield _sentence(f"Paid to models: {listed(paid)}.", *receipt.paid.values())


def paid_words(tokens: int, usd: float) -> str:
    return f"{tokens:,} tokens{f' for {usd:.4f} USD' if usd else ''}"


def _sentence(text: str, *lines: _Line) -> Sentence:
    events = sorted({event for one in lines for event in one.events})
    # A citation names the events of one run only.
    return Sentence(text=text, events=tuple(event for event in events if event.run == events[-1].run))
