"""A keyed call that is cancelled during its retry backoff, after attempts that may have been applied: all ask alike."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client

from client.effects import EffectState, fetch_effects
from client.explain import explanation, page
from client.follow import View
from client.history.fetch import fetch_history
from client.history.story import Story
from client.problem import Problem
from client.reset import reset
from client.tasks import Handle
from client.undo import undo
from console.commands.show import show
from console.options import Common
from tests.console.deeds import World, tools
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow


@asynccontextmanager
async def cancelled(client: Client, folder: Path) -> AsyncIterator[Handle]:
    """A task whose payment was lost three times, and that was cancelled before the fourth attempt."""
    script: Proposals = [plan(step("one", "charge")), DONE]
    async with staged(client, folder, tools(World(["lost"] * 4)), script, jitter=lambda: 1.0) as stage:
        task: Handle = client.get_workflow_handle_for(AgentWorkflow.run, (await stage.start("a task")).id)
        async with asyncio.timeout(20):
            while not await is_in_backoff(task, attempt=4):
                await asyncio.sleep(0.02)
        await task.cancel()
        assert (await outcome(task)).status is TaskStatus.CANCELLED
        yield task


async def is_in_backoff(task: Handle, attempt: int) -> bool:
    """Whether the server waits for this attempt."""
    pending = (await task.describe()).raw_description.pending_activities
    waits = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return any((one.activity_id, one.attempt, one.state) == ("one", attempt, waits) for one in pending)


@pytest.mark.full
async def test_the_history_does_not_tell_that_attempts_were_made(client: Client, tmp_path: Path) -> None:
    """The server writes no start of the attempts; so a call that could be retried counts as one that was."""
    async with cancelled(client, tmp_path) as task:
        [call] = (await fetch_history(client, task)).of_step("one")

    assert (call.closed, call.started, call.earlier, call.last) == ("cancelled", None, (), None)


async def test_it_may_have_changed_the_world_for_all(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`effects`, `explain`, `show` and `reset` say so, and `undo` finds out and takes it back."""
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

    doubt = "May have changed the world, nobody knows: one (charge)."
    assert [(one.step, one.state) for one in listed] == [("one", EffectState.UNKNOWN)]
    assert any(doubt in line for line in lines) and doubt in shown
    assert [(one.step_id, one.done) for one in rollback.outcome.undo] == [("one", True)]
    assert [(one.step, one.state) for one in after] == [("one", EffectState.UNDONE), ("undo:one", EffectState.APPLIED)]
