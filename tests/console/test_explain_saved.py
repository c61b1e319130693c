"""`explain` on the saved histories: each ending and each decision, from the history alone, without a server."""

import pytest
from rich.cells import cell_len

from client import tree
from client.explain import explanation, page
from client.explain.explanation import Explanation
from client.explain.page import citation, lay_out_sentence
from client.history.records import Event
from client.problem import Problem
from client.wording import count
from console.exits import OF_PROBLEM
from tests.console import histories
from tests.console.histories import NAMES, explained, text
from tests.gate import sampled
from workflows.account import metrics


async def test_a_run_without_faults_is_told_in_short() -> None:
    """What was asked, planned, returned and changed, and what it took."""
    assert (await text("straight")).splitlines() == [
        "the-task completed after 0.94 s: 1 plan, 2 of 2 steps finished, 2 tool calls. No faults. Started "
        "2026-11-29 13:17:24Z.",
        "Asked: a saved history: straight.  [event 1]",
        "Plan 1: a (say word=x) and b (say word=<a.said>; needs a).  [events 7-9]",
        "Result: done  [event 33]",
        "Changed in the world: nothing.",
    ]


SAID: dict[str, list[str]] = {
    "retried": [
        " 1.  a (flaky) was told to wait twice (busy): The line is busy.  [events 15-16]",
        "     The tool was busy, so a retry could succeed: attempts 2 and 3 followed after 0.00 s and 0.01 s.",
        "     Attempt 3 succeeded. It returned: said: x.  [event 16]",
        "Beyond the plan this cost 2 failed attempts and 0.01 s of waiting.",
    ],
    "replanned": [
        "Plan 1: a (pick word=taken), b (say word=kept) and c (say word=later; needs a).  [events 7-9]",
        "  +  b (say) finished at its first attempt and returned: said: kept.  [event 17]",
        " 1.  a (pick) was rejected (conflict): This word is taken. Observed: free: free.  [event 22]",
        "     The same call would fail again: a new plan, no retry.",
        "     Observed again with say: said: taken.  [events 26-28]",
        "     The planner was asked for a new plan: plan 2 has a-2 in its place (word: taken -> free).  [events 32-34]",
        "Plan 2, instead of plan 1:  [events 32-34]",
        "     changed: a -> a-2 (word: taken -> free) and c (needs: a -> a-2)",
        "     kept, since finished: b",
        "Beyond the plan this cost 1 failed attempt, 1 observation and 1 planning call.",
        "Kept from plan 1: b.  [event 17]",
        "Changed in the world: a-2 (pick).  [event 41]",
    ],
    "pure_timeout_again": [
        "the-task completed after 1.32 s: 1 plan, 1 of 1 step finished, 1 tool call. No faults. Started "
        "2026-11-29 13:17:32Z.",
        "Plan 1: a (stalled word=x).  [events 7-9]",
        "Result: done  [event 28]",
    ],
    "fallback": [
        " 1.  a (down) failed at all 4 attempts (unreachable): The line is cut. A retry could have "
        "succeeded: attempts 2, 3 and 4 followed after 0.00 s, 0.01 s and 0.01 s.  [event 16]",
        "     The retries are used up: its fallback takes over.",
        "     The fallback say did the step instead and returned: said: x.  [events 20-22]",
    ],
    "rejected": [
        " 1.  Proposal 1 of the planner was rejected: step 'a': there is no kind 'nothing': there are "
        "broken, down, flaky, grab, link, locked, move, page, pick, post, put_back, say, shaky, shout, "
        "shout_out, slow, spend, stalled.  [events 7-9]",
        "     It went back to the planner with the reasons, and proposal 2 was rejected too.  [events 13-15]",
        " 2.  Proposal 2 of the planner was rejected: step 'a' needs 'z', which does not exist: leave it out.  "
        "[events 13-15]",
        "     It went back to the planner with the reasons, and proposal 3 was accepted as plan 1.  [events 19-21]",
        "Beyond the plan this cost 2 planning calls.",
    ],
    "escalated": [
        " 1.  a (broken) failed (bug): The tool raised KeyError, which no table knows: fix the tool. The "
        "cause is in the worker's log, in its line with step 'a' and code 'bug'.  [event 20]",
        "     Neither a retry nor a new plan can help: a person has to act.",
        "     The task was not to wait for a person (`--on-escalation`), so it ended as escalated.  [event 24]",
        "To do  Read the exception in the worker's log, and fix the tool, or say with raises= what it is. Then "
        "`python starter.py reset test-f66f6d0eb026 --to a` goes on from there.",
    ],
    "cancelled": [
        " 1.  The task was asked to stop, and it was cancelled.  [events 21, 33]",
        "     b was stopped while running.  [events 15, 26-27]",
    ],
    "deadline": [
        " 1.  The deadline of 1 s passed before the task was done: give more, e.g. --deadline 2.  [events 16, 27]",
        "     a was stopped while running.  [events 15, 21-22]",
        "To do  Give more time with `--deadline`.",
    ],
    "replans_used_up": [
        "     No new plan was asked for: All 0 replans are used up: give more, e.g. --replans 1. The "
        "last fault was a: This word is taken.  [event 27]",
        "Never started: c.",
        "Changed in the world: nothing.",
        "To do  Give more with `--replans`.",
    ],
    "compacted": [
        " 1.  Turn 3 of the model was rejected: step 't3.c0' makes the same call for the third time, and "
        "nothing changes: do something else.  [events 31-33]",
        "     It went back to the model with the reasons, and turn 4 was rejected too.  [events 37-39]",
        "     It went back to the model with the reasons, and turn 7 was accepted.  [events 55-57]",
    ],
    "resolved": [
        "     A person was asked (r2), and ann answered retry for all tasks that waited for "
        'locked/unauthorized, after 0.14 s, at 2026-11-29 13:19:02Z: "The key is here".  [events 31-32]',
        "     The same call was made again, and succeeded.  [events 43-45]",
    ],
    "deployed": [
        "     No worker knew the kind in time: a person is asked.",
        "     A person was asked (r1); the task tried again by itself after 3.05 s, and went on.  [events 28-30]",
    ],
    "plan_refused": [
        " 1.  The hand-written plan was rejected: steps need each other in a circle: a -> b -> a: remove "
        "one of these needs.  [event 5]",
        "     A mistake in a hand-written plan is not sent to the planner, so the task ended as failed.  [event 8]",
        "To do  Correct what the reason names.",
    ],
}


@pytest.mark.parametrize(("name", "lines"), SAID.items(), ids=SAID)
async def test_what_happened_is_told_with_cause_decision_cost_and_events(name: str, lines: list[str]) -> None:
    """Word for word, in this order; the remedy comes last, with the command where a task can go on."""
    said = (await text(name)).splitlines()
    todo = [line for line in lines if line.startswith("To do")]

    assert [line for line in said if line in lines] == lines
    assert [line for line in said if line.startswith("To do")] == todo == said[len(said) - len(todo) :]


ENDED = {
    "aborted": "failed",
    "cancelled": "cancelled",
    "deadline": "over budget",
    "escalated": "escalated",
    "expired": "cancelled",
    "continued": "running",
    "last_answer": "over budget",
    "moved_on": "running",
    "notified": "escalated",
    "plan_refused": "failed",
    "replans_used_up": "over budget",
    "unanswered": "escalated",
    "undone": "escalated",
    "undone_when_cancelled": "cancelled",
}
"""The histories of tasks that did not complete."""


@pytest.mark.parametrize("name", sampled({name: [name] for name in NAMES}, "failed_over", "replanned", "undone"))
async def test_every_beginning_of_a_history_can_be_explained(name: str) -> None:
    """A task is looked at whenever somebody looks: after each event there is a text, and no decision is made up."""
    whole = histories.events(name)
    said = [await text(name, until) for until in range(1, len(whole) + 1)]

    assert all(one.startswith("the-task ") for one in said)


RECEIPTS = {
    "retried": ["Retries of tools: 2 (2 helped); wasted attempts: 0.  [event 16]"],
    "fallback": ["Retries of tools: 3 (0 helped); wasted attempts: 0.  [event 16]"],
    "replanned": ["Retries of tools: 0; wasted attempts: 0."],
    "compacted": [
        "Paid to models: planning 390 tokens, correcting 260 tokens and summarising 130 tokens."
        "  [events 9, 21, 33, 39, 51, 57]"
    ],
    "straight": [],
}
"""What is zero is left out, but for the wasted attempts of a task that met faults: their promise is zero."""


@pytest.mark.parametrize("name", NAMES)
async def test_a_saved_history_is_told_whole(name: str) -> None:
    """How it ended, and why, by events that exist, in lines that fit the terminal; with a receipt at the end."""
    whole = await explained(name)
    lines = page.page_lines(whole, None)
    there = {event.event_id for event in histories.events(name)}
    receipts = [line for line in lines if line.startswith(("Retries", "Duplicates", "Calls not", "Paid"))]

    assert lines[0].startswith(f"the-task {ENDED.get(name, 'completed')} after ")
    assert {event.id for item in whole.items for event in item.events} <= there
    assert all(item.events for item in whole.items)
    assert all(max(map(cell_len, page.page_lines(whole, width))) <= width for width in (40, 80, 200))
    assert receipts == RECEIPTS.get(name, receipts)
    check_receipt(whole)


def check_receipt(whole: Explanation) -> None:
    """Retries, wasted attempts, replayed results, calls not made and tokens are those of the metrics and of `show`."""
    receipt, outcome = whole.receipt, whole.story.account
    sums = outcome.counts or {}
    paid = {purpose: tokens for (purpose,), tokens in metrics.counted(sums, metrics.TOKENS).items()}
    summed = metrics.RETRIES, metrics.WASTED_ATTEMPTS, metrics.REPLAYED_RESULTS, metrics.CIRCUIT_OPEN
    retries = receipt.helped.number + receipt.not_helped.number
    prevented = receipt.replayed.number + receipt.reconciled.number

    assert [retries, 0, prevented, receipt.not_made.number] == [metrics.total(sums, metric) for metric in summed]
    assert receipt.wasted.number == 0, "an attempt never follows a fault that it cannot cure"
    assert {purpose: one.tokens for purpose, one in receipt.paid.items()} == paid
    assert f", {count(retries, 'retry', 'retries')}" in tree.headline(outcome)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cancelled"])
async def test_what_followed_shows_the_decisions_without_an_outcome(name: str) -> None:
    """A terminated task has none: what its last event told is derived from the others, and is the same."""
    final = {"escalate", "end"}
    whole, without = [
        [item.decision for item in (await explained(name, until)).items if item.decision not in final]
        for until in (None, -1)
    ]

    assert [decision for decision in without if decision != "undecided"] == whole


async def test_what_is_not_decided_yet_is_said_to_be_so() -> None:
    """Honest, instead of what will probably follow; a replan that is being made says how far it is."""
    [refused], [replan] = (await explained("replanned", 22)).items, (await explained("replanned", 33)).items

    assert (refused.decision, refused.why and refused.why.text) == ("undecided", "What follows is not decided yet.")
    assert replan.decision == "replan"
    assert replan.then[-1].text == "The planner was asked for a new plan: it has not answered with a plan yet."


async def test_the_document_says_what_the_text_says() -> None:
    """The decisions of the task itself; the difference of its plans; each figure with the events that prove it."""
    document = (await explained("replanned")).document()
    second = document["revisions"][1]
    receipt = (await explained("retried")).document()["receipt"]
    cost = {name: number for name, number in document["cost"].items() if number}

    assert [(item["decision"], item["steps"], item["events"]) for item in document["items"]] == [
        ("replan", ["a"], [22, 26, 27, 28, 32, 33, 34])
    ]
    assert cost == {"failed_attempts": 1, "observations": 1, "planning_calls": 1, "tool_calls": 5}
    assert {"waited", "lost", "held", "unattended"} <= document["cost"].keys()
    assert [(one["before"]["id"], one["after"]["id"], one["args"]) for one in second["changed"]] == [
        ("a", "a-2", {"word": {"before": "taken", "after": "free"}}),
        ("c", "c", {}),
    ]
    assert (second["kept"], second["added"], second["dropped"], second["replan"]) == (["b"], [], [], True)
    assert (receipt["helped"], receipt["wasted"]) == ({"number": 2, "events": [16]}, {"number": 0, "events": []})
    assert receipt["paid"] == {}


STEPS = {
    ("replanned", "b"): [
        "b (say) of the-task: completed after 1 attempt. It returned: said: kept.  [events 15-17]",
        "     Plan 1: planned: b (say word=kept)  [events 7-9]",
        "     Plan 2: kept, since finished: b  [events 32-34]",
        "It met no fault: nothing to explain.",
    ],
    ("replans_used_up", "c"): [
        "c (say) of the-task: not started.",
        "     Plan 1: planned: c (say word=later; needs a)  [events 7-9]",
        "It was never called: a plan ended, or the task did, before its turn came.",
    ],
}


@pytest.mark.parametrize(("name", "step"), STEPS)
async def test_one_step_alone(name: str, step: str) -> None:
    """Only what concerns it: where it was planned, how it ended, and why."""
    story = await explained(name)

    assert list(page.lay_out_rows(page.step_rows(story.step(step)), story.story, None)) == STEPS[name, step]


async def test_one_step_has_the_items_that_name_it() -> None:
    """The rejected proposals name it, too; an unknown one is a sentence with exit code 2 that names the nearest."""
    one = (await explained("rejected")).step("a")
    with pytest.raises(Problem, match="has no step 'a-3': did you mean a-2") as wrong:
        (await explained("replanned")).step("a-3")

    assert [item.decision for item in one.items] == ["send_back", "send_back"]
    assert (one.document()["step"]["status"], OF_PROBLEM[wrong.value.kind]) == ("completed", 2)


EVIL = "a\x1b[31m\x07\r\nb\x9b2J\u202ec\tdone"
CITED = [
    ([], ""),
    ([11], "[event 11]"),
    ([13, 14, 15], "[events 13-15]"),
    ([15, 11, 14, 14], "[events 11, 14-15]"),
    (list(range(1, 40, 2)), "[events 1, 3, 5, 7, 9, ..., 39]"),
]


def test_events_are_cited_as_spans() -> None:
    """In order, each once, neighbours together; a long row is cut in the middle, and several runs are named."""
    assert [citation([Event(1, id) for id in ids]) for ids, _ in CITED] == [said for _, said in CITED]
    assert citation([Event(2, 11)], many=True) == "[run 2, event 11]"


LAID_OUT: list[tuple[str, int | None, list[str]]] = [
    ("short", 40, [" 1.  short                     [event 1]"]),
    ("just as long as it may be", 40, [" 1.  just as long as it may be", "                               [event 1]"]),
    (
        "so long that it goes on in a second row",
        40,
        [" 1.  so long that it goes on in a second", "     row                       [event 1]"],
    ),
    # A long word moves to the left before it leaves the terminal.
    (f"It was {'x' * 38}", 40, [" 1.  It was", f"  {'x' * 38}", "                               [event 1]"]),
    ("x " * 100, None, [" 1.  " + "x " * 100 + "  [event 1]"]),
]


@pytest.mark.parametrize(("text", "width", "rows"), LAID_OUT)
def test_a_citation_stands_at_the_right_end(text: str, width: int | None, rows: list[str]) -> None:
    """Of the last line of its sentence or, without room, below it, under its beginning; in a file it is whole."""
    assert lay_out_sentence(" 1.  ", text, "[event 1]", width) == rows


async def test_nothing_from_the_world_can_draw_on_the_terminal() -> None:
    """Escapes, bells, line breaks and reversed text in reasons, arguments and results are gone; no line is added."""
    events = histories.events("escalated")
    for event in events:
        failure = event.activity_task_failed_event_attributes.failure
        if failure.message:
            failure.message = EVIL
            failure.application_failure_info.ClearField("details")
            failure.application_failure_info.details.payloads.add(metadata={"encoding": b"binary/encrypted"})
        if event.HasField("activity_task_scheduled_event_attributes"):
            event.activity_task_scheduled_event_attributes.activity_id += EVIL
            event.activity_task_scheduled_event_attributes.activity_type.name += EVIL
    lines = page.page_lines(explanation.explain_task(await histories.history(events)), 80)

    assert [char for line in lines for char in line if not char.isprintable()] == []
    assert [line for line in lines if "done" in line]
