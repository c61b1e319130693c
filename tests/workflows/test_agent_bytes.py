"""What stands in a history, and how often: plans and results, on a real server."""

from pathlib import Path

from temporalio.client import Client

from activities.offline.planner import OfflinePlanner
from client.history.fetch import final_outcome
from replan import tool
from runtime import process
from tests.harness import DONE, plan, staged, step
from tests.workflows.history import events
from tests.workflows.props import Said, Word, echo
from workflows.account.outcome import OutcomeStep
from workflows.account.task import Task


@tool.read
async def write(args: Word) -> Said:
    """Say the word a thousand times, or more often."""
    return Said(said=args.word * 1_000)


def told(steps: tuple[OutcomeStep, ...]) -> dict[str, tuple[object, ...]]:
    """What an Outcome tells of each step, for people and for programs."""
    return {one.id: (one.title, one.args, one.needs, one.result, one.result_omitted) for one in steps}


async def test_the_outcome_has_what_only_the_history_keeps(client: Client, tmp_path: Path) -> None:
    """The task writes no arguments and results of steps a second time; who asks for its Outcome gets them."""
    steps = plan(
        step("a", "echo", word="hi"),
        step("b", "echo", "a", word={"$from": "a", "path": "said"}),
        step("long", "write", word="x" * 9),
        step("fed", "echo", word={"$from": "long", "path": "said"}),
    )
    async with staged(client, tmp_path, [echo, write], [steps, DONE]) as stage:
        handle = await stage.start()
        written = await handle.result()
        outcome = await final_outcome(client, handle)
    reference = {"$from": "long", "path": "said"}

    assert [one.in_history for one in written.steps] == [True] * 4
    assert {(one.title, str(one.args), one.needs, one.result) for one in written.steps} == {("", "{}", (), None)}
    assert told(outcome.steps) == {
        "a": ("hi", {"word": "hi"}, (), {"said": "hi"}, False),
        "b": ("<a.said>", {"word": "hi"}, ("a",), {"said": "hi"}, False),
        "long": ("x" * 9, {"word": "x" * 9}, (), {"said": "x" * 9_000}, False),
        # longer arguments than an Outcome shows are told as they were planned
        "fed": ("<long.said>", {"word": reference}, ("long",), {"said": "x" * 9_000}, False),
    }
    assert not any(one.in_history for one in outcome.steps)


async def test_a_result_that_clients_may_not_be_able_to_read_stays_in_the_outcome(
    client: Client, tmp_path: Path
) -> None:
    """It may be in external storage, which only workers have."""
    async with staged(client, tmp_path, [write], [plan(step("a", "write", word="x" * 40)), DONE]) as stage:
        handle = await stage.start()
        written = await handle.result()

    assert [(one.in_history, one.result) for one in written.steps] == [(False, {"said": "x" * 40_000})]


async def test_arguments_stand_in_a_history_twice_and_results_once(client: Client, tmp_path: Path) -> None:
    """Of a hand-written plan: in the task and in the call, and in what the call returned."""
    words = ["alpha-" * 5, "omega-" * 5]
    steps = (step("a", "echo", word=words[0]), step("b", "write", word=words[1]))
    async with staged(client, tmp_path, [echo, write], OfflinePlanner()) as stage:
        handle = await stage.start(Task(text="by hand", plan=steps))
        await handle.result()
        whole = [event.SerializeToString() for event in await events(handle)]
    args = [sum(b'"word":"' + word.encode() in event for event in whole) for word in words]
    results = sum(b'"said":"' + words[1].encode() in event for event in whole)

    assert (args, results) == ([2, 2], 1)


async def test_a_history_tells_the_version_of_replan_that_ran_the_task(client: Client, tmp_path: Path) -> None:
    """It stands in each of these events, so it is short."""
    async with staged(client, tmp_path, [echo], [plan(step("a", "echo", word="hi")), DONE]) as stage:
        handle = await stage.start()
        await handle.result()
        completed = [event.workflow_task_completed_event_attributes for event in await events(handle)]

    assert {one.worker_version.build_id for one in completed if one.scheduled_event_id} == {process.version()}
