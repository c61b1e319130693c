"""Conversations that outlive a run, a task, a summary and a reset, all at once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from evals.fakes.script import ModelReply
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.harness import outcome
from tests.providers.acting import acting, reacting
from tests.providers.plates import GOAL, read_plate
from tests.providers.test_compaction import WINDOW
from tests.providers.test_react_reset import newest
from tests.providers.visitor import FOUND, visitor
from tests.workflows.test_agent_long import EARLY, runs
from tests.workflows.test_agent_reset import again
from workflows.account import search_attributes
from workflows.account.task import TaskStatus


@pytest.fixture(scope="module")
async def early(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new run after 20 events."""
    folder = tmp_path_factory.mktemp("early")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=EARLY)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield await connect(address=server.address, plain=True)


@pytest.mark.full
async def test_a_new_run_goes_on_in_the_conversation(early: Client, tmp_path: Path, provider: str) -> None:
    """With its summaries, and no turn is asked for twice; nor after a reset of the newest run."""
    async with acting(early, tmp_path, provider, visitor, window=WINDOW, known=WINDOW, tools=[read_plate]) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        ended = await outcome(handle)
        parts, asked = await runs(early, handle), len(one.api.bodies)
        second = await again(one.stage, newest(early, handle.id), "catalogue")

    assert (ended.status, ended.result, ended.spent.model_calls) == (TaskStatus.COMPLETED, FOUND, asked)
    assert (len(parts) > 3, len(ended.compactions) > 0, one.api.violations) == (True, True, [])
    assert (second.result, len(one.api.bodies)) == (FOUND, asked)


@pytest.mark.parametrize("before", ["compact", "after"])
@pytest.mark.full
async def test_a_reset_to_a_summary_asks_for_nothing(
    client: Client, tmp_path: Path, provider: str, before: str
) -> None:
    """It was recorded as every turn is."""
    async with acting(client, tmp_path, provider, visitor, window=WINDOW, known=WINDOW, tools=[read_plate]) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        ended, asked = await outcome(handle), len(one.api.bodies)
        turn = ended.compactions[0].turn
        place = f"compact:{turn}" if before == "compact" else f"plan:{turn + 1}"
        second = await again(one.stage, newest(client, handle.id), place)

    assert (second.result, len(one.api.bodies), one.api.violations) == (FOUND, asked, [])
    assert second.compactions == ended.compactions


async def test_a_task_carries_on_what_was_summarised(client: Client, tmp_path: Path, provider: str) -> None:
    """Twice over: the new goals are told word for word, and what was found before is still known."""

    async with acting(client, tmp_path, provider, visitor, window=WINDOW, known=WINDOW, tools=[read_plate]) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        await outcome(handle)
        one.api.script[:] = [lambda heard: ModelReply(text="Known." if FOUND in heard.all_text else "Lost.")]
        more = {"continues": handle.first_execution_run_id}
        second = await one.stage.start(reacting("say it again", more=more))
        again = await outcome(second)
        third = await one.run("and again", more={"continues": second.first_execution_run_id})

    assert (again.result, third.result, one.api.violations) == ("Known.", "Known.", [])
    assert "say it again" in one.api.requests[-1].all_text and "and again" in one.api.requests[-1].all_text
