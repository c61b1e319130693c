"""`undo`, `cancel`, `reset` without an id: a person at a terminal confirms the newest task, else they are refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.tasks import CALL_MEMO, TASK_MEMO, TASKS, Handle
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.console.server_lists import listed
from tests.console.terminal import Terminal, starter
from tests.gate import sampled
from tests.processes import ROOT, Processes
from workflows.account.task import Task
from workflows.agent import AgentWorkflow


@pytest.fixture(scope="module")
async def alone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A server without the tasks of other tests, one of which could be the newest."""
    folder = tmp_path_factory.mktemp("alone")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes={})
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@asynccontextmanager
async def waiting(server: DevServer) -> AsyncIterator[Handle]:
    """The newest task, which no worker takes; before it began an older task, and after it a call."""
    client = await connect(address=server.address, plain=True)
    memos = {"older": {TASK_MEMO: "wait"}, "newest": {TASK_MEMO: "wait for nobody"}, "call-x": {CALL_MEMO: "x"}}
    for id, memo in memos.items():
        await client.start_workflow(AgentWorkflow.run, Task(text="wait"), id=id, task_queue="nobody", memo=memo)
    try:
        await listed(client, f"{TASKS} AND ExecutionStatus = 'Running'", len(memos))
        yield client.get_workflow_handle_for(AgentWorkflow.run, "newest")
    finally:
        for id in memos:
            await client.get_workflow_handle(id).terminate()


async def is_cancelled(task: Handle) -> bool:
    history = [event async for event in task.fetch_history_events()]
    return any(event.HasField("workflow_execution_cancel_requested_event_attributes") for event in history)


async def test_without_a_terminal_nothing_is_guessed(alone: DevServer, tmp_path: Path) -> None:
    """The refusal names the task, so that a person can copy it, and the option with which a script goes on. With that
    it is the newest task of those that `start` began: a call is over in a moment, and whoever tries a tool means no
    other task by it. At a terminal nobody is asked about a step that is not there: an answer would change nothing, so
    the mistake is reported instead of the question."""
    console = Processes(alone.address, tmp_path).starter
    async with waiting(alone) as task:
        for command in (("undo",), ("cancel",), ("reset", "--to", "x")):
            refused = await asyncio.to_thread(console, *command, "--json")
            error = json.loads(refused.stdout)["error"]

            assert (refused.returncode, error["code"], await is_cancelled(task)) == (2, "not_confirmed", False)
            assert f"`python starter.py {command[0]} newest`" in error["remedy"] and "--yes" in error["remedy"]
        with Terminal(starter(ROOT, "reset", "--to", "nope"), {"TEMPORAL_ADDRESS": alone.address}, ROOT) as window:
            ended = await window.ended()
        done = await asyncio.to_thread(console, "cancel", "--yes", "--json")

        assert (json.loads(done.stdout)["task_id"], await is_cancelled(task)) == ("newest", True)
    shown = " ".join(window.shown.text)
    assert ended == 2 and "has no step 'nope'" in shown and "Type y or n" not in shown


TYPED = {
    "y": ("y\n", 0),
    "yes": ("yes\n", 0),
    "capitals": (" YES \n", 0),
    "n": ("n\n", 1),
    "no": ("No\n", 1),
    "Enter": ("\n", 1),
    "another word": ("yess\n", 1),
    "Ctrl-D": ("\x04", 1),
    "Ctrl-C": ("\x03", 130),
}


@pytest.mark.parametrize(("typed", "code"), sampled(TYPED, "y", "capitals", "Enter", "Ctrl-C"))
async def test_a_person_is_asked(alone: DevServer, typed: str, code: int) -> None:
    """`y` and `yes` are yes, and everything else is no: Enter alone, too, and Ctrl-C and Ctrl-D change nothing."""
    async with waiting(alone) as task:
        with Terminal(starter(ROOT, "cancel"), {"TEMPORAL_ADDRESS": alone.address}, ROOT) as window:
            await window.until("then Enter: ")
            window.press(typed)
            ended = await window.ended()

        assert (ended, await is_cancelled(task)) == (code, code == 0), window.shown.text
    assert window.shown.text[0].startswith("The newest task is newest, started ")
    assert window.shown.text[0].endswith("Z: wait for nobody")


async def test_what_was_typed_before_the_question_is_no_answer(alone: DevServer) -> None:
    """Keys that were meant for something else change nothing."""
    async with waiting(alone) as task:
        with Terminal(starter(ROOT, "cancel"), {"TEMPORAL_ADDRESS": alone.address}, ROOT) as window:
            window.press("yes\n")
            await window.until("then Enter: ")
            window.press("no\n")
            ended = await window.ended()

        assert (ended, await is_cancelled(task)) == (1, False)
