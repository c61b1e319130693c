"""`explain` on the saved histories: each ending and each decision, from the history alone, without a server."""

import pytest

from client.explain import page
from client.explain.prose import Item
from client.problem import Problem
from console.exits import OF_PROBLEM
from tests.console import histories
from tests.console.histories import NAMES, explained, text
from tests.gate import sampled


def about(items: tuple[Item, ...], decision: str) -> Item:
    """The only item with this decision."""
    [item] = [item for item in items if item.decision == decision]
    return item


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


REMEDIES: dict[str, list[str]] = {
    "escalated": [
        "To do  Read the exception in the worker's log, and fix the tool, or say with raises= what it "
        "is. Then `python starter.py reset test-f66f6d0eb026 --to a` goes on from there.",
    ],
    "replans_used_up": [
        "To do  Give more with `--replans`.",
    ],
    "plan_refused": [
        "To do  Correct what the reason names.",
    ],
    "straight": [],
    "cancelled": [],
}


@pytest.mark.parametrize(("name", "todo"), REMEDIES.items(), ids=REMEDIES)
async def test_what_a_person_can_do_comes_last(name: str, todo: list[str]) -> None:
    """The remedy of docs/errors.md and, for a task that can go on, the command; nothing where nothing is wrong."""
    said = (await text(name)).splitlines()

    assert [line for line in said if line.startswith("To do")] == todo == said[len(said) - len(todo) :]


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
    ],
    "cancelled": [
        " 1.  The task was asked to stop, and it was cancelled.  [events 21, 33]",
        "     b was stopped while running.  [events 15, 26-27]",
    ],
    "deadline": [
        " 1.  The deadline of 1 s passed before the task was done: give more, e.g. --deadline 2.  [events 16, 27]",
        "     a was stopped while running.  [events 15, 21-22]",
    ],
    "replans_used_up": [
        "     No new plan was asked for: All 0 replans are used up: give more, e.g. --replans 1. The "
        "last fault was a: This word is taken.  [event 27]",
        "Never started: c.",
        "Changed in the world: nothing.",
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
    ],
}


@pytest.mark.parametrize(("name", "lines"), SAID.items(), ids=SAID)
async def test_what_happened_is_told_with_cause_decision_cost_and_events(name: str, lines: list[str]) -> None:
    """Word for word, in this order."""
    said = (await text(name)).splitlines()

    assert [line for line in said if line in lines] == lines


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


@pytest.mark.parametrize("name", NAMES)
async def test_the_headline_says_how_it_ended(name: str) -> None:
    """Id, status, time, plans, steps, calls."""
    first = (await text(name)).splitlines()[0]

    assert first.startswith(f"the-task {ENDED.get(name, 'completed')} after ")


@pytest.mark.parametrize("name", NAMES)
async def test_every_cited_event_exists(name: str) -> None:
    """A doubter finds each one in the web UI."""
    there = {event.event_id for event in histories.events(name)}
    story = await explained(name)
    cited = {event.id for item in story.items for event in item.events}

    assert cited <= there
    assert all(item.events for item in story.items)


@pytest.mark.parametrize("name", sampled({name: [name] for name in NAMES}, "failed_over", "replanned", "undone"))
async def test_every_beginning_of_a_history_can_be_explained(name: str) -> None:
    """A task is looked at whenever somebody looks: after each event there is a text, and no decision is made up."""
    whole = histories.events(name)
    said = [await text(name, until) for until in range(1, len(whole) + 1)]

    assert all(one.startswith("the-task ") for one in said)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cancelled"])
async def test_what_followed_shows_the_decisions_without_an_outcome(name: str) -> None:
    """A terminated task has none: what its last event told is derived from the others, and is the same."""
    whole = await explained(name)
    without = await explained(name, -1)
    final = {"escalate", "end"}

    assert [item.decision for item in without.items if item.decision not in {*final, "undecided"}] == [
        item.decision for item in whole.items if item.decision not in final
    ]


async def test_a_fault_whose_decision_is_not_made_yet_says_so() -> None:
    """Honest, instead of what will probably follow."""
    item = (await explained("replanned", 22)).items[0]

    assert (item.decision, item.why and item.why.text) == ("undecided", "What follows is not decided yet.")


async def test_a_replan_that_is_being_made_says_how_far_it_is() -> None:
    """Looked again, asked, no answer yet."""
    item = about((await explained("replanned", 33)).items, "replan")

    assert item.then[-1].text == "The planner was asked for a new plan: it has not answered with a plan yet."


async def test_the_decisions_of_the_document_are_those_of_the_outcome() -> None:
    """JSON says the same as the task itself."""
    document = (await explained("replanned")).document()

    assert [(item["decision"], item["steps"], item["events"]) for item in document["items"]] == [
        ("replan", ["a"], [22, 26, 27, 28, 32, 33, 34])
    ]
    assert document["cost"] == {
        "failed_attempts": 1,
        "observations": 1,
        "planning_calls": 1,
        "waited": 0.0,
        "lost": 0.0,
        "held": 0.0,
        "unattended": 0.0,
        "tool_calls": 5,
    }


async def test_the_document_has_the_difference_of_the_plans() -> None:
    """From which step to which, with the arguments that changed; what was kept, added, dropped."""
    second = (await explained("replanned")).document()["revisions"][1]

    assert [(one["before"]["id"], one["after"]["id"], one["args"]) for one in second["changed"]] == [
        ("a", "a-2", {"word": {"before": "taken", "after": "free"}}),
        ("c", "c", {}),
    ]
    assert (second["kept"], second["added"], second["dropped"], second["replan"]) == (["b"], [], [], True)


@pytest.mark.parametrize(
    ("name", "step", "lines"),
    [
        (
            "replanned",
            "b",
            [
                "b (say) of the-task: completed after 1 attempt. It returned: said: kept.  [events 15-17]",
                "     Plan 1: planned: b (say word=kept)  [events 7-9]",
                "     Plan 2: kept, since finished: b  [events 32-34]",
                "It met no fault: nothing to explain.",
            ],
        ),
        (
            "replans_used_up",
            "c",
            [
                "c (say) of the-task: not started.",
                "     Plan 1: planned: c (say word=later; needs a)  [events 7-9]",
                "It was never called: a plan ended, or the task did, before its turn came.",
            ],
        ),
    ],
    ids=["kept", "never started"],
)
async def test_one_step_alone(name: str, step: str, lines: list[str]) -> None:
    """Only what concerns it: where it was planned, how it ended, and why."""
    story = await explained(name)

    assert list(page.lay_out_rows(page.step_rows(story.step(step)), story.story, None)) == lines


async def test_one_step_has_the_items_that_name_it() -> None:
    """The rejected proposals name it, too."""
    one = (await explained("rejected")).step("a")

    assert [item.decision for item in one.items] == ["send_back", "send_back"]
    assert one.document()["step"]["status"] == "completed"


async def test_an_unknown_step_names_the_nearest() -> None:
    """A sentence with exit code 2."""
    with pytest.raises(Problem, match="has no step 'a-3': did you mean a-2") as wrong:
        (await explained("replanned")).step("a-3")

    assert OF_PROBLEM[wrong.value.kind] == 2
