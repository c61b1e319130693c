"""Explained: a task that a model does turn by turn, a turn a sentence with its events, and what a new plan changed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from client.explain import explanation, page
from client.explain.explanation import Explanation
from client.explain.page import difference_lines
from client.history.records import AttemptFailure, Call, CallEnd, Event, History, RunEnd
from client.history.story import Plan, PlannerTurn, ProposalVerdict, Story, diff
from tests.console import made, outcomes
from tests.harness import plan, step
from workflows.account.records import Rejection, Revision
from workflows.account.task import Task
from workflows.faults.fault import Code, Fault
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Catalogue
from workflows.plans.proposal import Answer, GiveUp, Mistake, NewSteps, PassedOver, Proposed, Step

LAST = Event(1, 9999)
NO_KEY = PassedOver(planner="anthropic:a", code="unauthorized", reason="The key is wrong")


def asked(number: int, turn: int, proposal: NewSteps | Answer | GiveUp, **more: Any) -> Call:
    """The request of a turn, which was answered; its events are 10 to 12 for number 1."""
    call = made.call(number, f"plan:{turn}", "plan")
    call.situation = Situation(turn=turn, now=made.BEGAN, is_last=more.pop("is_last", False))
    call.proposed = Proposed(proposal=proposal, **{"planner": "openai:b", **more})
    return call


def move(turn: int, kind: str = "read", **more: Any) -> list[Call]:
    """A turn with one call, which completed."""
    id, because = f"t{turn}.c0", more.pop("because", "")
    steps = plan(step(id, kind, at=turn), because=because)
    return [asked(2 * turn, turn, steps, **more), made.call(2 * turn + 1, id, kind)]


def told(*calls: Call, status: str = "completed", **more: Any) -> Explanation:
    """A task of these calls, which ended with the answer 42."""
    proposed = [call for call in calls if call.proposed and isinstance(call.proposed.proposal, NewSteps)]
    turns = [call.situation.turn for call in proposed if call.situation]
    revisions = tuple(Revision(number=number, turn=turn) for number, turn in enumerate(turns, 1))
    more = {"revisions": revisions, "result": "42", **more}
    history = History("a-task", first_run="run", calls=list(calls), last=LAST)
    history.catalogue = Catalogue(specs=made.SPECS, planner="openai:b", patience=60)
    history.task = Task(text="do it", strategy="react")
    history.started_at, ended = made.BEGAN, made.BEGAN + timedelta(seconds=99)
    history.end = RunEnd(status, LAST, ended, outcomes.outcome(strategy="react", status=status, **more))
    return explanation.explain_task(history)


def said(explained: Explanation) -> list[str]:
    """What is said after the summary and the question, a sentence a line."""
    return page.page_lines(explained, None)[2:]


def test_a_turn_is_a_sentence() -> None:
    """What the model called for, and what it said beside; what became of it is left out where nothing was unusual. Many
    turns are one sentence: how many calls of what, from the first request to the last result."""
    explained = told(*move(1, because="I look first"), *move(2, "idempotent"), asked(6, 3, Answer(result="42")))
    turns = [call for turn in range(1, 31) for call in move(turn, "read" if turn % 3 else "idempotent")]
    shown = "\n".join(row[1].text for row in page.step_rows(explained.step("t2.c0")))

    assert said(explained)[:4] == [
        "Turn 1: t1.c0 (read at=1).  [events 20-22]",
        "     It said: I look first.",
        "Turn 2: t2.c0 (idempotent at=2).  [events 40-42]",
        "Result: 42  [event 9999]",
    ]
    assert "2 turns, 2 of 2 steps finished" in explained.summary
    assert "Turn 2: planned: t2.c0 (idempotent at=2)" in shown, "with `--step t2.c0`"
    assert said(told(*turns))[0] == "Turns 1-30: 30 calls, of read (20) and idempotent (10).  [events 20-602]"


def test_what_happened_among_many_turns_stands_between_them() -> None:
    """A refusal, with the turn that answers it, parts the rows before and after."""
    turns = [move(turn) for turn in range(1, 31)]
    refused = turns[14][1]
    refused.failing, refused.closed = AttemptFailure.of(made.refused()), CallEnd.FAILED
    turns[15][0].kind = "replan"
    faults = (made.decided(refused, "replan").model_copy(update={"revision": 15}),)
    lines = said(told(*(call for calls in turns for call in calls), faults=faults))

    assert lines[0].startswith("Turns 1-15: 15 calls") and lines[1].startswith(" 1.  t15.c0 (read) was rejected")
    assert lines[2].endswith("the model's next turn, no retry.")
    assert "The model was asked what comes next: turn 16 has t16.c0 in its place (at: 15 -> 16)" in lines[3]
    assert lines[4].startswith("Turns 16-30")


def test_a_planner_that_could_not_be_used_is_explained_once() -> None:
    """Where, why, who was asked in its place, and how often it was tried again."""
    explained = told(*(call for turn in (1, 2, 3) for call in move(turn, passed_over=(NO_KEY,))))
    [item] = explained.items

    assert [one.text for one in item.sentences] == [
        "The planner anthropic:a could not be used (unauthorized): The key is wrong.",
        "A retry cannot help, and the list of planners names another one.",
        "So openai:b was asked in its place.",
        "It was tried first again at 2 later requests, and could not be used either.",
    ]
    assert [event.id for event in item.events] == [20, 21, 22, 42, 62] and item.decision == "failover"


def test_an_outage_is_one_item_however_often_the_planner_was_asked() -> None:
    """A day of waits is no page of equal items; and the proposal after it is what a rejected one was answered by."""
    out, rejected = Fault.of(Code.OVERLOADED, "The server is overloaded"), (Mistake(text="step 'a': no"),)
    away = [made.call(number, "plan:2", "plan", out) for number in (4, 5, 6)]
    back = asked(7, 2, Answer(result="42"))
    for call in (*away, back):
        call.situation = Situation(turn=2, now=made.BEGAN, rejected=rejected)
    own = tuple(made.decided(call, "wait") for call in away)
    no = (Rejection(turn=1, reasons=("step 'a': no",)),)
    explained = told(asked(2, 1, plan(step("a", "read"))), *away, back, own_faults=own, rejections=no, revisions=())
    [refused, outage] = explained.items

    assert refused.then[0].text == "It went back to the model with the reasons, and turn 2 was accepted."
    assert outage.decision == "wait" and outage.cost.failed_attempts == 3
    assert [one.text for one in outage.then] == [
        "Asked again after a wait, it failed in the same way 2 more times.",
        "So the same call was made again at once.",
    ]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (Code.MALFORMED_SCHEMA, "Do what the reason says."),
        (Code.UNAUTHORIZED, "Do what the reason says."),
        (Code.TOO_LARGE, "Split the task, or use a model with a larger window."),
        (Code.QUOTA_EXHAUSTED, "Pay, or make room."),
    ],
)
def test_no_remedy_speaks_of_a_tool_where_the_planner_failed(code: Code, remedy: str) -> None:
    """A tool has the same codes, and another remedy."""
    call = made.call(4, "plan:1", "plan", Fault.of(code, "No.", source="plan"))
    call.situation = Situation(turn=1, now=made.BEGAN)
    ended: dict[str, Any] = {"status": "escalated", "code": code.value, "reason": "No.", "result": None}
    text = " ".join(said(told(call, own_faults=(made.decided(call, "escalate"),), revisions=(), **ended)))

    assert remedy in text and "tool" not in text, text


@pytest.mark.parametrize(
    ("number", "words"), [(1, "its oldest turn was summarised."), (40, "its oldest 40 turns were summarised.")]
)
def test_a_summary_is_told_where_it_was_made(number: int, words: str) -> None:
    """With the request that was too long and the activity that summarised; the request is no plan and no giving up."""
    long = asked(4, 2, GiveUp(reason="too long"), compact=number, context=61_000)
    explained = told(*move(1), long, made.call(5, "compact:3", "compact"), *move(4))

    assert f"The conversation grew too long (61,000 tokens): {words}  [events 40-42, 50-52]" in said(explained)
    assert explained.items == () and len(explained.plans) == 2
    assert words in " ".join(explained.document()["notes"])


def test_the_last_answer_of_a_task_over_budget_is_explained() -> None:
    """Who was asked for it, and the answer itself."""
    last = asked(4, 2, Answer(result="42"), is_last=True)
    lines = said(told(*move(1), last, status="over_budget", code="tool_calls", reason="All are used up."))
    once_more = "The planner was asked once more, without tools, for an answer from the results so far"

    assert f"     {once_more}: its answer is the result.  [events 40-42]" in lines
    assert "Result: 42  [event 9999]" in lines


NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


BOTH = [step("a", "get", n=1), step("b", "get", n=2)]
PAGE: JsonValue = {"size": 1, "sort": ["x"]}
LARGER: JsonValue = {"size": 2, "sort": ["x"]}
SAID, OF_B = step("c", "say", word={"$from": "a", "path": "said"}), step("c", "say", word={"$from": "b"})
COMPARED: dict[str, tuple[list[Step], list[Step], list[str]]] = {
    "an argument": (
        [step("book", "book_slot", at="14:00")],
        [step("book-2", "book_slot", at="14:30")],
        ["changed: book -> book-2 (at: 14:00 -> 14:30)"],
    ),
    "the kind": ([step("a", "get", n=1)], [step("a-2", "read", n=1)], ["changed: a -> a-2 (kind: get -> read)"]),
    "the same kind under another id": (
        [step("a", "get", n=1)],
        [step("b", "get", n=2)],
        ["changed: a -> b (n: 1 -> 2)"],
    ),
    "inside an object, and a new one": (
        [step("a", "get", page=PAGE)],
        [step("a", "get", page=LARGER, more=None)],
        ["changed: a (page.size: 1 -> 2, more: (none) -> null)"],
    ),
    "a reference": (
        [step("a", "get"), SAID],
        [step("b", "say"), OF_B],
        ["changed: c (word: <a.said> -> <b>, needs: a -> b)", "added: b (say)", "dropped: a"],
    ),
    "the most alike": (BOTH, [step("x", "get", n=2), step("y", "get", n=1)], ["changed: b -> x and a -> y"]),
    "nothing": ([step("a", "get")], [step("a", "get")], ["planned as before: a"]),
    "everything": ([step("a", "get")], [step("b", "put")], ["added: b (put)", "dropped: a"]),
    "a finished step": (
        [step("done", "get"), step("a", "put")],
        [step("a-2", "put", n=1)],
        ["changed: a -> a-2 (n: (none) -> 1)", "kept, since finished: done"],
    ),
}


@pytest.mark.parametrize(("before", "after", "lines"), COMPARED.values(), ids=COMPARED)
def test_two_plans_are_compared(before: list[Step], after: list[Step], lines: list[str]) -> None:
    """What changed with its arguments, what came, what went, what stayed."""
    done = [one.id for one in before if one.id == "done"]
    finished = [Call(id, "k", NOON, Event(1, 15), ended=Event(1, 16), closed=CallEnd.COMPLETED) for id in done]
    plans = []
    for number, steps in enumerate((before, after), 1):
        call = Call(f"plan:{number}", "replan", NOON, Event(1, number * 10), ended=Event(1, number * 10 + 1))
        plans.append(Plan(number, PlannerTurn(call, ProposalVerdict.ACCEPTED), tuple(steps)))

    assert difference_lines(diff(Story(History("the-task", calls=finished)), *plans)) == lines
