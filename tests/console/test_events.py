"""`--jsonl`: one event a line, each once, for programs that follow along."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from client.events import Events, Gap, TaskEvent, event_fields
from client.follow import Silent
from client.remedy import as_command
from client.snapshot import Attempt, Snapshot
from console.app import app
from console.entry import main
from console.options import Common
from console.render.views import EventsView
from tests.console.outcomes import fault, outcome, step
from workflows.account import entries_of_people as people, entries_of_steps as steps, journal
from workflows.account.entry import JournalEntry
from workflows.account.journal import AnyEntry, JournalPage
from workflows.account.outcome import Ending, Outcome
from workflows.account.progress import Progress
from workflows.account.records import (
    Compaction,
    Failover,
    Pause,
    PlannerWait,
    Rejection,
    Revision,
    StepRecord,
    StepStatus,
    UndoRecord,
)
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code
from workflows.people.requests import Choice, HumanAnswer, HumanRequest, RequestKind
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Step

RUN, OTHER = "0123-abcd", "4567-ef01"
LATER = datetime(2026, 11, 22, tzinfo=UTC)


def task() -> Progress:
    return Progress(task=Task(text="x"), task_id="a-run", started_at=LATER)


def written(state: Progress, entries: Sequence[JournalEntry]) -> tuple[AnyEntry, ...]:
    """The entries as a reader gets them after they were written to the journal of the task."""
    for entry in entries:
        state.apply(entry.model_copy(update={"number": state.number + 1, "at": LATER}))
    newest = state.journal[len(state.journal) - len(entries) :]
    read = JournalPage(run=RUN, entries=(), number=state.number).model_copy(update={"entries": tuple(newest)})
    return JournalPage.model_validate_json(read.model_dump_json()).entries


def page(*entries: JournalEntry, first: int = 1, **more: Any) -> JournalPage:
    """A page of these entries, numbered from `first`; before them came the first ones of RUNS."""
    state = task()
    written(state, RUNS[: first - 1])
    known = written(state, entries)
    empty = JournalPage(run=RUN, entries=(), number=first + len(entries) - 1)
    return empty.model_copy(update={"entries": known, **more})


class Told:
    def __init__(self) -> None:
        self.out = io.StringIO()
        self.view = EventsView(Common(), "a-run", "http://x", self.out)
        self._state = task()

    def journal(self, *entries: JournalEntry, outcome: Outcome | None = None) -> None:
        """Show it further entries; `outcome` has their values."""
        news = JournalPage(run=RUN, entries=written(self._state, entries), number=self._state.number)
        self.view.journal(news, outcome or running())

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.fixture
def told() -> Told:
    return Told()


def running(status: StepStatus = StepStatus.RUNNING, **more: Any) -> Outcome:
    """A task with one step that stands so."""
    fields = {"steps": (step(status=status, attempts=0),), "status": TaskStatus.RUNNING, "ended_at": None}
    return outcome(**{**fields, **more})


def planned(*ids: str, number: int = 1, status: StepStatus = StepStatus.PENDING) -> journal.PlanInForce:
    records = tuple(recorded(id, number, status) for id in ids)
    return journal.PlanInForce(revision=Revision(number=number), records=records)


def recorded(
    id: str, revision: int, status: StepStatus = StepStatus.PENDING, kind: str = "book_slot", **more: Any
) -> StepRecord:
    """A step as a task has it."""
    named = Step(id=id, kind=kind, title="team 14:00")
    return StepRecord(step=named, revision=revision, effect=Effect.KEYED, kind=kind, status=status, **more)


BEGINNING = (journal.TaskBegun(planner="offline"), planned("book"))
STARTED = steps.Started(step="book")


def settled(taken: int = 1) -> steps.Settled:
    """So many attempts came back."""
    return steps.Settled(step="book", source="book_slot", taken=taken)


def ended(status: StepStatus = StepStatus.COMPLETED, id: str = "book") -> steps.StepEnded:
    return steps.StepEnded(step=id, status=status)


def test_a_task_is_told_event_by_event(told: Told) -> None:
    """Task, plan and step, then every change, each once; the keys of an event are a promise."""
    told.journal(*BEGINNING)
    told.journal(STARTED)
    told.view.see(Snapshot(running()))
    told.view.see(Snapshot(running(), {"book": Attempt(2, 4)}))
    told.view.see(Snapshot(running(), {"book": Attempt(2, 4)}))
    told.journal(settled(2), ended())
    told.view.end(outcome(steps=(step(attempts=2),)))

    assert [(one["event"], one.get("status"), one.get("attempts")) for one in told.events] == [
        *(("task", None, None), ("plan", None, None), ("step", "pending", 0), ("step", "running", 0)),
        *(("step", "running", 2), ("step", "completed", 2)),
    ]
    assert told.events[3] == {
        **{"schema": 1, "event": "step", "id": "book", "title": "team 14:00", "kind": "book_slot"},
        **{"revision": 1, "status": "running", "attempts": 0},
    }


def test_no_status_is_too_short(told: Told) -> None:
    """What happened between two polls is told whole and in order, of whatever the task has become since."""
    again = steps.Waited(step="book"), steps.Resumed(step="book")
    told.journal(*BEGINNING, STARTED, settled(), *again, settled(), ended())
    told.view.end(outcome(steps=(step(attempts=2),)))

    said = [(one["status"], one["attempts"]) for one in told.events if one["event"] == "step"]
    assert said == [("pending", 0), ("running", 0), ("waiting", 1), ("running", 1), ("completed", 2)]


def test_what_happened_to_the_planning_is_told_once(told: Told) -> None:
    """A planner that could not be used, once for each reason; each summary, each proposal that was not used."""
    failed = [Failover(planner="anthropic:a", code="unauthorized", reason="No.", turn=turn) for turn in (1, 2)]
    short = [Compaction(turn=turn, turns=turn - 1, planner="openai:b", tokens=9) for turn in (5, 9)]
    unused = [Rejection(turn=turn, reasons=("No.",)) for turn in (2, 3)]
    for failover, compaction, rejection in zip(failed, short, unused, strict=True):
        told.journal(
            journal.FailedOver(failover=failover),
            journal.ConversationCompacted(compaction=compaction),
            journal.RejectedPlan(rejection=rejection, mistakes=1),
        )

    named = [one for one in told.events if one["event"] in ("failover", "compaction", "rejection")]
    assert [(one["event"], one["turn"]) for one in named] == [
        *(("failover", 1), ("compaction", 5), ("rejection", 2)),
        *(("compaction", 9), ("rejection", 3)),
    ]
    assert [named[0], named[2]] == [
        {"schema": 1, "event": "failover", **failed[0].model_dump()},
        {"schema": 1, "event": "rejection", "turn": 2, "reasons": ["No."]},
    ]


def test_a_wait_for_the_planner_is_told_once(told: Told) -> None:
    """With the time at which it is asked again."""
    wait = PlannerWait(until=datetime(2026, 11, 22, 16, 5, tzinfo=UTC), code="overloaded", reason="Later.")
    told.journal(steps.Waited(proof="plan:1", code="overloaded", seconds=9, planner=wait))
    told.view.see(Snapshot(running(waiting=wait)))
    told.journal(steps.Resumed(proof="plan:1", slept=9))

    assert [one for one in told.events if one["event"] == "wait"] == [
        {**{"schema": 1, "event": "wait", "until": "2026-11-22T16:05:00Z"}, "code": "overloaded", "reason": "Later."}
    ]


def test_the_second_attempt_of_a_request_is_told(told: Told) -> None:
    """Also in what comes of its reply, which begins anew."""
    lost, waits = Attempt(1, 5), Attempt(2, 5, "timeout", datetime(2026, 11, 22, 16, 5, tzinfo=UTC))
    for attempt in (lost, waits, replace(waits, due=None)):
        told.view.see(Snapshot(running(), requests={"plan:2": attempt}, thinking={"plan:2": 40}))
    thought = {"schema": 1, "event": "thinking", "activity": "plan:2", "tokens": 40}
    retried = {"schema": 1, "event": "retry", "activity": "plan:2", "attempt": 2, "of": 5, "code": "timeout"}

    assert [one for one in told.events if one["event"] in ("retry", "thinking")] == [
        {**thought, "attempt": 1},
        {**retried, "due": "2026-11-22T16:05:00+00:00"},
        {**thought, "attempt": 2},
        {**retried, "due": None},
    ]


def attempted(decision: str, **more: Any) -> steps.Attempted:
    """An attempt failed, and this follows."""
    return steps.Attempted(step="book", fault=fault(Code.CONFLICT, decision), **more)


def found(decision: str, at: datetime, **more: Any) -> steps.Reconciled:
    """It was found out that the call was not applied, and this follows."""
    return steps.Reconciled(step="book", fault=fault(Code.CONFLICT, decision, at=at, reconciled="not_applied"), **more)


BUDGET = HumanRequest(
    id="r1", kind=RequestKind.BUDGET, code="tool_calls", reason="Up.", since=LATER, until=LATER, choices=()
)
MORE = HumanAnswer(choice=Choice.EXTEND, by="ann", at=LATER, extended={"tool_calls": 5})
QUESTION = BUDGET.model_copy(update={"id": "r2", "kind": RequestKind.FAULT, "step": "book"})
ABOUT_BUDGET = people.PersonIsAsked(request="r1", opened=BUDGET)
ABOUT_BOOK = people.PersonIsAsked(request="r2", step="book", opened=QUESTION)
FAILED = journal.TaskClosed(ending=Ending(status=TaskStatus.FAILED))
RETRIED_BY_ANN = people.Answered(request="r2", step="book", answer=HumanAnswer(choice=Choice.RETRY, by="ann", at=LATER))
RUNS = (*BEGINNING, STARTED)
OTHER_FIELDS = {
    "event": ("event",),
    "step": ("event", "id", "kind", "revision", "status"),
    "fault": ("event", "decision"),
}
BOOK = "step book book_slot 1"
UNDOING = recorded("undo:book", 1, kind="cancel", undoes="book")
ROLLBACK = journal.UndoBegun(step="undo:book", record=UNDOING), steps.Started(step="undo:book"), ended(id="undo:book")
UNDONE, STAYS = UndoRecord(step_id="book", done=True), UndoRecord(step_id="book", reason="No.")
ONLY_CONFIRMED = steps.Reconciled(step="book", fault=fault(Code.CONFLICT, "escalate"), is_over=True)
OLD = (
    recorded("book", 1, StepStatus.COMPLETED),
    recorded("old", 4, StepStatus.CANCELLED, kind="pay"),
    recorded("new", 4, StepStatus.COMPLETED, kind="pay"),
)
CASES: dict[str, tuple[Sequence[JournalEntry], Sequence[str]]] = {
    "a new plan skips what never started": (
        (*BEGINNING, planned("pay", number=2)),
        ("plan", f"{BOOK} skipped", "step pay book_slot 2 pending"),
    ),
    "a new plan may have the step once more": (
        (*BEGINNING, planned("book", number=2)),
        ("plan", "step book book_slot 2 pending"),
    ),
    "a fault, before the step that it ended": (
        (*RUNS, settled(), attempted("replan"), ended(StepStatus.FAILED)),
        ("fault replan", f"{BOOK} failed"),
    ),
    "a fallback": (
        (*RUNS, attempted("fallback", fallback="book_table")),
        ("fault fallback", "step book book_table 1 running"),
    ),
    "what Replan itself asks, and checks, is no fault of a step": (
        (*RUNS, attempted("retry", is_own=True), attempted("retry", is_check=True)),
        (),
    ),
    "a decision that reconciliation changes": (
        (*RUNS, attempted("reconcile"), found("wait", LATER)),
        ("fault reconcile", "fault wait"),
    ),
    "a decision that a rollback only confirms": ((*RUNS, attempted("escalate"), ONLY_CONFIRMED), ("fault escalate",)),
    "a decision of a person": (
        (*RUNS, attempted("ask"), steps.Decided(step="book", decision="replan"), ended(StepStatus.FAILED)),
        ("fault ask", "fault replan", f"{BOOK} failed"),
    ),
    "a request about a step": (
        (*RUNS, ABOUT_BOOK, RETRIED_BY_ANN, steps.Resumed(step="book")),
        ("request", f"{BOOK} waiting", "answer", f"{BOOK} running"),
    ),
    "a limit that a person extends, twice": (
        (*RUNS, ABOUT_BUDGET, people.Extended(answer=MORE), people.Extended(answer=MORE)),
        ("request", "answer"),
    ),
    "a request that nobody answered": (
        (*RUNS, ABOUT_BUDGET, people.Closed(request="r1", why="unanswered")),
        ("request", "answer"),
    ),
    "an end that closes what is open": ((*BEGINNING, ABOUT_BUDGET, FAILED), ("request", "answer", f"{BOOK} skipped")),
    "a rollback": (
        (*RUNS, ended(), *ROLLBACK, journal.UndoEnded(step="book", undo=UNDONE)),
        (
            f"{BOOK} completed",
            *(f"step undo:book cancel 1 {status}" for status in ("pending", "running", "completed")),
            f"{BOOK} undone",
        ),
    ),
    "an effect that stays": ((*RUNS, ended(), journal.UndoEnded(step="book", undo=STAYS)), (f"{BOOK} completed",)),
    "effects of earlier runs": (
        (*BEGINNING, journal.EarlierKnown(records=OLD), planned("new", number=2, status=StepStatus.COMPLETED)),
        (
            *("step old pay 0 cancelled", "step new pay 0 completed", f"{BOOK} completed", "plan"),
            "step new book_slot 2 completed",
        ),
    ),
    "another run of a long task": (
        (*RUNS, journal.MovedOn(run=OTHER), journal.TaskBegun(planner="offline"), ended()),
        (f"{BOOK} completed",),
    ),
}


@pytest.mark.parametrize(("entries", "said"), CASES.values(), ids=CASES)
def test_what_entries_tell(told: Told, entries: Sequence[JournalEntry], said: Sequence[str]) -> None:
    """After the beginning, in the order of the entries; and no entry tells anything twice."""
    requests = (BUDGET.model_copy(update={"answer": MORE}), QUESTION.model_copy(update={"closed": "ended"}))
    told.journal(*entries, outcome=running(requests=requests))
    words = [" ".join(str(one[name]) for name in OTHER_FIELDS.get(one["event"], ("event",))) for one in told.events]
    begun = ["task", "plan", "step book book_slot 1 pending", "step book book_slot 1 running"]

    assert words == [*begun[: 4 if STARTED in entries else 3], *said]


class Resumed:
    """A client that is told a task after a cursor."""

    def __init__(self, after: str = "") -> None:
        """`after` is the cursor of the last event that it has."""
        self.told, self.events = list[tuple[str, str]](), list[TaskEvent]()
        self.view = Events(self._tell, after)

    def _tell(self, event: TaskEvent, cursor: str) -> None:
        named = event_fields(event, "replan", as_command)
        self.events.append(event)
        self.told.append((cursor, named[0] if named else "end"))


MOVED = (*RUNS, journal.MovedOn(run=OTHER), ended(), FAILED)


def test_a_client_that_is_cut_after_any_event_is_told_the_rest() -> None:
    """The cursor of each event leads to the next: also of one among several of an entry, and of an earlier run."""
    whole = Resumed()
    whole.view.journal(page(*MOVED), running())

    assert len(whole.told) == 5
    for place, (cursor, _) in enumerate(whole.told):
        for known in (cursor, cursor.replace(RUN, OTHER)):
            rest = Resumed(known)
            rest.view.journal(page(*MOVED), running())
            assert rest.told == whole.told[place + 1 :], known


def test_missing_entries_are_told_once() -> None:
    """With the run whose history has the first of them; who was told of them before is told nothing."""
    late, cut, moved = Resumed(f"{RUN}:1"), Resumed(f"{RUN}:4.0"), Resumed(f"{OTHER}:1")
    for client in (late, cut):
        client.view.journal(page(ended(), first=4, gap=RUN), running())
    moved.view.journal(page(journal.MovedOn(run=OTHER), ended(), first=4), running())

    assert late.told == [(f"{RUN}:4.0", "gap"), (f"{RUN}:4", "step")]
    assert cut.told == [(f"{RUN}:4", "step")]
    assert moved.events[0] == Gap(OTHER), "of a task that went on in a new run since"


@pytest.mark.parametrize("cursor", [f"{OTHER}:3", f"{OTHER}:1.1"])
def test_a_reset_is_told_and_then_the_task_from_its_start(told: Told, cursor: str) -> None:
    """To a client that comes back, whose cursor is of a run that is none of this history, and to one that follows."""
    client = Resumed(cursor)
    client.view.journal(page(*BEGINNING), running())
    again = Resumed(client.told[0][0])
    again.view.journal(page(*BEGINNING), running())
    told.journal(*RUNS, ended())
    told.view.journal(page(*BEGINNING, run=OTHER, restarted=True), running())

    assert [name for _, name in client.told] == ["restarted", "task", "plan", "step"]
    assert again.told == client.told[1:]
    assert [one["event"] for one in told.events[4:]] == ["step", "restarted", "task", "plan", "step"]


@pytest.mark.parametrize(
    "cursor", ["nonsense", "-", "7", f"{RUN}:", f"{RUN}:-1", f"{RUN}:1.x", f"{RUN}:²", "a:" + "9" * 99]
)
def test_an_unreadable_cursor_is_none(cursor: str) -> None:
    """The task is told from its start."""
    client = Resumed(cursor)
    client.view.journal(page(*BEGINNING), running())

    assert [name for _, name in client.told] == ["task", "plan", "step"]


def test_a_task_that_was_closed_from_outside_is_told_to_its_end(told: Told) -> None:
    """No entry says that its step was cut off, and that its request needs no answer: its outcome does."""
    told.journal(*RUNS, ABOUT_BUDGET, outcome=running(requests=(BUDGET,)))
    closed = BUDGET.model_copy(update={"closed": "ended"})
    told.view.end(running(StepStatus.CANCELLED, requests=(closed,)))

    assert [one["event"] for one in told.events[-2:]] == ["answer", "step"]
    assert told.events[-1]["status"] == "cancelled"


def test_a_task_whose_history_cannot_be_replayed_is_told_by_its_outcome(told: Told) -> None:
    """And that there is more in its history."""
    whole = outcome(steps=(step(),), faults=(fault(),))
    told.view.journal(page(first=1, gap=RUN), whole)
    told.view.end(whole)

    assert [one["event"] for one in told.events] == ["gap", "task", "plan", "fault", "step"]
    assert told.events[0]["run"] == RUN


def test_a_pause_is_told_of_the_step_until_it_is_over(told: Told) -> None:
    """Only the server knows of it."""
    told.journal(*RUNS)
    paused = Pause(activity="book", since=LATER, resume="resume it")
    told.view.see(Snapshot(running(StepStatus.PAUSED, paused=(paused,)), {"book": Attempt(1, 4)}))
    for _ in range(2):
        told.view.see(Snapshot(running(), {"book": Attempt(1, 4)}))

    assert [(one["event"], one.get("status")) for one in told.events[4:]] == [
        ("step", "paused"),
        ("pause", None),
        ("step", "running"),
    ]


def test_silence_is_told(told: Told) -> None:
    """Of worker and server, and its end."""
    told.view.silence(Silent.WORKER)
    told.view.answers(Silent.WORKER)
    told.view.silence(Silent.SERVER)

    said = [("worker", False, "replan"), ("worker", True, "replan"), ("server", False, "replan")]
    assert [(one["event"], one["answers"], one["queue"]) for one in told.events] == said


def test_line_breaks_of_the_world_break_no_line(told: Told) -> None:
    """One event is one line, whatever a title holds."""
    told.journal(*BEGINNING, outcome=running(steps=(step(title="a\nb\u2028c\x1b[31m\u202e"),)))

    assert len(told.out.getvalue().split("\n")) == 4
    assert not {"\x1b", "\u2028", "\u202e"} & set(told.out.getvalue())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "x", "--json", "--jsonl"], "--json is one document and --jsonl one event per line"),
        (["--task", "x", "--detach", "--jsonl"], "nothing is followed here"),
        (["show", "x", "--jsonl"], "nothing is followed here"),
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """One sentence, before anything is connected; a program that reads events reads of a mistake in one, too."""
    code, said = main(app, arguments), "".join(capsys.readouterr())
    wrong, event = main(app, ["--task", " ", "--jsonl"]), json.loads(capsys.readouterr().out)

    assert (code, words in said) == (2, True)
    assert (wrong, event["event"], event["error"]["code"]) == (2, "error", "no_task")
