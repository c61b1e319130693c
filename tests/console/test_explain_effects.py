"""What is known of effects, call by call, and what `explain`, `show` and `undo` say of those that may have happened."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client

from client import effects
from client.effects import EffectState, fetch_effects
from client.explain import explanation, page, world
from client.explain.explanation import Explanation
from client.follow import View
from client.history.fetch import fetch_history
from client.history.records import Call, CallEnd
from client.history.story import Story
from client.problem import Problem
from client.reset import reset
from client.tasks import Handle
from client.undo import undo
from console.commands.show import show
from console.options import Common
from tests.console.deeds import World, bank, tools
from tests.console.made import BEGAN, call, lost, refused, story
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Applied, Fault
from workflows.inquiries import EffectCard
from workflows.plans.proposal import NewSteps


async def told(client: Client, folder: Path, world: World, *script: NewSteps, **more: Any) -> Explanation:
    """A task of this world, run to its end and explained."""
    proposals: Proposals = [*script, DONE]
    async with bank(client, folder, world, proposals) as stage:
        handle = await stage.start(Task(text="a task", **more))
        await outcome(handle)
        return explanation.explain_task(await fetch_history(client, handle, journal=True))


def said(explained: Explanation) -> str:
    return "\n".join(page.page_lines(explained, None))


ONE, KEYED = plan(step("one", "pay")), plan(step("one", "charge"))
WOULD_FAIL = "It was not applied, and the same call would fail again: a new plan, no retry."
FOUND_OUT: dict[str, tuple[list[str], NewSteps, str, str]] = {
    "happened": (["lost"], ONE, "It was applied: its result was found, nothing was repeated.", "reconcile"),
    "did not": (["dead", "paid"], ONE, "It was not applied: the same step again.", "wait"),
    "refused": (["dead", "refused"], KEYED, WOULD_FAIL, "replan"),
}


@pytest.mark.parametrize(("calls", "first", "found", "decision"), sampled(FOUND_OUT, "happened"))
async def test_what_was_found_out_is_explained(
    client: Client, tmp_path: Path, calls: list[str], first: NewSteps, found: str, decision: str
) -> None:
    """The read that was asked, the wait before it is believed, the verdict, and what followed. What was asked on the
    way is neither a step of a plan nor an item of its own. A step that was found is finished, although its own call
    failed, with the result that was found."""
    explained = await told(client, tmp_path, World(calls), first, plan(step("two", "pay")))
    [item] = [one for one in explained.items if one.steps == ("one",) and one.decision != "retry"]
    step_text = "\n".join(row.text for _, row in page.step_rows(explained.step("one")))

    assert (found in [one.text for one in item.then], item.decision) == (True, decision)
    assert item.events and item.cost.observations >= 1
    assert set(explained.story.step_ids) <= {"one", "two"}
    if decision == "reconcile":
        assert "Changed in the world: one (pay)" in said(explained)
        assert "completed after 1 attempt. It returned: id: 1." in step_text


async def test_the_wait_until_nothing_can_be_under_way_is_told_with_its_events(client: Client, tmp_path: Path) -> None:
    """The ledger, not found, a timer, found: each with its events; the timer is no wait for a retry."""
    then = (await told(client, tmp_path, World(["late"]), ONE)).items[0].then

    leads = [one.text.partition(" was asked")[0][:9] for one in then]
    assert leads == ["The ledge", "find", "It waited", "find", "It was ap"]
    assert [len(one.events) for one in then] == [3, 3, 2, 3, 3]


async def test_nobody_can_tell(client: Client, tmp_path: Path) -> None:
    """A person has to look, and is told where the key is."""
    text = said(await told(client, tmp_path, World(["lost"], is_closed=True), ONE))

    assert "Nobody knows whether it was applied: a person has to act." in text
    assert "May have changed the world, nobody knows: one (pay)." in text
    assert "starter.py effects" in text and "goes on from there" not in text


def test_asking_the_ledger_is_told_as_that() -> None:
    """A transactional call that may have committed: not a step, nor a tool of anybody's, but the ledger. While a read
    runs, and nothing is decided yet, it is told as it stands."""
    told = story(call(1, "a", "transactional", lost()), call(2, "a:reconcile", "find_effect"), verdict="applied")
    [item] = explanation.explain_task(told.history).items
    runs = story(call(1, "a", "unkeyed", lost()), call(2, "a:reconcile", "read", closed=None))
    explained = explanation.explain_task(runs.history)

    assert item.then[0].text.startswith("The ledger was asked whether it was applied, and found it")
    assert (item.decision, told.step_ids, [one.step_id for one in world.changes(told)]) == ("reconcile", ["a"], ["a"])
    now = "The check whether a was applied (read) has been called and has not answered yet."
    assert [one.text for one in explained.now] == [now]
    assert "that has to be found out before anything else" in said(explained)


PAID_TWICE = plan(step("a", "charge"), step("b", "tell", "a"), step("c", "charge", "b"), step("last", "person", "c"))


async def test_a_rollback_is_explained(client: Client, tmp_path: Path) -> None:
    """What was undone with what, the newest first, and what stays and why; none of it is a step of a plan."""
    explained = await told(client, tmp_path, World(), PAID_TWICE, on_escalation="undo")
    lines = page.page_lines(explained, None)
    back = [line.strip().partition(" [")[0].strip() for line in lines if line.startswith("  -  ")]

    assert back == ["-  c was undone with refund.", "-  a was undone with refund."]
    assert "Changed and undone: a (charge) and c (charge)." in said(explained)
    assert "Was to be undone and stays: b (tell has no undo)." in said(explained)
    assert explained.story.step_ids == ["a", "b", "c", "last"]


@pytest.mark.full
async def test_an_undo_that_fails_is_explained(client: Client, tmp_path: Path) -> None:
    """Refused: the step stays as it is, nobody plans anew, and what is left is undone all the same."""
    world = World(["paid", "paid", "refused", "paid"])
    explained = await told(client, tmp_path, world, PAID_TWICE, on_escalation="undo")
    [item] = [one for one in explained.items if one.steps == ("c",)]

    assert item.what.text.startswith("Undoing c (refund) was rejected (conflict): It was paid already.")
    assert [one.text for one in item.then] == ["So the effect of c stays; the remaining effects are undone."]
    assert "a was undone with refund." in said(explained)


@asynccontextmanager
async def cancelled(client: Client, folder: Path) -> AsyncIterator[Handle]:
    """A task whose payment was lost three times, and that was cancelled in the backoff before the fourth attempt."""
    script: Proposals = [plan(step("one", "charge")), DONE]
    waits = ("one", 4, PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED)
    async with staged(client, folder, tools(World(["lost"] * 4)), script, jitter=lambda: 1.0) as stage:
        task: Handle = client.get_workflow_handle_for(AgentWorkflow.run, (await stage.start("a task")).id)
        async with asyncio.timeout(20):
            while waits not in [
                (one.activity_id, one.attempt, one.state)
                for one in (await task.describe()).raw_description.pending_activities
            ]:
                await asyncio.sleep(0.02)
        await task.cancel()
        assert (await outcome(task)).status is TaskStatus.CANCELLED
        yield task


async def test_it_may_have_changed_the_world_for_all(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`effects`, `explain`, `show` and `reset` say so, and `undo` finds out and takes it back. The server writes no
    start of the attempts; so a call that could be retried counts as one that was."""
    async with cancelled(client, tmp_path) as task:
        story = Story(await fetch_history(client, task, journal=True))
        listed = await fetch_effects(client, story, ())
        lines = page.page_lines(explanation.explain_task(story.history), None)
        await show(client, task, Common())
        shown = capsys.readouterr().out
        with pytest.raises(Problem, match=r"'one' \(charge\) may have been applied after 'plan:1' and stands"):
            await reset(client, task, to="plan:1", reason="a test")
        rollback = await undo(client, task, View())
        after = await fetch_effects(client, Story(await fetch_history(client, task)), ())

    [call] = story.history.of_step("one")
    assert (call.closed, call.started, call.earlier, call.last) == ("cancelled", None, (), None)
    doubt = "May have changed the world, nobody knows: one (charge)."
    assert [(one.step, one.state) for one in listed] == [("one", EffectState.UNKNOWN)]
    assert any(doubt in line for line in lines) and doubt in shown
    assert [(one.step_id, one.done) for one in rollback.outcome.undo] == [("one", True)]
    undone = [("one", EffectState.UNDONE), ("undo:one", EffectState.APPLIED)]
    assert [(one.step, one.state) for one in after] == undone


def card(id: str, kind: str, **more: object) -> EffectCard:
    given = {"key": f"run/{id}", "step": id, "kind": kind, "at": BEGAN, "result": None, **more}
    return EffectCard.model_validate(given)


CALLS: dict[str, tuple[list[Call], list[str]]] = {
    "nothing": ([call(1, "a", "keyed", lost(Applied.NONE))], []),
    "unknown": ([call(1, "a", "keyed", lost())], ["unknown"]),
    "unknown, then done": ([call(1, "a", "keyed", lost()), call(2, "a", "keyed")], ["applied"]),
    "done, and refused": ([call(1, "a", "keyed", lost(Applied.APPLIED))], ["applied"]),
    "runs": ([call(1, "a", "unkeyed", closed=None)], ["unknown"]),
    "stopped": ([call(1, "a", "unkeyed", closed=CallEnd.CANCELLED)], ["unknown"]),
    "undone": ([call(1, "a", "keyed"), call(2, "undo:a", "keyed")], ["undone", "applied"]),
    "not undone": ([call(1, "a", "keyed"), call(2, "undo:a", "keyed", refused())], ["applied"]),
    "perhaps undone": ([call(1, "a", "keyed"), call(2, "undo:a", "keyed", lost())], ["applied", "unknown"]),
    "a read": ([call(1, "a", "read")], []),
}


@pytest.mark.parametrize(("calls", "expected"), CALLS.values(), ids=CALLS)
def test_a_history_tells_what_is_known(calls: list[Call], expected: list[str]) -> None:
    """What was sure stays sure, what had not happened is forgotten, and what nobody knows is said to be so."""
    assert [one.state for one in effects.all_effects(story(*calls), None, [])] == expected


@pytest.mark.parametrize(
    ("verdict", "expected"), [("applied", ["applied"]), ("not_applied", []), ("cannot_tell", ["unknown"])]
)
def test_what_reconciliation_found_out_decides(verdict: str, expected: list[str]) -> None:
    """As the task recorded it, whatever the read returned; or as the rollback did, whether it could take it back."""
    unknown = call(1, "a", "unkeyed", lost())
    told = story(unknown, call(2, "a:reconcile", "read", refused()), verdict=verdict)
    found = effects.all_effects(story(unknown), story(unknown, verdict=verdict), [])
    looked = effects.all_effects(story(unknown), story(call(2, "a:reconcile", "read")), [])

    assert [one.state for one in effects.all_effects(told, None, [])] == expected
    assert [one.state for one in found] == (expected if verdict != "applied" else ["applied"])
    assert [one.state for one in looked] == ["applied"]


UNDONE = {"undone_at": BEGAN + timedelta(seconds=2), "undone_by": "run/undo:a"}
CARDS: dict[str, tuple[str, Fault | None, dict[str, object], str]] = {
    "committed": ("transactional", lost(), {"result": {"id": 1}}, "applied"),
    "claimed": ("unkeyed", lost(), {}, "unknown"),
    "answered": ("unkeyed", lost(), {"result": {"id": 1}}, "applied"),
    "undone later": ("keyed", None, UNDONE, "undone"),
}


@pytest.mark.parametrize(("kind", "fault", "row", "expected"), CARDS.values(), ids=CARDS)
def test_a_ledger_knows_better(kind: str, fault: Fault | None, row: dict[str, object], expected: str) -> None:
    """Its row decides, but a claim says no more than the history, and a row of another run is of another task."""
    [one] = effects.all_effects(story(call(1, "a", kind, fault)), None, [card("a", kind, **row)])

    assert one.state == expected
    assert effects.all_effects(story(), None, [card("a", "keyed", key="other/a")]) == []


def test_an_undo_that_was_wanted_twice_happened_when_it_did() -> None:
    """The second rollback only heard of it; the ledger knows the moment."""
    task, rollback = story(call(1, "a", "keyed")), story(call(60, "undo:a", "keyed"))
    found = effects.all_effects(task, rollback, [card("a", "keyed", **UNDONE)])

    assert [one.at for one in found] == [BEGAN + timedelta(seconds=1), BEGAN + timedelta(seconds=2)]


CANCELLED = {
    ("unkeyed", 4): EffectState.NONE,
    ("keyed", 1): EffectState.NONE,
    ("keyed", 4): EffectState.UNKNOWN,
    ("idempotent", 4): EffectState.UNKNOWN,
    ("transactional", 0): EffectState.UNKNOWN,
    ("read", 4): EffectState.NONE,
}


@pytest.mark.parametrize(("kind", "allowed"), CANCELLED)
def test_a_call_without_a_written_start_may_have_been_retried(kind: str, allowed: int) -> None:
    """It was cancelled while it waited for a worker, or in a backoff: only one that may be repeated gets there."""
    stopped = call(1, "a", kind, closed=CallEnd.CANCELLED)
    stopped.started, stopped.attempt, stopped.allowed = None, 0, allowed

    assert effects.effect_of(story(stopped), stopped) is CANCELLED[kind, allowed]


EARLIER = {
    ("keyed", Applied.UNKNOWN): EffectState.UNKNOWN,
    ("idempotent", Applied.UNKNOWN): EffectState.UNKNOWN,
    ("transactional", Applied.UNKNOWN): EffectState.NONE,
    ("unkeyed", Applied.UNKNOWN): EffectState.NONE,
    ("keyed", Applied.NONE): EffectState.NONE,
}


@pytest.mark.parametrize(("kind", "earlier"), EARLIER)
def test_a_rejection_does_not_prove_that_an_earlier_attempt_had_no_effect(kind: str, earlier: Applied) -> None:
    """But the ledger of a transactional kind does."""
    rejected = call(1, "a", kind, refused())
    rejected.attempt, rejected.earlier = 2, (lost(earlier).model_copy(update={"attempt": 1}),)

    assert effects.effect_of(story(rejected), rejected) is EARLIER[kind, earlier]


def test_what_cannot_be_read_may_have_been_an_effect() -> None:
    """Without the catalogue nobody knows what a kind changes."""
    told = story(call(1, "a", "keyed"))
    told.history.catalogue = None

    assert [(one.state, one.effect) for one in effects.all_effects(told, None, [])] == [("unknown", None)]


def test_a_rollback_has_the_keys_of_what_it_undoes() -> None:
    """A step named undo is none, although its key begins as theirs; after the end they are of another workflow."""
    ids = ["undo", "a", "undo:undo", "undo:a"]
    within = effects.all_effects(story(*(call(at, id, "keyed") for at, id in enumerate(ids, 1))), None, [])
    after = effects.all_effects(story(call(1, "a", "keyed")), story(call(2, "undo:a", "keyed")), [])

    assert {one.key: one.state for one in within} == {
        **{"run/undo": "undone", "run/a": "undone"},
        **{"run/undo:undo": "applied", "run/undo:a": "applied"},
    }
    undone, undo = ("run/a", "undone", "run/undo:a"), ("run/undo:a", "applied", None)
    assert [(one.key, one.state, one.undone_by) for one in after] == [undone, undo]
