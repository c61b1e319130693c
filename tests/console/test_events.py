"""`--jsonl`: one event a line, each once, for programs that follow along."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from client.follow import Attempt, Silent, Snapshot
from console.app import app
from console.entry import main
from console.options import Common
from console.render.views import EventsView
from tests.console.outcomes import fault, outcome, step
from workflows.account.outcome import Outcome
from workflows.account.records import (
    Compaction,
    Failover,
    PlannerWait,
    Rejection,
    Revision,
    StepStatus,
)
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code


class Told:
    """A view of events and what it wrote."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.out = io.StringIO()
        self.view = EventsView(Common(), "a-run", "http://x", self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What was written, line by line."""
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.fixture
def told() -> Told:
    """A view that was told nothing."""
    return Told()


def running(status: StepStatus = StepStatus.RUNNING, **more: Any) -> Outcome:
    """A task with one step that stands so."""
    fields = {"steps": (step(status=status, attempts=0),), "status": TaskStatus.RUNNING, "ended_at": None}
    return outcome(**{**fields, **more})


def test_a_task_is_told_event_by_event(told: Told) -> None:
    """Task, plan and step, then every change, each once."""
    told.view.see(Snapshot(running(StepStatus.PENDING)))
    told.view.see(Snapshot(running()))
    told.view.see(Snapshot(running()))
    told.view.see(Snapshot(running(), {"book": Attempt(2, 4)}))
    told.view.end(outcome(steps=(step(attempts=2),)))

    said = [(one["event"], one.get("status"), one.get("attempts")) for one in told.events]
    assert said == [
        ("task", None, None),
        ("plan", None, None),
        ("step", "pending", 0),
        ("step", "running", 0),
        ("step", "running", 2),
        ("step", "completed", 2),
    ]


def test_what_happened_to_the_planning_is_told_once(told: Told) -> None:
    """A planner that could not be used, once for each reason; each summary, each proposal that was not used."""
    failed = [Failover(planner="anthropic:a", code="unauthorized", reason="No.", turn=turn) for turn in (1, 2)]
    short = [Compaction(turn=turn, turns=turn - 1, planner="openai:b", tokens=9) for turn in (5, 9)]
    unused = [Rejection(turn=turn, reasons=("No.",)) for turn in (2, 3)]
    told.view.see(Snapshot(running(failovers=failed[:1], compactions=short[:1], rejections=unused[:1])))
    told.view.end(running(failovers=failed, compactions=short, rejections=unused))

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
    told.view.see(Snapshot(running(waiting=wait)))
    told.view.see(Snapshot(running(waiting=wait)))
    told.view.see(Snapshot(running()))

    assert [one for one in told.events if one["event"] == "wait"] == [
        {**{"schema": 1, "event": "wait", "until": "2026-11-22T16:05:00Z"}, "code": "overloaded", "reason": "Later."}
    ]


def test_the_second_attempt_of_a_request_is_told(told: Told) -> None:
    """Also in what comes of its reply, which begins anew."""
    lost, waits = Attempt(1, 5), Attempt(2, 5, "timeout", datetime(2026, 11, 22, 16, 5, tzinfo=UTC))
    for attempt in (lost, waits, replace(waits, due=None)):
        told.view.see(Snapshot(running(), requests={"plan:2": attempt}, thinking={"plan:2": 40}))

    assert [one for one in told.events if one["event"] in ("retry", "thinking")] == [
        {"schema": 1, "event": "thinking", "activity": "plan:2", "tokens": 40, "attempt": 1},
        {**RETRIED, "due": "2026-11-22T16:05:00+00:00"},
        {"schema": 1, "event": "thinking", "activity": "plan:2", "tokens": 40, "attempt": 2},
        {**RETRIED, "due": None},
    ]


RETRIED = {"schema": 1, "event": "retry", "activity": "plan:2", "attempt": 2, "of": 5, "code": "timeout"}


def test_a_step_is_told_with_what_names_it(told: Told) -> None:
    """The keys of the event are a promise."""
    told.view.see(Snapshot(running()))

    assert told.events[-1] == {
        **{"schema": 1, "event": "step", "id": "book", "title": "team 14:00", "kind": "book_slot"},
        **{"revision": 1, "status": "running", "attempts": 0},
    }


def test_a_fault_is_told_with_its_decision(told: Told) -> None:
    """Before the step that it ended."""
    refused = fault(Code.CONFLICT, "replan")
    told.view.see(Snapshot(running()))
    told.view.see(Snapshot(running(StepStatus.FAILED, faults=(refused,), revisions=(Revision(number=1),))))

    assert [one["event"] for one in told.events[-2:]] == ["fault", "step"]
    assert (told.events[-2]["code"], told.events[-2]["decision"]) == ("conflict", "replan")


def test_silence_is_told(told: Told) -> None:
    """Of worker and server, and its end."""
    told.view.silence(Silent.WORKER)
    told.view.answers(Silent.WORKER)
    told.view.silence(Silent.SERVER)

    assert [(one["event"], one["answers"], one["queue"]) for one in told.events] == [
        ("worker", False, "replan"),
        ("worker", True, "replan"),
        ("server", False, "replan"),
    ]


def test_line_breaks_of_the_world_break_no_line(told: Told) -> None:
    """One event is one line, whatever a title holds."""
    told.view.see(Snapshot(running(steps=(step(title="a\nb\u2028c\x1b[31m\u202e"),))))

    assert len(told.out.getvalue().split("\n")) == 4
    assert not {"\x1b", "\u2028", "\u202e"} & set(told.out.getvalue())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "x", "--json", "--jsonl"], "--json is one document and --jsonl one event per line"),
        (["--task", "x", "--detach", "--jsonl"], "nothing is followed here"),
        (["show", "x", "--jsonl"], "nothing is followed here"),
    ],
    ids=["both", "detached", "show"],
)
def test_options_that_do_not_go_together_are_bad_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """One sentence, before anything is connected."""
    code = main(app, arguments)

    assert code == 2
    assert words in "".join(capsys.readouterr())


def test_a_mistake_is_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads events reads this one, too."""
    code = main(app, ["--task", " ", "--jsonl"])
    event = json.loads(capsys.readouterr().out)

    assert (code, event["event"], event["error"]["code"]) == (2, "error", "no_task")
