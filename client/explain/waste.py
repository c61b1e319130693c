"""The waste receipt of a task: what its faults cost, and which costs Replan prevented, each with its events.

Made when a task is explained, and when its JSON document is written.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from client.explain.prose import Sentence, listed
from client.history.records import Call, Event
from client.history.story import Story
from client.wording import count
from workflows.account import metrics
from workflows.account.entries_of_steps import Settled

PURPOSES = (metrics.PLANNING, metrics.CORRECTING, metrics.SUMMARISING, metrics.STEPS, metrics.LOST)


class _ReceiptLine(BaseModel, frozen=True):
    events: tuple[Event, ...] = ()
    """The events of the calls that are counted."""

    def document(self) -> dict[str, Any]:
        return {**self.model_dump(exclude={"events"}), "events": [event.id for event in self.events]}


class Tally(_ReceiptLine):
    """A number of attempts, retries, results or calls, with their events."""

    number: int = 0


class Paid(_ReceiptLine):
    """What was paid to models for one purpose, with the events of the calls."""

    tokens: int = 0
    usd: float = 0.0
    """US dollars, as far as prices are known."""


class Receipt(BaseModel, frozen=True):
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
        return {**tallies, "paid": {purpose: tally.document() for purpose, tally in self.paid.items()}}


def receipt_of(story: Story) -> Receipt:
    """The waste receipt of a task; for a running task, it covers the calls that have ended."""
    counts = story.account.counts or {}
    tools = [call for call in story.history.calls if not call.is_own]
    settled = [(entry, call) for entry, call in story.happened if isinstance(entry, Settled) and call]
    retried = [(entry, call) for entry, call in settled if entry.retried and not call.is_own]
    tokens, cost = (metrics.counted(counts, metric) for metric in (metrics.TOKENS, metrics.COST))

    def tally(number: int, calls: Iterable[Call]) -> Tally:
        return Tally(number=number, events=_events(calls) if number else ())

    retries, helpful = (metrics.total(counts, metric) for metric in (metrics.RETRIES, metrics.HELPED_RETRIES))
    results = Counter[str]()
    for (_, how), number in metrics.counted(counts, metrics.REPLAYED_RESULTS).items():
        results[how] += number
    return Receipt(
        wasted=tally(metrics.total(counts, metrics.WASTED_ATTEMPTS), (call for entry, call in retried if entry.wasted)),
        helped=tally(helpful, (call for entry, call in retried if entry.is_done)),
        not_helped=tally(retries - helpful, (call for entry, call in retried if not entry.is_done)),
        replayed=tally(results["ledger"], (call for call in tools if call.replayed)),
        reconciled=tally(results["reconciled"], (call for call in (*story.done, *story.undone) if call.is_reconcile)),
        not_made=tally(metrics.total(counts, metrics.CIRCUIT_OPEN), (call for entry, call in settled if entry.is_open)),
        paid={
            purpose: Paid(
                tokens=tokens[purpose,],
                usd=cost.get((purpose,), 0) / metrics.MICRO,
                events=_events(call for entry, call in settled if _is_paid(entry, purpose)),
            )
            for purpose in PURPOSES
            if tokens.get((purpose,))
        },
    )


def _is_paid(entry: Settled, purpose: str) -> bool:
    is_lost = entry.used.tokens > entry.tokens
    return is_lost if purpose == metrics.LOST else entry.purpose == purpose and entry.tokens > 0


def _events(calls: Iterable[Call]) -> tuple[Event, ...]:
    return tuple(sorted({event for call in calls for event in call.events[-1:]}))


def sentences(receipt: Receipt, *, has_faults: bool) -> Iterator[Sentence]:
    """The receipt in sentences, without counts of zero; with `has_faults`, wasted attempts are named even if zero."""
    number = receipt.helped.number + receipt.not_helped.number
    if has_faults or number or receipt.wasted.number:
        helped = f" ({receipt.helped.number} helped)" if number else ""
        text = f"Retries of tools: {number}{helped}; wasted attempts: {receipt.wasted.number}."
        yield _sentence(text, receipt.helped, receipt.not_helped, receipt.wasted)
    prevented = {
        count(receipt.replayed.number, "recorded result returned", "recorded results returned"): receipt.replayed,
        count(receipt.reconciled.number, "call found applied", "calls found applied"): receipt.reconciled,
    }
    if any(tally.number for tally in prevented.values()):
        text = f"Duplicates prevented: {listed(text for text, tally in prevented.items() if tally.number)}."
        yield _sentence(text, *prevented.values())
    if receipt.not_made.number:
        text = f"Calls not made while a circuit breaker was open: {receipt.not_made.number}."
        yield _sentence(text, receipt.not_made)
    if receipt.paid:
        lines = list[str]()
        for purpose, paid in receipt.paid.items():
            lines.append(f"{purpose} {paid.tokens:,} tokens{f' for {paid.usd:.4f} USD' if paid.usd else ''}")
        yield _sentence(f"Paid to models: {listed(lines)}.", *receipt.paid.values())


def _sentence(text: str, *lines: _ReceiptLine) -> Sentence:
    events = sorted({event for line in lines for event in line.events})
    # A citation names the events of one run only.
    return Sentence(text=text, events=tuple(event for event in events if event.run == events[-1].run))
