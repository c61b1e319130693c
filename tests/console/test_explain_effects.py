"""What `explain`, `show` and `--jsonl` say of effects that may have happened, and of those that were undone."""

from pathlib import Path

import pytest
from temporalio.client import Client

from client import tree
from client.explain import explanation, page, world
from client.explain.explanation import Explanation
from client.history.fetch import fetch_history
from tests.console.deeds import World, bank
from tests.console.made import call, lost, story
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, step
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.plans.proposal import NewSteps

ONE = plan(step("one", "pay"))
KEYED = plan(step("one", "charge"))


async def told(
    client: Client, folder: Path, world: World, *script: NewSteps, task: Task | None = None
) -> tuple[Explanation, Outcome]:
    """A task of this world, run to its end and explained."""
    proposals: Proposals = [*script, DONE]
    async with bank(client, folder, world, proposals) as stage:
        handle = await stage.start(task or "a task")
        ended = await outcome(handle)
        return explanation.explain_task(await fetch_history(client, handle, journal=True)), ended


def said(explained: Explanation) -> str:
    """What is said, a sentence a line."""
    return "\n".join(page.page_lines(explained, None))


FOUND_OUT = {
    "happened": (["lost"], ONE, "It was applied: its result was found, nothing was repeated.", "reconcile"),
    "did not": (["dead", "paid"], ONE, "It was not applied: the same step again.", "wait"),
    "refused": (
        ["dead", "refused"],
        KEYED,
        "It was not applied, and the same call would fail again: a new plan, no retry.",
        "replan",
    ),
}


@pytest.mark.parametrize(("calls", "first", "found", "decision"), sampled(FOUND_OUT, "happened"))
async def test_what_was_found_out_is_explained(
    client: Client, tmp_path: Path, calls: list[str], first: NewSteps, found: str, decision: str
) -> None:
    """The read that was asked, the wait before it is believed, the verdict, and what followed."""
    explained, _ = await told(client, tmp_path, World(calls), first, plan(step("two", "pay")))
    [item] = [one for one in explained.items if one.steps == ("one",) and one.decision != "retry"]

    assert (found in [one.text for one in item.then], item.decision) == (True, decision)
    assert item.events and item.cost.observations >= 1


async def test_the_wait_until_nothing_can_be_under_way_is_told_with_its_events(client: Client, tmp_path: Path) -> None:
    """The ledger, not found, a timer, found: each with its events; the timer is no wait for a retry."""
    explained, _ = await told(client, tmp_path, World(["late"]), ONE)
    then = explained.items[0].then

    leads = [one.text.partition(" was asked")[0][:9] for one in then]
    assert leads == ["The ledge", "find", "It waited", "find", "It was ap"]
    assert [len(one.events) for one in then] == [3, 3, 2, 3, 3]


@pytest.mark.full
async def test_a_step_that_was_found_is_completed_and_changed_the_world(client: Client, tmp_path: Path) -> None:
    """Although its own call failed: it counts as finished, with the result that was found."""
    explained, _ = await told(client, tmp_path, World(["lost"]), ONE)
    text, step_text = (said(explained), "\n".join(row.text for _, row in page.step_rows(explained.step("one"))))

    assert "1 of 1 step finished" in text and "Changed in the world: one (pay)." in text
    assert "completed after 1 attempt. It returned: id: 1." in step_text


async def test_nobody_can_tell(client: Client, tmp_path: Path) -> None:
    """A person has to look, and is told where the key is."""
    explained, _ = await told(client, tmp_path, World(["lost"], is_closed=True), ONE)
    text = said(explained)

    assert "Nobody knows whether it was applied: a person has to act." in text
    assert "May have changed the world, nobody knows: one (pay)." in text
    assert "starter.py effects" in text and "goes on from there" not in text


@pytest.mark.full
async def test_the_reads_are_no_steps(client: Client, tmp_path: Path) -> None:
    """What was asked on the way is neither a step of a plan nor an item of its own."""
    explained, ended = await told(client, tmp_path, World(["dead", "paid"]), ONE)

    assert (explained.story.step_ids, len(explained.items)) == (["one"], 1)
    assert explained.story.account.spent.tool_calls == ended.spent.tool_calls


@pytest.mark.full
async def test_the_tree_says_what_was_found_out(client: Client, tmp_path: Path) -> None:
    """Below the step's row, in the place of what followed."""
    _, ended = await told(client, tmp_path, World(["lost"]), ONE)

    assert "    it was applied -> its result was found, nothing was repeated" in tree.body(ended, None)


def test_asking_the_ledger_is_told_as_that() -> None:
    """A transactional call that may have committed: not a step, nor a tool of anybody's, but the ledger."""
    told = story(call(1, "a", "transactional", lost()), call(2, "a:reconcile", "find_effect"), verdict="applied")
    [item] = explanation.explain_task(told.history).items

    assert item.then[0].text.startswith("The ledger was asked whether it was applied, and found it")
    assert (item.decision, told.step_ids, [one.step_id for one in world.changes(told)]) == ("reconcile", ["a"], ["a"])


def test_what_is_being_found_out_is_told_as_it_stands() -> None:
    """While the read runs, and nothing is decided yet."""
    told = story(call(1, "a", "unkeyed", lost()), call(2, "a:reconcile", "read", closed=None))
    explained = explanation.explain_task(told.history)

    assert [one.text for one in explained.now] == [
        "The check whether a was applied (read) has been called and has not answered yet."
    ]
    assert "that has to be found out before anything else" in said(explained)


PAID_TWICE = plan(step("a", "charge"), step("b", "tell", "a"), step("c", "charge", "b"), step("last", "person", "c"))


async def test_a_rollback_is_explained(client: Client, tmp_path: Path) -> None:
    """What was undone with what, the newest first, and what stays and why; none of it is a step of a plan."""
    task = Task(text="a task", on_escalation="undo")
    explained, _ = await told(client, tmp_path, World(), PAID_TWICE, task=task)
    lines = page.page_lines(explained, None)
    back = [line.strip().partition(" [")[0].strip() for line in lines if line.startswith("  -  ")]

    assert back == ["-  c was undone with refund.", "-  a was undone with refund."]
    assert "Changed and undone: a (charge) and c (charge)." in said(explained)
    assert "Was to be undone and stays: b (tell has no undo)." in said(explained)
    assert explained.story.step_ids == ["a", "b", "c", "last"]


@pytest.mark.full
async def test_an_undo_that_fails_is_explained(client: Client, tmp_path: Path) -> None:
    """Refused: the step stays as it is, nobody plans anew, and what is left is undone all the same."""
    task = Task(text="a task", on_escalation="undo")
    world = World(["paid", "paid", "refused", "paid"])
    explained, _ = await told(client, tmp_path, world, PAID_TWICE, task=task)
    [item] = [one for one in explained.items if one.steps == ("c",)]

    assert item.what.text.startswith("Undoing c (refund) was rejected (conflict): It was paid already.")
    assert [one.text for one in item.then] == ["So the effect of c stays; the remaining effects are undone."]
    assert "a was undone with refund." in said(explained)


async def test_the_tree_shows_a_rollback_below_the_plans(client: Client, tmp_path: Path) -> None:
    """Each undone step with its sign, the calls that undid them, and what stays."""
    task = Task(text="a task", on_escalation="undo")
    _, ended = await told(client, tmp_path, World(), PAID_TWICE, task=task)
    lines = tree.body(ended, None)
    below = lines[lines.index(tree.UNDO_HEADING) :]

    assert [line.split()[:2] for line in lines if "↶" in line] == [["↶", "a"], ["↶", "c"]]
    assert [line.split()[1] for line in below[1:]] == ["stays:", "undo:c", "undo:a"]
