"""Pure tools without a server: how they are declared, and how the boundary calls them."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from temporalio.testing import ActivityEnvironment

from activities.boundary.boundary import MAX_LOCAL_RESULT
from activities.boundary.threads import Threads
from activities.boundary.tool_loop import ToolLoop
from activities.toolbox import builtin
from activities.toolbox.registry import Registry, ToolMistakes
from replan import Busy, Documents, Tool, tool
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Code


class Text(BaseModel):
    text: str = ""


class Slow(Text):
    """An argument whose check waits."""

    @field_validator("text")
    @classmethod
    def _wait(cls, text: str) -> str:
        OPEN.wait(60)
        return text


OPEN = threading.Event()
"""Lets `wait` and `Slow` return."""


@tool.pure
def where(args: Text) -> Text:
    """Say in which thread it runs."""
    return Text(text=threading.current_thread().name)


@tool.read
async def on_the_loop(args: Text) -> Text:
    """Say in which thread the loop of the tools runs."""
    return Text(text=threading.current_thread().name)


def wait(args: Text) -> Text:
    """Return when the event is set."""
    OPEN.wait(60)
    return args


hang, linger = tool.pure(wait), tool.read(wait)


@tool.pure
def check(args: Slow) -> Text:
    """Be called after a check that waits."""
    return args


@tool.pure
def repeat(args: Text) -> Text:
    """Return the text many times."""
    return Text(text=args.text * (MAX_LOCAL_RESULT + 1))


@tool.read
async def block(args: Text) -> Text:
    """Block the loop of the tools."""
    time.sleep(1)  # noqa: ASYNC251  # that is what the test is about
    return args


def local() -> ActivityEnvironment:
    """The environment of a local activity."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, is_local=True)
    return environment


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Bench]:
    """Calls without a server."""
    OPEN.clear()
    async with bench(tmp_path) as ready:
        yield ready
    OPEN.set()


async def asynchronous(args: Text) -> Text:
    """Be no plain function."""
    return args


def injected(args: Text, documents: Documents) -> Text:
    """Read documents."""
    return args


def plain(args: Text) -> Text:
    """Compute."""
    return args


NO_MEANING = {
    "retry": tool.pure(retry="patient")(plain),
    "undo": tool.pure(undo=where)(plain),
    "reconcile": tool.pure(reconcile=where)(plain),
    "tokens": tool.pure(tokens=9)(plain),
}
ONLY, READ = "a @tool.pure only computes", "or declare @tool.read."
DECLARED: list[tuple[Tool[..., Any], str]] = [
    (tool.pure(asynchronous), f"asynchronous: {ONLY}, in a thread: write a plain def, {READ}"),
    (tool.pure(injected), f"injected: {ONLY} and cannot use 'documents': leave it out, {READ}"),
    *(
        (wrong, f"plain: {ONLY}, so {option}= has no meaning: leave it out, {READ}")
        for option, wrong in NO_MEANING.items()
    ),
    (tool.pure(timeout=5)(plain), f"plain: timeout=5 is too long for a @tool.pure: give it at most 1 s, {READ}"),
    (tool.read(observe=where)(plain), "a @tool.pure, which cannot see the world: name a @tool.read."),
]


@pytest.mark.parametrize(("wrong", "words"), DECLARED)
def test_what_a_pure_tool_cannot_be_is_refused(wrong: Tool[..., Any], words: str) -> None:
    """Each mistake is a sentence with a remedy."""
    with pytest.raises(ToolMistakes) as raised:
        Registry([wrong, where])

    assert [one for one in raised.value.mistakes if one.endswith(words)], raised.value.mistakes


def test_a_pure_tool_is_a_read_with_one_attempt_of_a_second() -> None:
    """`--check` shows it; a shorter timeout stays. Of what comes with Replan, two only compute."""
    registry = Registry([where, tool.pure(timeout=0.2)(plain)])
    spec = registry["where"].spec

    assert (spec.effect, spec.pure, spec.retry, spec.timeout) == ("read", True, "standard", 1.0)
    assert registry["plain"].spec.timeout == 0.2
    assert "    text: string; pure, 1 s" in registry.catalogue().splitlines()
    own = Registry((), builtin=builtin.tools(has_model=False))
    assert [name for name in own if own[name].spec.pure] == ["calculate", "compose"]


async def test_a_pure_tool_runs_in_a_thread_and_needs_no_loop_of_tools(tmp_path: Path) -> None:
    """A tool that blocks the loop of the tools, where coroutines run, holds up no workflow task."""
    async with ToolLoop() as loop, bench(tmp_path, loop=loop) as calls:
        blocking = asyncio.create_task(calls.call(block))
        await asyncio.sleep(0.1)
        found = await calls.call(where, environment=local())
        was_blocked = not blocking.done()
        await blocking

        there = await calls.call(on_the_loop)

    assert was_blocked and str(found.result).startswith("{'text': 'pure_")
    assert there.result == {"text": "tools"}


@pytest.mark.parametrize("slow", [hang, check])
async def test_a_pure_tool_that_waits_is_a_fault_that_names_it(calls: Bench, slow: Tool[..., Any]) -> None:
    """Its thread cannot be stopped, so it is counted as one that outlived its attempt until it ends."""
    fault, _ = await calls.fails(slow, text="a", environment=local())
    outlived = calls.boundary.threads.outlived
    OPEN.set()
    while calls.boundary.threads.outlived:
        await asyncio.sleep(0.01)

    reason = f"{slow.__name__} gave no answer within 1 s: a @tool.pure must only compute."
    assert (fault.code, outlived) == (Code.TIMEOUT, 1)
    assert fault.reason == f"{reason} If it waits for something or takes long, declare it as @tool.read."


async def test_other_tools_cannot_take_the_threads_of_pure_tools(calls: Bench) -> None:
    """They may hold all theirs for longer than a workflow task should wait."""
    calls.boundary.threads = Threads(1)
    lingering = asyncio.create_task(calls.call(linger))
    while not calls.boundary.threads.live:
        await asyncio.sleep(0.01)
    found = await calls.call(where, environment=local())
    OPEN.set()
    await lingering

    assert found.result is not None


async def test_a_long_result_is_too_large_for_a_local_activity_only(calls: Bench) -> None:
    """One workflow task records the results of many. A kind that is not pure here is missing as a local activity."""
    missing, _ = await calls.fails(block, environment=local())
    fault, _ = await calls.fails(repeat, text="a", environment=local())
    back = await calls.call(repeat, text="a")

    assert fault.code is Code.TOO_LARGE
    assert "more than 8192: let it return less, or declare it as @tool.read." in fault.reason
    assert len(str(back.result)) > MAX_LOCAL_RESULT
    assert (missing.code, "is no @tool.pure" in missing.reason) == (Code.MISSING_TOOL, True)


async def test_a_transient_fault_of_a_local_activity_sends_no_heartbeat(calls: Bench) -> None:
    """The server knows nothing of it."""
    sent, environment = list[Any](), local()
    environment.on_heartbeat = lambda *details: sent.append(details)

    @tool.pure
    def busy(args: Text) -> Text:
        """Be busy."""
        raise Busy("Not now.")

    fault, _ = await calls.fails(busy, environment=environment)

    assert (fault.code, sent) == (Code.BUSY, [])
