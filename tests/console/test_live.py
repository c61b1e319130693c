"""The live view in a real terminal: drawn in place, right at the end, and gone without a trace when it is left."""

import asyncio
import contextlib
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from client.tasks import Handle, query_progress
from replan import Refused, tool
from runtime.dev_server import DevServer
from tests.console.outcomes import all_lines
from tests.console.terminal import Terminal, starter
from tests.gate import sampled
from tests.harness import DONE, Stage, outcome, plan, staged, step
from tests.processes import ROOT
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Answer

CONTROL = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
STEPS = 60
CLOSED = {-signal.SIGHUP, 128 + signal.SIGHUP, 128 + signal.SIGPIPE}


class Seconds(BaseModel):
    seconds: float = 0.0


@tool.read(timeout=100)
async def work(args: Seconds) -> Seconds:
    """Take a while."""
    await asyncio.sleep(args.seconds)
    return args


@tool.read
async def refuse(args: Seconds) -> Seconds:
    """Refuse."""
    raise Refused("会議室 is taken. \x1b[31m")


MANY = plan(*(step(f"s{at}", "work", *([f"s{at - 8}"] if at >= 8 else []), seconds=0.3) for at in range(STEPS - 20)))
MORE = plan(*(step(f"t{at}", "work", seconds=0.1) for at in range(20)), because="there is more to do")
LONG = plan(step("long", "work", seconds=60))

Following = Callable[..., contextlib.AbstractContextManager[Terminal]]


@pytest.fixture
async def stage(request: pytest.FixtureRequest, client: Client, tmp_path: Path) -> AsyncIterator[Stage]:
    """A worker that plays the proposals given to one task, which is stopped in the end."""
    async with staged(client, tmp_path, [work, refuse], request.param) as running:
        yield running
        handle = client.get_workflow_handle(running.queue)
        with contextlib.suppress(RPCError, WorkflowFailureError):
            await handle.cancel()
            await handle.result()


@pytest.fixture
def terminal(server: DevServer, stage: Stage) -> Following:
    """Opens a terminal in which a task is started and followed."""

    def opened(**environment: str) -> Terminal:
        command = starter(ROOT, "--task", "x", "--queue", stage.queue, "--id", stage.queue, "--tool-calls", "100")
        return Terminal(command, {"TEMPORAL_ADDRESS": server.address, **environment}, ROOT)

    return opened


@pytest.mark.parametrize("stage", [[MANY, MORE, Answer(result="All is done.")]], indirect=True)
async def test_a_long_task_stays_whole_and_once(client: Client, stage: Stage, terminal: Following) -> None:
    """A window while it runs; at the end the complete tree is in the scrollback, and nothing of the window."""
    with terminal() as window:
        await window.until("pending below")
        code = await window.ended()
    handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, stage.queue)
    lines = all_lines(await outcome(handle), None)

    assert code == 0
    assert [row for row in window.shown.text if "http://" not in row][1:] == lines[1:]


@pytest.mark.parametrize("stage", [[LONG, DONE]], indirect=True)
async def test_the_clock_ticks_and_ctrl_c_detaches(client: Client, stage: Stage, terminal: Following) -> None:
    """Where only the time of a step has changed, only its row and the last are written. After Ctrl-C the task goes on;
    the sentence says how to come back and how to stop; cursor and keys are as before."""
    with terminal() as window:
        await window.until("attempt 1 of 4")
        assert not window.echoes
        await asyncio.sleep(1)
        before = len(window.raw)
        await asyncio.sleep(2)
        drawn = CONTROL.sub("", window.raw[before:])
        window.press("\x03")
        code = await window.ended()
        assert window.echoes

    assert drawn.count("long") >= 2 and drawn.count("Running for") <= 17 and "Plan 1" not in drawn
    assert code == 130
    assert window.shown.text[-3:] == [
        "detached; still running.",
        f"Follow: python starter.py show {stage.queue} --follow",
        f"Stop:   python starter.py cancel {stage.queue}",
    ]
    assert window.raw.rindex("\x1b[?25h") > window.raw.rindex("\x1b[?25l")
    assert await query_progress(client.get_workflow_handle_for(AgentWorkflow.run, stage.queue))


@pytest.mark.full
@pytest.mark.parametrize("stage", [[LONG, DONE]], indirect=True)
@pytest.mark.parametrize("how", [signal.SIGTERM, None], ids=["killed", "closed"])
async def test_a_closed_terminal_ends_it_quietly(
    client: Client, stage: Stage, terminal: Following, how: int | None
) -> None:
    """No orphan goes on drawing; the task does. `kill` leaves a terminal that shows what is typed."""
    with terminal() as window:
        await window.until("attempt 1 of 4")
        if how is None:
            window.close()
            assert await window.ended() in CLOSED
        else:
            window.process.send_signal(how)
            assert (await window.ended(), window.echoes) == (-how, True)

    assert await query_progress(client.get_workflow_handle_for(AgentWorkflow.run, stage.queue))


@pytest.mark.full
@pytest.mark.parametrize("stage", [[LONG, DONE]], indirect=True)
async def test_a_stopped_view_goes_on_below(stage: Stage, terminal: Following) -> None:
    """After Ctrl-Z and `fg` it leaves alone what the shell has written, and draws a new picture."""
    with terminal() as window:
        await window.until("attempt 1 of 4")
        window.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.5)
        window.shown.write("$ fg\n")
        before = len(window.raw)
        window.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(1)
        rows = window.shown.text

    assert "Plan 1" in window.raw[before:]
    assert rows.count("Plan 1") == 2 and rows.index("$ fg") < len(rows) - 1


@pytest.mark.full
@pytest.mark.parametrize("stage", [[MANY, MORE, LONG, DONE]], indirect=True)
async def test_another_size_is_drawn_anew(stage: Stage, terminal: Following) -> None:
    """Narrower and lower: from then on no line is wider, no picture higher than the terminal."""
    with terminal() as window:
        await window.until("pending below")
        window.resize(50, 12)
        await asyncio.sleep(1)
        before = len(window.raw)
        await asyncio.sleep(2)
        frames = window.raw[before:].split("\x1b[?2026h")[1:]
    lines = [CONTROL.sub("", line) for frame in frames for line in frame.split("\r\n")]

    assert lines and max(map(len, lines)) < 50
    assert max(frame.count("\n") for frame in frames) < 12


COLOURED: dict[str, tuple[dict[str, str], bool]] = {"colours": ({}, True), "none": ({"NO_COLOR": "1"}, False)}


@pytest.mark.parametrize("stage", [[plan(step("a", "refuse"), step("b", "work")), DONE, DONE]], indirect=True)
@pytest.mark.parametrize(("environment", "coloured"), sampled(COLOURED, "colours"))
async def test_colours_double_the_signs(
    stage: Stage, terminal: Following, environment: dict[str, str], coloured: bool
) -> None:
    """With NO_COLOR there are none; what the world writes colours nothing."""
    with terminal(**environment) as window:
        await window.ended()

    assert bool(COLOUR.search(window.raw)) is coloured
    assert "✗" in window.raw and ". \x1b[31m" not in window.raw


@pytest.mark.parametrize("stage", [[plan(step("a", "refuse")), DONE]], indirect=True)
@pytest.mark.parametrize("flag", sampled({"lines": [[]], "document": [["--json"]], "events": [["--jsonl"]]}, "lines"))
async def test_a_pipe_gets_no_escapes(server: DevServer, stage: Stage, flag: list[str]) -> None:
    """Plain lines, one document, one event a line; a simple terminal (TERM=dumb) gets lines, too."""
    words = ("--id", stage.queue, "--queue", stage.queue, "--address", server.address)
    command = starter(ROOT, "--task", "x", *words, *flag)
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    simple = {"TEMPORAL_ADDRESS": server.address, "TERM": "dumb"}
    with Terminal(starter(ROOT, "show", stage.queue, "--follow"), simple, ROOT) as window:
        await window.ended()

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout and "会議室 is taken." in done.stdout
    assert "\x1b" not in window.raw and "  ✗ a refuse" in window.raw


STARTS = [("--help",), ("--task", "x"), *(("--task", "x", more) for more in ("--json", "--jsonl", "--detach"))]


@pytest.mark.parametrize("stage", [[plan(step("a", "work")), DONE]], indirect=True)
@pytest.mark.parametrize("words", sampled({" ".join(words): [words] for words in STARTS}, "--task x"))
async def test_a_closed_pipe_ends_it_quietly(server: DevServer, stage: Stage, words: tuple[str, ...]) -> None:
    """`| head -1`: no traceback, the exit code of SIGPIPE."""
    options = ("--id", stage.queue, "--queue", stage.queue, "--address", server.address) if len(words) > 1 else ()
    process = subprocess.Popen(
        starter(ROOT, *words, *options), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr:
        errors = await asyncio.to_thread(process.stderr.read)
    code = await asyncio.to_thread(process.wait, 60)

    assert (code, errors) == (128 + signal.SIGPIPE, "")
