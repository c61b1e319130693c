"""Local activities of a task, on a real server: what runs in the workflow task, and what follows if it fails there."""

from activities.offline.planner import OfflinePlanner
from client.history.fetch import fetch_history
from client.history.records import CallEnd
from client.history.story import Story
from tests.harness import outcome, step
from tests.workflows.history import calls, events, kinds
from tests.workflows.props import Stages, echo
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code
from workflows.plans.proposal import BY_HAND

ONE = Task(text="by hand", plan=(step("a", "echo", word="x"),))


async def test_a_plan_without_a_model_needs_no_round_trip_but_its_steps(stages: Stages) -> None:
    """The catalogue, the first plan and the answer are local: only the step is an activity of the server."""
    ended, handle = await stages.ended([echo], OfflinePlanner(), ONE)
    types = [event.WhichOneof("attributes") for event in await events(handle)]
    story = Story(await fetch_history(stages.client, handle))

    assert (ended.status, ended.planner, await kinds(handle)) == (
        TaskStatus.COMPLETED,
        BY_HAND,
        ["catalogue", "echo", "plan"],
    )
    assert types.count("activity_task_scheduled_event_attributes") == 1
    assert types.count("workflow_task_completed_event_attributes") == 2
    assert [(call.id, call.closed) for call in story.history.calls] == [
        (id, CallEnd.COMPLETED) for id in ("catalogue", "plan:1", "a", "plan:2")
    ]
    assert [one.id for one in story.plans[0].steps] == ["a"]


async def test_a_local_activity_that_fails_is_followed_by_an_ordinary_one(stages: Stages) -> None:
    """Another worker may take it, the server retries it, and its waits are timers."""
    async with stages([echo], OfflinePlanner(), breaks=["plan=unreachable:3"]) as stage:
        handle = await stage.start(ONE)
        ended = await outcome(handle)
        scheduled = [call.kind for call in await calls(handle) if call.header]
        history = await fetch_history(stages.client, handle)

    assert (ended.status, ended.planner) == (TaskStatus.COMPLETED, BY_HAND)
    assert scheduled == ["catalogue", "plan", "echo"]
    assert [(call.id, call.closed) for call in history.calls][:4] == [
        ("catalogue", CallEnd.FAILED),
        ("catalogue", CallEnd.COMPLETED),
        ("plan:1", CallEnd.FAILED),
        ("plan:1", CallEnd.COMPLETED),
    ]
    assert [one.code for call in history.calls if (one := call.failing)] == [Code.UNREACHABLE] * 2
