"""Exceptions that end a process or a generator, raised by a tool: each is a fault of its call, and of nothing else."""

import asyncio
import collections
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from activities.boundary.tool_loop import ToolLoop
from activities.toolbox.registry import Registry, ToolMistakes
from replan import Key, Refused, Tool, Transaction, tool
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Applied, Code


class Nothing(BaseModel):
    """No arguments."""


class Wish(BaseModel):
    word: str = ""

    @field_validator("word")
    @classmethod
    def leave(cls, word: str) -> str:
        sys.exit(3)


class Abort(BaseException):
    """What a tool's own library ends its work with."""


EXITS: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "own": Abort,
}


EXIT = [EXITS["exit"]]
"""What the tools raise."""


async def end(args: Nothing) -> str:
    """Do something."""
    raise EXIT[0]()


def end_in_thread(args: Nothing) -> str:
    """Do something in a thread."""
    raise EXIT[0]()


async def end_with_key(args: Nothing, key: Key) -> str:
    """Do something with a key."""
    raise EXIT[0]()


async def end_in_transaction(args: Nothing, tx: Transaction) -> str:
    """Do something in a transaction."""
    raise EXIT[0]()


async def end_in_child(args: Nothing) -> str:
    """Let another task do it."""
    return await asyncio.create_task(end(args))


CHILD: Tool[..., Any] = tool.unkeyed(end_in_child)
EFFECTS: dict[Tool[..., Any], Applied] = {
    tool.unkeyed(end): Applied.UNKNOWN,
    tool.unkeyed(end_in_thread): Applied.UNKNOWN,
    tool.keyed(end_with_key): Applied.UNKNOWN,
    tool.transactional(end_in_transaction): Applied.NONE,
    tool.idempotent(end): Applied.UNKNOWN,
    tool.read(end): Applied.NONE,
    tool.pure(end_in_thread): Applied.NONE,
    CHILD: Applied.UNKNOWN,
}
"""The tools, and what is known of their effects."""


@pytest.fixture(params=[True, False], ids=["loop of tools", "one loop"])
async def calls(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Calls on a loop of the tools' own, as in a worker, or on that of the worker, as in tests of tools."""
    async with contextlib.AsyncExitStack() as stack:
        loop = await stack.enter_async_context(ToolLoop()) if request.param else None
        yield await stack.enter_async_context(bench(tmp_path, loop=loop))


@pytest.mark.parametrize("name", EXITS)
async def test_an_exit_is_one_fault_of_one_call(calls: Bench, name: str) -> None:
    """Whatever the tool does, and wherever its function runs: a bug without a retry, and the truth of its effect."""
    EXIT[0] = EXITS[name]
    ended = {tool: await calls.fails(tool) for tool in EFFECTS if calls.boundary._loop or tool is not CHILD}

    assert {tool: (fault.code, fault.applied, error.non_retryable) for tool, (fault, error) in ended.items()} == {
        tool: (Code.BUG, EFFECTS[tool], True) for tool in ended
    }


async def test_a_validator_that_exits_is_a_fault_before_the_call(calls: Bench) -> None:
    """Nothing was called, so nothing was applied; the body of a generator would run when the result is checked."""

    @tool.unkeyed
    async def order(args: Wish) -> str:
        """Order."""
        return "done"

    fault, _ = await calls.fails(order, word="x")

    assert (fault.code, fault.applied) == (Code.BUG, Applied.NONE)

    def collect(args: Nothing) -> Iterator[int]:
        """Collect."""
        yield 1

    made: Tool[..., Any] = tool.read(collect)
    with pytest.raises(ToolMistakes, match="collect: it is a generator function: return a list instead of yielding"):
        Registry([made])


def numbers() -> Iterator[int]:
    yield from itertools.count()


class Endless:
    """A list without an end."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class Pretender(list[int]):
    """A list that says that it is short."""

    __iter__ = Endless.__iter__


class Report(BaseModel):
    rows: Any = None


def deep(depth: int, width: int) -> list[Any]:
    """A list in a list, and so on; of a width of two it is small, and as JSON larger than every memory."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found] * width
    return found


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


ENDLESS: dict[str, Callable[[], Any]] = {
    "a generator": numbers,
    "an iterator": itertools.count,
    "a map": lambda: map(str, itertools.count()),
    "its own __iter__": Endless,
    "a list's __iter__": Pretender,
    "a range": lambda: range(10**12),
    "a larger range": lambda: range(10**30),
    "in a dict": lambda: {"a": [numbers()]},
    "in a model": lambda: Report(rows=numbers()),
    "in a deque": lambda: collections.deque([numbers()]),
    "references": lambda: deep(40, 2),
    "a circle": lambda: CIRCLE,
    "depth": lambda: deep(200_000, 1),
    "a huge number": lambda: 10**1_000_000,
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.timeout(20)
async def test_a_result_without_an_end_is_refused_at_once(calls: Bench, name: str) -> None:
    """Whatever its type says: nothing is read of it beyond the limit of a result."""

    @tool.read
    def collect(args: Nothing) -> Any:
        """Collect."""
        return ENDLESS[name]()

    @tool.pure
    def count(args: Nothing) -> Any:
        """Collect, and compute only."""
        return ENDLESS[name]()

    @tool.unkeyed
    async def collect_list(args: Nothing) -> list[Any]:
        """Collect, with an effect."""
        found: list[Any] = ENDLESS[name]()
        return found

    codes = {(await calls.fails(one))[0].code for one in (collect, collect_list)}
    pure = (await calls.fails(count))[0].code

    assert codes <= {Code.UNSERIALISABLE, Code.TOO_LARGE}
    assert pure in (Code.UNSERIALISABLE, Code.TOO_LARGE, Code.TIMEOUT)  # it has a second, and the machine may be busy


async def test_what_is_observed_has_an_end_too(calls: Bench) -> None:
    """The observation of a refusal goes into history, as a result does; other results are taken as before."""
    given: list[Any] = []

    @tool.read
    async def collect(args: Nothing) -> Any:
        """Collect, or refuse."""
        if not given:
            endless: Any = {"free": numbers()}
            raise Refused("It is taken.", observed=endless)
        return given.pop()

    fault, _ = await calls.fails(collect)
    assert fault.observed is None
    for value in ({"a": (1, 2)}, {1}, IPv4Network("10.0.0.0/8"), Report(rows=[b"x"]), [*{"a": 1}.values()]):
        given.append(value)
        assert (await calls.call(collect)).result is not None
