"""An exception that nobody knows is what the exception is that it was raised `from`, not what it only follows."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from activities.borders import judge
from activities.borders.declared import entries
from activities.borders.described import describe
from activities.borders.table import Proof, Verdict
from evals.fakes.http_server import reply, serving
from replan import Key, Refused, Tool, fault, tool
from tests.activities.bench import NO_TLS, Bench
from workflows.faults.fault import Applied, Code

HIDDEN = "sk-secret"


class ShopError(Exception):
    """A class of the tool's own."""


class OrderError(ShopError):
    """One in another layer of the tool."""


class ShopOffline(OSError):
    """One below a class that has a row."""


class NoSuchItem(KeyError):
    """One below a class that is a mistake in code."""


class Where(BaseModel):
    """Where the shop is."""

    url: str


class Order(BaseModel):
    """What was ordered."""

    id: int = 0


async def ordered(url: str) -> Any:
    """Order something."""
    async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        return (await client.post(url)).raise_for_status().json()


def raised_from(error: BaseException, *causes: BaseException) -> BaseException:
    """An exception as `raise error from cause` leaves it, whose cause was raised from the next one, and so on."""
    for outer, cause in zip([error, *causes], causes, strict=False):
        outer.__cause__ = cause
    return error


def ordering(change: Callable[[Exception], BaseException], raises: Any = None) -> Tool[..., Any]:
    """A tool that orders once, and raises another exception from what its client raises."""

    @tool.unkeyed(raises=raises or {})
    async def order(args: Where, key: Key) -> Order:
        """Order something."""
        try:
            return Order.model_validate(await ordered(args.url))
        except httpx2.HTTPStatusError as error:
            raise change(error) from error

    return order


@pytest.mark.parametrize(
    "change",
    [
        lambda _: ShopError(HIDDEN),
        lambda error: raised_from(ShopError(HIDDEN), OrderError(), error),
        lambda _: ShopOffline(HIDDEN),
        lambda _: NoSuchItem(HIDDEN),
        lambda _: RuntimeError(HIDDEN),
        lambda _: ValueError(HIDDEN),
        lambda _: Exception(HIDDEN),
    ],
    ids=["own", "two layers", "own OSError", "own KeyError", "RuntimeError", "ValueError", "Exception"],
)
async def test_a_class_that_nobody_knows_is_what_it_was_raised_from(
    calls: Bench, change: Callable[[Exception], BaseException]
) -> None:
    """The shop refused the one request, and that the tool names it anew changes nothing: a new plan, no person."""
    async with serving(reply(404, b'{"item": "gone"}')) as url:
        found, _ = await calls.fails(ordering(change), url=url)

    assert (found.code, found.applied, found.observed) == (Code.NOT_FOUND, Applied.NONE, {"item": "gone"})
    assert HIDDEN not in found.model_dump_json()


async def test_what_its_cause_leaves_open_stays_open(calls: Bench) -> None:
    """A 503 says no more under another name."""
    async with serving(reply(503)) as url:
        found, _ = await calls.fails(ordering(lambda _: ShopError()), url=url)

    assert (found.code, found.applied) == (Code.SERVER_ERROR, Applied.UNKNOWN)


@pytest.mark.parametrize("declared", [ShopError, httpx2.HTTPStatusError])
async def test_what_the_tool_declares_holds_for_causes_too(calls: Bench, declared: type[Exception]) -> None:
    """Its own word on the class comes first, and its word on the cause comes before the tables."""
    async with serving(reply(404)) as url:
        raises = {declared: fault("conflict", applied="unknown")}
        found, _ = await calls.fails(ordering(lambda _: ShopError(), raises), url=url)

    assert (found.code, found.applied) == (Code.CONFLICT, Applied.UNKNOWN)


@pytest.mark.parametrize("mistake", [KeyError, TypeError, ImportError, AssertionError], ids=lambda one: one.__name__)
async def test_a_mistake_in_code_is_a_bug_whatever_it_was_raised_from(calls: Bench, mistake: type[Exception]) -> None:
    """These classes say themselves what failed: the code."""
    async with serving(reply(404)) as url:
        found, _ = await calls.fails(ordering(lambda _: mistake(HIDDEN)), url=url)

    assert (found.code, found.applied) == (Code.BUG, Applied.UNKNOWN)


@pytest.mark.parametrize("own", [False, True])
async def test_what_fails_after_a_success_is_a_bug_whatever_it_follows(calls: Bench, own: bool) -> None:
    """The order stands: an exception that was handled before, or is a KeyError of the tool, is no answer to it."""

    @tool.unkeyed
    async def order(args: Where, key: Key) -> Order:
        """Order something that has another name by now."""
        try:
            await ordered(args.url)
        except httpx2.HTTPStatusError:
            answer = await ordered(args.url)
            if own:
                raise ShopError("no number") from KeyError("id")
            return Order(id=answer["id"])
        return Order()

    async with serving(reply(404), reply(200, b"{}")) as url:
        found, _ = await calls.fails(order, url=url)

    assert (found.code, found.applied) == (Code.BUG, Applied.UNKNOWN)


def outcome(verdict: Verdict) -> tuple[Code, Proof]:
    return verdict.fault.code, verdict.proves


def test_an_exception_of_ours_counts_as_a_cause() -> None:
    """It says itself what it is."""
    error = raised_from(ShopError(), Refused("Sold out.", code="conflict"))

    assert outcome(judge(error)) == (Code.CONFLICT, Proof.PROMISED)


def test_a_group_that_is_a_cause_says_nothing() -> None:
    """Its members may have their causes, and these theirs, so that there is no end of it."""
    error = raised_from(ShopError(), ExceptionGroup("", [ConnectionRefusedError()]))

    assert judge(error).unknown == "ShopError"


def test_each_member_of_a_group_has_its_cause() -> None:
    """As the exceptions of a `TaskGroup`, of which one was cut off."""
    refused = raised_from(ShopError(), ConnectionRefusedError())
    cut = raised_from(ShopError(), ConnectionResetError())
    assert isinstance(refused, Exception) and isinstance(cut, Exception)

    assert judge(ExceptionGroup("", [refused])).proves is Proof.NOT_SENT
    assert judge(ExceptionGroup("", [refused, cut])).proves is Proof.UNKNOWN


def circle() -> BaseException:
    error = ShopError()
    return raised_from(error, OrderError(), error)


class Hostile(Exception):
    """One that raises when it is asked for its cause."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # on purpose
        raise SystemExit(HIDDEN)


@pytest.mark.parametrize(
    "error",
    [
        circle(),
        raised_from(ShopError(), *(ShopError() for _ in range(5000)), ConnectionRefusedError()),
        raised_from(ShopError(), asyncio.CancelledError()),
        raised_from(ShopError(), KeyboardInterrupt()),
        raised_from(ShopError(), Hostile()),
    ],
    ids=["circle", "5000", "cancelled", "interrupted", "hostile"],
)
def test_a_chain_that_leads_nowhere_is_a_bug(error: BaseException) -> None:
    """With the name of the outermost class, for whoever declares it."""
    verdict = judge(error, entries({}))

    assert (verdict.fault.code, verdict.proves, verdict.unknown) == (Code.BUG, Proof.UNKNOWN, type(error).__name__)


def test_classify_says_that_the_cause_decides(tmp_path: Path) -> None:
    """Only for a class that does not say itself that the code is wrong."""
    own, mistake = describe(f"{__name__}.ShopError", {}), describe("KeyError", {})

    assert "raised from" in own and "raises={ShopError" in own
    assert "raised from" in describe("ValueError", {})
    assert "raised from" not in mistake and "so it is a bug" in mistake
