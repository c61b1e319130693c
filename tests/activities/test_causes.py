"""An exception that nobody knows is what it was raised `from`, else what its HTTP status says, which proves nothing."""

import asyncio
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
from pydantic import BaseModel
from temporalio.client import Client

from activities.borders import judge
from activities.borders.declared import entries
from activities.borders.described import describe
from activities.borders.guessed_status import PLACES
from activities.borders.table import Proof
from client.explain.explanation import explain_task
from client.history.reader import read_history
from evals.fakes.http_server import reply, serving
from replan import Key, Refused, Tool, fault, tool
from runtime.payloads import DATA_CONVERTER
from tests.activities.bench import NO_TLS, Bench
from tests.harness import outcome, plan, staged, step
from workflows.faults.decision import Escalate, NewPlan, Reconcile, Remaining, decide
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import Effect, ToolSpec

HIDDEN = "sk-secret"


class ShopError(Exception):
    """What the client of a shop raises, with what it carries."""

    def __init__(self, said: str = HIDDEN, **carried: Any) -> None:
        super().__init__(said)
        vars(self).update(carried)


class OrderError(ShopError):
    """One in another layer of the tool."""


class ShopOffline(OSError):
    """One below a class that has a row."""


class NoSuchItem(KeyError):
    """One below a class that is a mistake in code."""


class Where(BaseModel):
    url: str


class Order(BaseModel):
    id: int = 0


async def ordered(url: str) -> Any:
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


async def refused(
    calls: Bench, change: Callable[[Exception], BaseException], status: int = 404, raises: Any = None
) -> Fault:
    """The fault of a call that orders, is answered with this status, and raises another exception from that."""
    async with serving(reply(status, b'{"item": "gone"}')) as url:
        found, _ = await calls.fails(ordering(change, raises), url=url)
    return found


async def test_a_class_that_nobody_knows_is_what_it_was_raised_from(calls: Bench) -> None:
    """The shop refused the one request, and that the tool names it anew changes nothing: a new plan, no person."""
    names = [ShopError, ShopOffline, NoSuchItem, RuntimeError, ValueError, Exception]
    found = [await refused(calls, lambda _, name=name: name(HIDDEN)) for name in names]  # type: ignore[misc]
    found.append(await refused(calls, lambda error: raised_from(ShopError(HIDDEN), OrderError(), error)))
    unclear = await refused(calls, lambda _: ShopError(), status=503)

    known = (Code.NOT_FOUND, Applied.NONE, {"item": "gone"})
    assert [(one.code, one.applied, one.observed) for one in found] == [known] * 7
    assert HIDDEN not in str(found)
    assert (unclear.code, unclear.applied) == (Code.SERVER_ERROR, Applied.UNKNOWN)


async def test_what_the_tool_declares_holds_for_causes_too(calls: Bench) -> None:
    """Its word on the class comes first, and that on the cause before the tables; some classes say: the code failed."""
    for declared in (ShopError, httpx2.HTTPStatusError):
        raises = {declared: fault("conflict", applied="unknown")}
        found = await refused(calls, lambda _: ShopError(), raises=raises)
        assert (found.code, found.applied) == (Code.CONFLICT, Applied.UNKNOWN)

    for mistake in (KeyError, TypeError, ImportError, AssertionError):
        found = await refused(calls, lambda _, mistake=mistake: mistake(HIDDEN))  # type: ignore[misc]
        assert (found.code, found.applied) == (Code.BUG, Applied.UNKNOWN)


async def test_what_fails_after_a_success_is_a_bug_whatever_it_follows(calls: Bench) -> None:
    """The order stands: an exception that was handled before, or is a KeyError of the tool, is no answer to it."""

    @tool.unkeyed
    async def order(args: Where, key: Key) -> Order:
        """Order something that has another name by now."""
        try:
            await ordered(args.url)
        except httpx2.HTTPStatusError:
            answer = await ordered(args.url)
            if answer:
                raise ShopError("no number") from KeyError("id")
            return Order(id=answer["id"])
        return Order()

    for second in (b"{}", b'{"number": 7}'):
        async with serving(reply(404), reply(200, second)) as url:
            found, _ = await calls.fails(order, url=url)
        assert (found.code, found.applied) == (Code.BUG, Applied.UNKNOWN)


def test_each_member_of_a_group_has_its_cause() -> None:
    """A chain that leads nowhere is a bug, with the name of the outermost class for whoever declares it."""
    refused = raised_from(ShopError(), ConnectionRefusedError())
    cut = raised_from(ShopError(), ConnectionResetError())
    ours = judge(raised_from(ShopError(), Refused("Sold out.", code="conflict")))
    assert isinstance(refused, Exception) and isinstance(cut, Exception)

    assert judge(ExceptionGroup("", [refused])).proves is Proof.NOT_SENT
    assert judge(ExceptionGroup("", [refused, cut])).proves is Proof.UNKNOWN
    assert (ours.fault.code, ours.proves) == (Code.CONFLICT, Proof.PROMISED)
    assert judge(raised_from(ShopError(), ExceptionGroup("", [ConnectionRefusedError()]))).unknown == "ShopError"

    found = {name: judge(error, entries({})) for name, error in NOWHERE.items()}

    bug = (Code.BUG, Proof.UNKNOWN, "ShopError")
    assert {name: (one.fault.code, one.proves, one.unknown) for name, one in found.items()} == dict.fromkeys(
        NOWHERE, bug
    )


class Hostile(Exception):
    """One that raises when it is asked for its cause."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # on purpose
        raise SystemExit(HIDDEN)


CIRCLE = ShopError()
NOWHERE = {
    "a circle": raised_from(CIRCLE, OrderError(), CIRCLE),
    "5000 of them": raised_from(ShopError(), *(ShopError() for _ in range(5000)), ConnectionRefusedError()),
    "cancelled": raised_from(ShopError(), asyncio.CancelledError()),
    "interrupted": raised_from(ShopError(), KeyboardInterrupt()),
    "hostile": raised_from(ShopError(), Hostile()),
}


def test_classify_says_that_the_cause_decides_or_where_a_status_would_be_found() -> None:
    """Before the first exception; only for a class that does not say itself that the code is wrong."""
    own, mistake = describe(f"{__name__}.ShopError", {}), describe("KeyError", {})

    assert "no table knows it" in own and "raised from" in own and "raises={ShopError" in own and "guessed" in own
    assert all(".".join(place) in own for place in PLACES)
    assert "raised from" in describe("ValueError", {})
    assert "raised from" not in mistake and "so it is a bug" in mistake


class ShopStatus(Enum):
    MISSING = 404


class Told(BaseModel):
    word: str = ""


def at(place: tuple[str, ...], value: object) -> ShopError:
    """An exception that carries a value there."""
    first, *rest = place
    for name in reversed(rest):
        value = SimpleNamespace(**{name: value})
    carried: dict[str, Any] = {first: value}
    return ShopError(**carried)


def test_a_status_is_found_where_libraries_keep_it() -> None:
    """As a number or as a member of an enum; the fault says where it was found, and what it said is in no reason."""
    for place, status in product(PLACES, (404, HTTPStatus.NOT_FOUND, ShopStatus.MISSING)):
        verdict = judge(at(place, status))

        assert (verdict.fault.code, verdict.proves) == (Code.NOT_FOUND, Proof.UNKNOWN)
        assert verdict.fault.guessed == ".".join(("ShopError", *place))
        assert HIDDEN not in verdict.fault.model_dump_json()

    class Odd(ShopError):
        @property
        def status_code(self) -> int:
            raise RuntimeError(HIDDEN)

    assert judge(ShopError(code=500, status=409)).fault.code is Code.CONFLICT
    assert judge(Odd(status=404)).fault.guessed == "Odd.status"


def test_anything_else_is_no_status() -> None:
    """Nothing is guessed from words, and a table comes first: what it says is no guess, and may be a proof."""
    values: list[object] = [True, "404", 404.0, None, 200, 302, 399, 600, 20404, [404]]
    errors = [ShopError(status_code=value, code=value) for value in values]

    assert {judge(error).fault.code for error in (*errors, SystemExit(404), StopIteration(404))} == {Code.BUG}

    found = []
    for place, status in product([("headers",), ("response", "headers")], (429, 503, 409)):
        error = at(place, {"Retry-After": "7"})
        vars(error)["status"] = status
        found.append(judge(error).fault.retry_after)

    assert found == [7, 7, None] * 2

    request = httpx2.Request("POST", "https://shop.example/orders")
    error, own = ShopError(status=404), Exception()
    error.__cause__ = httpx2.HTTPStatusError("", request=request, response=httpx2.Response(409, request=request))
    own.__cause__ = ShopError(status=404)
    verdict = judge(error)

    assert (verdict.fault.code, verdict.fault.guessed, verdict.proves) == (Code.CONFLICT, "", Proof.REFUSED)
    assert judge(own).fault.guessed == "ShopError.status"


def ordering_unknown(effect: str) -> Tool[..., Any]:
    """A tool that sends one request, and raises what no table knows from nothing."""

    async def order(args: Told) -> Told:
        """Order something."""
        async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
            answer = await client.post(args.word)
        raise ShopError(status_code=answer.status_code)

    declared: Tool[..., Any] = getattr(tool, effect)(breaker=None)(order)
    return declared


async def test_a_guess_never_proves_that_nothing_was_applied(calls: Bench) -> None:
    """With the same one request, the status of a known client proves it. A read has no effect to protect."""
    for status, code in ((404, Code.NOT_FOUND), (429, Code.RATE_LIMITED), (503, Code.SERVER_ERROR)):
        for effect in ("idempotent", "unkeyed"):
            async with serving(reply(status)) as url:
                found, error = await calls.fails(ordering_unknown(effect), word=url)

            assert (found.code, found.applied, found.guessed) == (code, Applied.UNKNOWN, "ShopError.status_code")
            assert error.non_retryable is (effect == "unkeyed" or code is Code.NOT_FOUND)
    async with serving(reply(503)) as url:
        found, error = await calls.fails(ordering_unknown("read"), word=url)
    assert (found.applied, error.non_retryable) == (Applied.NONE, False)

    fault = Fault.of(Code.NOT_FOUND, "No.", applied=Applied.UNKNOWN)
    guessed = fault.model_copy(update={"guessed": "ShopError.status"})
    tools = [ToolSpec(kind="order", effect=effect) for effect in (Effect.IDEMPOTENT, Effect.UNKEYED, Effect.KEYED)]

    assert [type(decide(guessed, one, Remaining(attempts=3))) for one in tools] == [NewPlan, Reconcile, Escalate]


class Reference(BaseModel):
    reference: str


@tool.read
def find_order(args: Reference) -> Told:
    """Find an order at a shop whose client nobody knows."""
    raise ShopError(status=404)


@tool.unkeyed(reconcile=find_order.using(reference="key"), settle=0)
async def order_once(args: Told, key: Key) -> Told:
    """Order, and lose the answer."""
    raise ShopError(status=503)


async def test_a_guessed_not_found_does_not_reconcile(client: Client, tmp_path: Path) -> None:
    """The order may stand, so a person decides; the explanation says what is a guess."""
    async with staged(client, tmp_path, [order_once, find_order], [plan(step("order", "order_once"))]) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        explained = explain_task(
            await read_history(handle.id, handle.fetch_history_events(), DATA_CONVERTER, journal=True)
        )
    said = " ".join(sentence.text for item in explained.items for sentence in (item.what, *item.then))

    assert [fault.reconciled for fault in ended.faults] == ["cannot_tell"]
    assert "(server_error, guessed from ShopError.status)" in said
    assert "(not_found, guessed from ShopError.status)" in said
