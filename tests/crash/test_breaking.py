"""Tools that break what they share with the worker: it ends, says by whom, and leaves nothing behind."""

import asyncio
import os
import re
import signal
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer
from tests.crash.test_exits import Place
from tests.harness import outcome, step
from tests.mcp.foreign import table, wait_until, written
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow

TOOLS = Path(__file__).with_name("breaking.py")


class Broken(Place):
    """A place with the tools that break things."""

    @property
    def options(self) -> tuple[str, ...]:
        return ("--tools", str(TOOLS), "--queue", self.queue, "--planner", "offline", "--log", "json")

    async def begin(self, *kinds: str) -> None:
        """Start a task for each kind, which calls it, and wait for no end."""
        for kind in kinds:
            task = Task(text="a task", plan=(step("a", kind, file=str(self.notes), word=kind),), plan_only=True)
            await self.client.start_workflow(AgentWorkflow.run, task, id=uuid.uuid4().hex, task_queue=self.queue)


@pytest.fixture
def place(client: Client, server: DevServer, tmp_path: Path) -> Broken:
    """A place on the shared server."""
    return Broken(server.address, tmp_path, client)


REPLACED = {
    "replace_factory": "the task factory of the event loop of all tools by _broken",
    "spoil_tasks": "asyncio.Task by _broken",
    "replace_dumps": "json.dumps by _broken",
    "replace_loads": "json.loads by _broken",
}


@pytest.mark.parametrize(
    "kind", [kind if kind == "replace_dumps" else pytest.param(kind, marks=pytest.mark.full) for kind in REPLACED]
)
@pytest.mark.timeout(120)
async def test_a_worker_whose_tool_replaces_what_it_needs_ends(place: Broken, kind: str) -> None:
    """In order, with the exit code of a failure; the message names the function, its file and its line."""
    with place.worker(*place.options) as worker:
        await place.begin(kind)
        said, _ = await asyncio.to_thread(worker.communicate, timeout=60)
    log = (place.folder / "worker.log").read_text()

    assert worker.returncode == 1, said + log
    assert re.search(f"replaced {re.escape(REPLACED[kind])} of \\S+breaking.py:[0-9]+, which does not work", said + log)
    assert "The worker stopped: start it again" in said + log and "Traceback" not in said


@pytest.mark.timeout(120)
async def test_a_worker_serves_on_with_what_works(place: Broken) -> None:
    """A library may replace a function by its own."""
    with place.worker(*place.options) as worker:
        found = [await place.call(kind, kind) for kind in ("use_factory", "use_json", "pay", "pay_in_thread")]
        worker.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.wait, 20)

    assert [each.status for each in found] == [TaskStatus.COMPLETED] * 4 and code == 0


@pytest.mark.timeout(120)
async def test_a_child_that_a_tool_forks_is_no_second_worker(place: Broken) -> None:
    """It ends as soon as it goes on with Replan's code, and names the tool; the worker goes on."""
    kinds = ("fork_in_thread", "fork_and_raise", "fork_on_loop", "fork_and_wait", "fork_and_exit")
    with place.worker(*place.options) as worker:
        found = [await place.call(kind, kind) for kind in (*kinds, "pay", "pay_in_thread")]
        children = psutil.Process(worker.pid).children
        is_alone = await asyncio.to_thread(
            wait_until, lambda: all(child.status() == psutil.STATUS_ZOMBIE for child in children())
        )
    log = (place.folder / "worker.log").read_text()

    assert is_alone and [each.status for each in found] == [TaskStatus.COMPLETED] * 7
    named = [
        kind for kind in kinds if re.search(f"{kind}.* forked the worker's process, and went on in the child", log)
    ]
    assert named == ["fork_in_thread", "fork_and_raise", "fork_on_loop", "fork_and_wait"]


ODD = """import json, os
from pydantic import BaseModel
from replan import tool

class A(BaseModel):
    a: str

@tool.read
def look(args: A) -> A:
    "Look."
    return args
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("json.dumps = lambda *args, **options: 1 / 0", "replaced json.dumps by <lambda> of "),
        # The worker waits, so that the child has said it before the worker ends.
        (
            "child = os.fork()\nif child:\n    os.waitpid(child, 0)",
            "forked the worker's process, and went on in the child",
        ),
    ],
)
def test_a_tools_file_that_does_it_while_it_is_loaded_is_named(place: Broken, line: str, said: str) -> None:
    """With exit code 1, before the worker serves; of two processes, the first goes on."""
    file = written(place.folder, f"{ODD}\n{line}\n", "odd.py")
    checked = place.asked("--check", "--tools", str(file))

    assert said in checked.stderr + checked.stdout and str(file) in checked.stderr + checked.stdout
    assert checked.returncode == ("fork" not in line)


@pytest.mark.timeout(120)
async def test_the_servers_of_a_killed_worker_end_although_its_forks_live(place: Broken) -> None:
    """What a tool has forked has the worker's end of the pipe by which a server is told."""
    file = written(place.folder, table("ok"))
    with place.worker(*place.options, "--tools", str(file)) as worker:
        task = Task(text="a task", plan=(step("a", "shop.look", text="a"),), plan_only=True)
        handle = await place.client.start_workflow(AgentWorkflow.run, task, id=uuid.uuid4().hex, task_queue=place.queue)
        await outcome(handle)
        await place.call("fork_for_long", "a")
        fork = int(place.notes.read_text())
        servers = [each for each in psutil.Process(worker.pid).children(recursive=True) if each.pid != fork]
        worker.kill()
        await asyncio.to_thread(worker.wait, 20)
        ended = await asyncio.to_thread(wait_until, lambda: not any(each.is_running() for each in servers), 20)
        is_forked = psutil.pid_exists(fork)
        with suppress(ProcessLookupError):
            os.kill(fork, signal.SIGKILL)

    assert is_forked and ended and len(servers) >= 2, servers
