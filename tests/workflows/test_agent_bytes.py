"""What stands in a history, and how often: plans and results, on a real server."""

from activities.offline.planner import OfflinePlanner
from client.history.fetch import final_outcome
from replan import tool
from runtime import process
from tests.harness import DONE, plan, step
from tests.workflows.history import events
from tests.workflows.props import Said, Stages, Word, echo
from workflows.account.task import Task


@tool.read
async def write(args: Word) -> Said:
    """Say the word a thousand times, or more often."""
    return Said(said=args.word * 1_000)


async def test_the_outcome_has_what_only_the_history_keeps(stages: Stages) -> None:
    """The task writes no arguments and results of steps a second time; who asks for its Outcome gets them."""
    steps = plan(
        step("a", "echo", word="hi"),
        step("b", "echo", "a", word={"$from": "a", "path": "said"}),
        step("long", "write", word="x" * 9),
        step("fed", "echo", word={"$from": "long", "path": "said"}),
    )
    _, handle = await stages.ended([echo, write], [steps, DONE])
    written, outcome = await handle.result(), await final_outcome(stages.client, handle)
    completed = [event.workflow_task_completed_event_attributes for event in await events(handle)]
    reference = {"$from": "long", "path": "said"}

    assert [one.in_history for one in written.steps] == [True] * 4
    assert {(one.title, str(one.args), one.needs, one.result) for one in written.steps} == {("", "{}", (), None)}
    assert {one.id: (one.title, one.args, one.needs, one.result, one.result_omitted) for one in outcome.steps} == {
        "a": ("hi", {"word": "hi"}, (), {"said": "hi"}, False),
        "b": ("<a.said>", {"word": "hi"}, ("a",), {"said": "hi"}, False),
        "long": ("x" * 9, {"word": "x" * 9}, (), {"said": "x" * 9_000}, False),
        # longer arguments than an Outcome shows are told as they were planned
        "fed": ("<long.said>", {"word": reference}, ("long",), {"said": "x" * 9_000}, False),
    }
    assert not any(one.in_history for one in outcome.steps)
    # The version of Replan stands in each of these events.
    assert {one.worker_version.build_id for one in completed if one.scheduled_event_id} == {process.version()}


async def test_a_result_that_clients_may_not_be_able_to_read_stays_in_the_outcome(stages: Stages) -> None:
    """It may be in external storage, which only workers have."""
    _, handle = await stages.ended([write], [plan(step("a", "write", word="x" * 40)), DONE])

    assert [(one.in_history, one.result) for one in (await handle.result()).steps] == [(False, {"said": "x" * 40_000})]


async def test_arguments_stand_in_a_history_twice_and_results_once(stages: Stages) -> None:
    """Of a hand-written plan: in the task and in the call, and in what the call returned."""
    words = ["alpha-" * 5, "omega-" * 5]
    steps = (step("a", "echo", word=words[0]), step("b", "write", word=words[1]))
    _, handle = await stages.ended([echo, write], OfflinePlanner(), Task(text="by hand", plan=steps))
    whole = [event.SerializeToString() for event in await events(handle)]
    args = [sum(b'"word":"' + word.encode() in event for event in whole) for word in words]
    results = sum(b'"said":"' + words[1].encode() in event for event in whole)

    assert (args, results) == ([2, 2], 1)
