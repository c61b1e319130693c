"""Histories of our own making: calls that ended as a test wants it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

from client.history.records import AttemptFailure, Call, CallEnd, Event, History
from client.history.story import Story
from client.report.report import Period, Report, Totals
from client.report.row import TaskRow
from workflows.account.records import FaultRecord, Revision
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import Catalogue, Effect, ToolSpec

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
SPECS = {effect.value: ToolSpec(kind=effect.value, effect=effect) for effect in Effect}


def report_on(rows: Iterable[TaskRow]) -> Report:
    totals = Totals()
    for row in rows:
        totals.add(row)
    return totals.report(Period(), datetime.now(UTC))


def story(*calls: Call, verdict: str | None = None, revisions: tuple[Revision, ...] = ()) -> Story:
    """A history of these calls; `verdict` is what reconciliation found out about the first."""
    catalogue = Catalogue(specs=SPECS, planner="offline", patience=60)
    told = History("a-task", first_run="run", catalogue=catalogue, calls=list(calls))
    first = [decided(calls[0], "reconcile", verdict)] if verdict else []
    told.replayed = told.account.model_copy(update={"faults": tuple(first), "revisions": revisions})
    return Story(told)


def decided(call: Call, decision: str, verdict: str | None = None) -> FaultRecord:
    fault = call.failing.fault if call.failing else None
    assert fault and call.ended_at
    found = {"applied": Applied.APPLIED, "not_applied": Applied.NONE}.get(verdict or "", fault.applied)
    known = fault.model_copy(update={"applied": found})
    return FaultRecord.of_call(known, call.id, 1, decision, at=call.ended_at, reconciled=verdict)


def call(
    number: int, id: str, kind: str, fault: Fault | None = None, closed: CallEnd | None = CallEnd.COMPLETED
) -> Call:
    """The call with this number, which completed or, with a fault, failed."""
    at, end = BEGAN + timedelta(seconds=number), Event(1, 10 * number + 2)
    made = Call(id, kind, at, Event(1, 10 * number), started=Event(1, 10 * number + 1), attempt=1)
    made.closed = CallEnd.FAILED if fault else closed
    made.failing = AttemptFailure.of(fault) if fault else None
    made.ended, made.ended_at = (end, at) if made.closed else (None, None)
    return made


def lost(applied: Applied = Applied.UNKNOWN) -> Fault:
    return Fault.of(Code.UNREACHABLE, "It broke.", applied=applied)


def refused() -> Fault:
    return Fault.of(Code.NOT_FOUND, "There is none.")


class Tags(HTMLParser):
    """The tags and the addresses of a page, and what a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.addresses, self.text = set[str](), set[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses |= {value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")}

    def handle_data(self, data: str) -> None:
        self.text += data
