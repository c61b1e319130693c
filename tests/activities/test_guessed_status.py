"""What no table knows and carries an HTTP status: it is guessed, marked, and never proof that nothing was applied."""

from enum import Enum
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.borders import judge
from activities.borders.described import describe
from activities.borders.guessed_status import PLACES
from activities.borders.table import Proof
from client.explain.explanation import explain_task
from client.history.reader import read_history
from evals.fakes.http_server import reply, serving
from replan import Key, Tool, tool
from runtime.payloads import DATA_CONVERTER
from tests.activities.bench import NO_TLS, Bench
from tests.harness import outcome, plan, staged, step
from workflows.faults.decision import Escalate, NewPlan, Reconcile, Remaining, decide
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import Effect, ToolSpec

HIDDEN = "sk-secret"


class ShopStatus(Enum):
    """The statuses of a shop."""

    MISSING = 404


class ShopError(Exception):
    """What the client of a shop raises."""

    def __init__(self, **carried: Any) -> None:
        super().__init__(HIDDEN)
        vars(self).update(carried)


class Told(BaseModel):
    """An argument, and a result."""

    word: str = ""


def at(place: tuple[str, ...], value: object) -> ShopError:
    """An exception that carries a value there."""
    first, *rest = place
    for name in reversed(rest):
        value = SimpleNamespace(**{name: value})
    return ShopError(**{first: value})


@pytest.mark.parametrize("place", PLACES, ids=".".join)
@pytest.mark.parametrize("status", [404, HTTPStatus.NOT_FOUND, ShopStatus.MISSING], ids=repr)
def test_a_status_is_found_where_libraries_keep_it(place: tuple[str, ...], status: object) -> None:
    """As a number or as a member of an enum; the fault says where it was found, and what it said is in no reason."""
    verdict = judge(at(place, status))

    assert (verdict.fault.code, verdict.proves) == (Code.NOT_FOUND, Proof.UNKNOWN)
    assert verdict.fault.guessed == ".".join(("ShopError", *place))
    assert HIDDEN not in verdict.fault.model_dump_json()


@pytest.mark.parametrize("status", [True, "404", 404.0, None, 200, 302, 399, 600, 20404, [404]], ids=repr)
def test_anything_else_is_no_status(status: object) -> None:
    """Neither is a text: nothing is guessed from words."""
    assert judge(ShopError(status_code=status, code=status)).fault.code is Code.BUG


def test_the_code_of_the_service_counts_last() -> None:
    """It is often a number of its own."""
    assert judge(ShopError(code=500, status=409)).fault.code is Code.CONFLICT


@pytest.mark.parametrize("error", [SystemExit(404), StopIteration(404)], ids=repr)
def test_pythons_own_classes_carry_no_status(error: BaseException) -> None:
    """SystemExit has a `code`."""
    assert judge(error).fault.code is Code.BUG


@pytest.mark.parametrize("place", ["headers", "response.headers"])
@pytest.mark.parametrize(("status", "wait"), [(429, 7), (503, 7), (409, None)])
def test_the_wait_that_was_asked_for_is_kept(place: str, status: int, wait: float | None) -> None:
    """In the headers of the exception, or of its response."""
    error = at(tuple(place.split(".")), {"Retry-After": "7"})
    vars(error)["status"] = status

    assert judge(error).fault.retry_after == wait


def test_an_attribute_that_raises_is_none() -> None:
    """An exception is code of anybody."""

    class Odd(ShopError):
        @property
        def status_code(self) -> int:
            raise RuntimeError(HIDDEN)

    assert judge(Odd(status=404)).fault.guessed == "Odd.status"


def test_a_table_comes_first() -> None:
    """What it says of the cause is no guess, and may be a proof."""
    request = httpx2.Request("POST", "https://shop.example/orders")
    refused = httpx2.HTTPStatusError("", request=request, response=httpx2.Response(409, request=request))
    error = ShopError(status=404)
    error.__cause__ = refused
    verdict = judge(error)

    assert (verdict.fault.code, verdict.fault.guessed, verdict.proves) == (Code.CONFLICT, "", Proof.REFUSED)


def test_a_cause_that_carries_a_status_counts_too() -> None:
    """A tool names the exception of its library anew."""

    class Own(Exception):
        """One of the tool's."""

    error = Own()
    error.__cause__ = ShopError(status=404)

    assert judge(error).fault.guessed == "ShopError.status"


def ordering(effect: str) -> Tool[..., Any]:
    """A tool that sends one request, and raises what no table knows from nothing."""

    async def order(args: Told) -> Told:
        """Order something."""
        async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
            answer = await client.post(args.word)
        raise ShopError(status_code=answer.status_code)

    declared: Tool[..., Any] = getattr(tool, effect)(order)
    return declared


@pytest.mark.parametrize("effect", ["idempotent", "unkeyed"])
@pytest.mark.parametrize(
    ("status", "code"), [(404, Code.NOT_FOUND), (429, Code.RATE_LIMITED), (503, Code.SERVER_ERROR)]
)
async def test_a_guess_never_proves_that_nothing_was_applied(
    calls: Bench, effect: str, status: int, code: Code
) -> None:
    """With the same one request, the status of a known client proves it."""
    async with serving(reply(status)) as url:
        found, error = await calls.fails(ordering(effect), word=url)

    assert (found.code, found.applied, found.guessed) == (code, Applied.UNKNOWN, "ShopError.status_code")
    assert error.non_retryable is (effect == "unkeyed" or code is Code.NOT_FOUND)


async def test_a_read_is_retried_by_its_guess(calls: Bench) -> None:
    """It has no effect to protect."""

    @tool.read
    async def look(args: Told) -> Told:
        """Look something up."""
        raise ShopError(status=503)

    found, error = await calls.fails(look)

    assert (found.applied, error.non_retryable) == (Applied.NONE, False)


@pytest.mark.parametrize(
    ("effect", "follows"),
    [(Effect.IDEMPOTENT, NewPlan), (Effect.UNKEYED, Reconcile), (Effect.KEYED, Escalate)],
)
def test_a_guessed_rejection_is_replanned_only_where_a_second_effect_does_no_harm(
    effect: Effect, follows: type
) -> None:
    """Its outcome is unknown, so that for any other effect somebody finds out first."""
    guessed = Fault.of(Code.NOT_FOUND, "No.", applied=Applied.UNKNOWN).model_copy(
        update={"guessed": "ShopError.status"}
    )

    assert isinstance(decide(guessed, ToolSpec(kind="order", effect=effect), Remaining(attempts=3)), follows)


def test_classify_says_where_it_would_be_found() -> None:
    """Before the first exception."""
    text = describe(f"{__name__}.ShopError", {})

    assert "no table knows it" in text and "guessed" in text
    assert all(".".join(place) in text for place in PLACES)


class Reference(BaseModel):
    """Which order is looked for."""

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
