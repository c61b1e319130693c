"""Tools that exit, or break what they share with the worker: it serves on, or ends, and says by whom."""

import asyncio
import os
import re
import signal

import psutil
import pytest

from tests.crash.places import Place
from tests.processes import wait_until, written
from workflows.account.task import TaskStatus

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
async def test_a_tool_that_exits_is_one_fault_of_one_call(place: Place, number: signal.Signals) -> None:
    """The call has an unknown effect, since it was made; the worker serves the next task, and ends in order."""
    kinds = ("leave", "leave_thread", "interrupt", "stop_loop", "count")
    with place.serving() as worker:
        faults = [(await place.call(kind, kind)).faults for kind in kinds]
        paid = await place.call("pay", "paid")
        os.kill(worker.pid, number)
        code = await asyncio.to_thread(worker.wait, 20)

    met = {kind: [(fault.code, fault.applied) for fault in found] for kind, found in zip(kinds, faults, strict=True)}
    assert met == {kind: [("unserialisable" if kind == "count" else "bug", "unknown")] for kind in kinds}
    assert (paid.status, paid.faults, code) == (TaskStatus.COMPLETED, (), 0)
    assert place.notes.read_text().split() == [*kinds, "paid"]


REPLACED = {
    "replace_factory": "the task factory of the event loop of all tools by _broken",
    "spoil_tasks": "asyncio.Task by _broken",
    "replace_dumps": "json.dumps by _broken",
    "replace_loads": "json.loads by _broken",
}


@pytest.mark.parametrize(
    "kind",
    [
        "replace_dumps",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in (*REPLACED, "break_loop") if kind != "replace_dumps"),
    ],
)
async def test_a_worker_whose_tool_breaks_what_it_needs_ends(place: Place, kind: str) -> None:
    """In order, with the exit code of a failure; the message names the function, its file and its line."""
    with place.serving() as worker:
        await place.start(kind, kind)
        said, _ = await asyncio.to_thread(worker.communicate, timeout=60)
    told = said + place.log.read_text()

    assert worker.returncode == 1 and "Traceback" not in said, told
    if kind == "break_loop":
        [line] = [line for line in said.splitlines() if line.startswith("The event loop of the tools ended (")]
        assert line.endswith("The worker stopped: start it again (a supervisor does).")
        return
    assert re.search(f"replaced {re.escape(REPLACED[kind])} of \\S+harmful.py:[0-9]+, which does not work", told)
    assert "The worker stopped: start it again" in told


async def test_a_worker_serves_on_with_what_works(place: Place) -> None:
    """A library may replace a function by its own."""
    with place.serving() as worker:
        found = [await place.call(kind, kind) for kind in ("use_factory", "use_json", "pay", "pay_in_thread")]
        worker.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.wait, 20)

    assert [each.status for each in found] == [TaskStatus.COMPLETED] * 4 and code == 0


async def test_a_child_that_a_tool_forks_is_no_second_worker(place: Place) -> None:
    """It ends as soon as it goes on with Replan's code, and names the tool; the worker goes on."""
    kinds = ("fork_in_thread", "fork_and_raise", "fork_on_loop", "fork_and_wait", "fork_and_exit")
    with place.serving() as worker:
        found = [await place.call(kind, kind) for kind in (*kinds, "pay", "pay_in_thread")]
        children = psutil.Process(worker.pid).children
        is_alone = await asyncio.to_thread(
            wait_until, lambda: all(child.status() == psutil.STATUS_ZOMBIE for child in children())
        )
    says = "{}.* forked the worker's process, and went on in the child"
    named = [kind for kind in kinds if re.search(says.format(kind), place.log.read_text())]

    assert is_alone and [each.status for each in found] == [TaskStatus.COMPLETED] * 7
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
AT_IMPORT = [
    ("json.dumps = lambda *args, **options: 1 / 0", "replaced json.dumps by <lambda> of "),
    # The worker waits, so that the child has said it before the worker ends.
    ("child = os.fork()\nif child:\n    os.waitpid(child, 0)", "forked the worker's process, and went on in the child"),
]


@pytest.mark.parametrize(("line", "said"), AT_IMPORT)
def test_a_tools_file_that_does_it_while_it_is_loaded_is_named(place: Place, line: str, said: str) -> None:
    """With exit code 1, before the worker serves; of two processes, the first goes on."""
    file = written(place.folder, f"{ODD}\n{line}\n", "odd.py")
    checked = place.asked("--check", "--tools", str(file))

    assert said in checked.stderr + checked.stdout and str(file) in checked.stderr + checked.stdout
    assert checked.returncode == ("fork" not in line)
