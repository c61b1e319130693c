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

from activities.borders.described import describe
from activities.boundary.tool_loop import ToolLoop
from activities.toolbox.registry import Registry, ToolMistakes
from replan import Key, Refused, Tool, Transaction, tool
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Applied, Code


class Nothing(BaseModel):
    """No arguments."""


class Wish(BaseModel):
    """Arguments whose validation exits."""

    word: str = ""

    @field_validator("word")
    @classmethod
    def leave(cls, word: str) -> str:
        """Exit."""
        sys.exit(3)


class Abort(BaseException):
    """What a tool's own library ends its work with."""


EXITS: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "own": Abort,
}


@tool.unkeyed
async def pay(args: Nothing) -> str:
    """Charge."""
    raise EXIT[0]()


@tool.unkeyed
def pay_in_thread(args: Nothing) -> str:
    """Charge in a thread."""
    raise EXIT[0]()


@tool.keyed
async def charge(args: Nothing, key: Key) -> str:
    """Charge with a key."""
    raise EXIT[0]()


@tool.transactional
async def move(args: Nothing, tx: Transaction) -> str:
    """Move an amount."""
    raise EXIT[0]()


@tool.idempotent
async def put(args: Nothing) -> str:
    """Write."""
    raise EXIT[0]()


@tool.read
async def look(args: Nothing) -> str:
    """Read."""
    raise EXIT[0]()


@tool.pure
def compute(args: Nothing) -> str:
    """Compute."""
    raise EXIT[0]()


@tool.unkeyed
async def ask_a_child(args: Nothing) -> str:
    """Let another task do it."""

    async def child() -> str:
        raise EXIT[0]()

    return await asyncio.create_task(child())


EXIT = [EXITS["exit"]]
"""What the tools raise."""
EFFECTS: dict[Tool[..., Any], Applied] = {
    pay: Applied.UNKNOWN,
    pay_in_thread: Applied.UNKNOWN,
    charge: Applied.UNKNOWN,
    move: Applied.NONE,
    put: Applied.UNKNOWN,
    look: Applied.NONE,
    compute: Applied.NONE,
    ask_a_child: Applied.UNKNOWN,
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
    tools = [tool for tool in EFFECTS if calls.boundary._loop or tool is not ask_a_child]

    ended = {tool.__name__: await calls.fails(tool) for tool in tools}

    assert {kind: (fault.code, fault.applied, error.non_retryable) for kind, (fault, error) in ended.items()} == {
        tool.__name__: (Code.BUG, EFFECTS[tool], True) for tool in tools
    }


@pytest.mark.parametrize("name", ["GeneratorExit", "KeyboardInterrupt", "SystemExit"])
def test_classify_calls_an_exit_a_bug_too(name: str) -> None:
    """It says what becomes of a call; only a cancel is none of its faults."""
    assert "it is a bug" in describe(name, {})
    assert "no fault of the tool" in describe("asyncio.CancelledError", {})


async def test_a_validator_that_exits_is_a_fault_before_the_call(calls: Bench) -> None:
    """Nothing was called, so nothing was applied."""

    @tool.unkeyed
    async def order(args: Wish) -> str:
        """Order."""
        return "done"

    fault, _ = await calls.fails(order, word="x")

    assert (fault.code, fault.applied) == (Code.BUG, Applied.NONE)


def numbers() -> Iterator[int]:
    """Count, without an end."""
    yield from itertools.count()


class Endless:
    """A list without an end."""

    def __iter__(self) -> Iterator[int]:
        """Begin anew."""
        return itertools.count()


class Pretender(list[int]):
    """A list that says that it is short."""

    def __iter__(self) -> Iterator[int]:
        """Count."""
        return itertools.count()


class Report(BaseModel):
    """A result with something in it."""

    rows: Any = None


def laughs(depth: int = 40) -> list[Any]:
    """A list that is small, and as JSON larger than every memory."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found, found]
    return found


def circle() -> list[Any]:
    """A list in itself."""
    found: list[Any] = []
    found.append(found)
    return found


def deep(depth: int = 200_000) -> list[Any]:
    """A list in a list, and so on."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


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
    "references": laughs,
    "a circle": circle,
    "depth": deep,
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
    """The observation of a refusal goes into history, as a result does."""

    @tool.read
    async def book(args: Nothing) -> str:
        """Refuse."""
        endless: Any = {"free": numbers()}
        raise Refused("It is taken.", observed=endless)

    fault, _ = await calls.fails(book)

    assert fault.observed is None


@pytest.mark.parametrize("value", [{"a": (1, 2)}, {1}, IPv4Network("10.0.0.0/8"), Report(rows=[b"x"]), {}.values()])
async def test_other_results_are_taken_as_before(calls: Bench, value: Any) -> None:
    """A network can be iterated over, and is one value."""

    @tool.read
    async def collect(args: Nothing) -> Any:
        """Collect."""
        return list(value) if isinstance(value, type({}.values())) else value

    assert (await calls.call(collect)).result is not None


def test_a_generator_function_is_no_tool() -> None:
    """Its body would run when the result is checked, and not when the tool is called."""

    def collect(args: Nothing) -> Iterator[int]:
        """Collect."""
        yield 1

    made: Tool[..., Any] = tool.read(collect)
    with pytest.raises(ToolMistakes, match="collect: it is a generator function: return a list instead of yielding"):
        Registry([made])
