"""Effects beyond the database: what a key downstream, or a claim before the call, make of a lost answer."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from pydantic import BaseModel
from sqlalchemy import text

from replan import Key, Transaction, Unreachable, tool
from tests.activities.bench import Bench, bench
from tests.activities.payments import Payments, payments
from workflows.faults.fault import Applied, Code


class Charge(BaseModel):
    url: str
    amount: int


class Receipt(BaseModel):
    id: int


@tool.keyed
async def charge(args: Charge, key: Key, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card, with a key."""
    reply = await http.post(args.url, json={"amount": args.amount}, headers={"Idempotency-Key": key})
    return Receipt.model_validate(reply.raise_for_status().json())


@tool.unkeyed
async def transfer(args: Charge, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card, without a key."""
    if args.amount < 0:
        raise Unreachable("The terminal is switched off.")
    reply = await http.post(args.url, json={"amount": args.amount})
    return Receipt.model_validate(reply.raise_for_status().json())


@tool.unkeyed
async def wire(args: Charge, key: Key, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card at a service that only notes the key down."""
    reply = await http.post(args.url, json={"amount": args.amount}, headers={"Idempotency-Key": key})
    return Receipt.model_validate(reply.raise_for_status().json())


@tool.transactional
async def charge_and_note(args: Charge, tx: Transaction, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card, and note it down."""
    reply = await http.post(args.url, json={"amount": args.amount})
    await tx.execute(text("CREATE TABLE IF NOT EXISTS charged (amount INTEGER)"))
    await tx.execute(text("INSERT INTO charged VALUES (:amount)"), {"amount": args.amount})
    return Receipt.model_validate(reply.raise_for_status().json())


@pytest.fixture
def service() -> Iterator[Payments]:
    with payments() as running:
        yield running


@pytest.fixture
async def calls(tmp_path: Path, store_url: str) -> AsyncIterator[Bench]:
    async with bench(tmp_path, store=store_url) as opened:
        yield opened


async def test_a_keyed_call_whose_answer_is_lost_is_repeated_with_its_key(calls: Bench, service: Payments) -> None:
    """Unknown, and yet retried: the service makes one charge of two requests."""
    service.plan = ["drop"]
    fault, error = await calls.fails(charge, run="r", url=service.url, amount=5)
    again = await calls.call(charge, run="r", attempt=2, url=service.url, amount=5)

    assert (fault.code, fault.applied, error.non_retryable) == (Code.UNREACHABLE, Applied.UNKNOWN, False)
    assert (again.result, [one["amount"] for one in service.charges]) == ({"id": 1}, [5])


async def test_each_tool_gets_what_its_parameters_ask_for(calls: Bench, service: Payments) -> None:
    """An unkeyed one may take the key, a transactional one the HTTP client, as the page says."""
    await calls.call(wire, run="r", url=service.url, amount=5)
    await calls.call(charge_and_note, run="s", url=service.url, amount=6)
    await calls.call(charge, run="t", url=service.url, amount=7)

    assert [(one["key"], one["amount"]) for one in service.charges] == [("r/a", 5), (None, 6), ("t/a", 7)]
    assert await calls.rows("SELECT amount FROM charged") == [6]


async def test_a_refusal_is_believed_only_of_the_only_attempt(calls: Bench, service: Payments) -> None:
    """A 4xx is the service's word; after a lost answer it may be the echo of what we did: a person decides."""
    service.plan = ["409", "drop", "409", "409"]
    only, _ = await calls.fails(charge, run="q", url=service.url, amount=5)
    first, _ = await calls.fails(charge, run="r", url=service.url, amount=5)
    beats = [first.model_dump(mode="json")]
    lost, error = await calls.fails(charge, run="r", attempt=2, heartbeats=beats, url=service.url, amount=5)
    silent, _ = await calls.fails(charge, run="s", attempt=2, url=service.url, amount=5)

    assert (only.code, only.applied) == (Code.CONFLICT, Applied.NONE)
    assert (lost.code, lost.applied, error.non_retryable) == (Code.CONFLICT, Applied.UNKNOWN, True)
    assert (silent.code, silent.applied) == (Code.CONFLICT, Applied.UNKNOWN)


async def test_an_unkeyed_call_whose_answer_is_lost_is_never_made_again(calls: Bench, service: Payments) -> None:
    """Unknown and final; whoever tries all the same is told, and nothing is sent."""
    service.plan = ["drop"]
    fault, error = await calls.fails(transfer, run="r", url=service.url, amount=5)
    again, _ = await calls.fails(transfer, run="r", attempt=2, url=service.url, amount=5)

    assert (fault.applied, error.non_retryable, len(service.charges)) == (Applied.UNKNOWN, True, 1)
    assert again.applied is Applied.UNKNOWN
    assert "ended without reporting (crash or timeout): find out whether it took effect" in again.reason


async def test_an_unkeyed_call_that_was_answered_is_answered_again(calls: Bench, service: Payments) -> None:
    """The worker that died after the answer was written down costs nothing, and a refusal lets it run again."""
    await calls.call(transfer, run="r", url=service.url, amount=5)
    again = await calls.call(transfer, run="r", attempt=2, url=service.url, amount=5)

    assert (again.result, again.replayed, len(service.charges)) == ({"id": 1}, True, 1)

    for trouble, code in (("409", Code.CONFLICT), ("401", Code.UNAUTHORIZED)):
        service.plan = [trouble]
        fault, _ = await calls.fails(transfer, run=trouble, url=service.url, amount=5)
        again = await calls.call(transfer, run=trouble, attempt=2, url=service.url, amount=5)

        assert (fault.code, fault.applied) == (code, Applied.NONE)
        assert again.result == {"id": len(service.charges)}


async def test_what_does_not_prove_that_nothing_happened_is_unknown(calls: Bench, service: Payments) -> None:
    """A 5xx may come after the charge."""
    service.plan = ["503", "500", "drop"]
    for _ in range(3):
        fault, error = await calls.fails(transfer, url=service.url, amount=5)
        assert (fault.applied, error.non_retryable) == (Applied.UNKNOWN, True)


async def test_what_comes_before_the_effect_may_be_tried_again(calls: Bench) -> None:
    """No connection, or the tool's own word: the claim is given up with it."""
    for url, amount in (("http://127.0.0.1:9/", 5), ("", -1)):
        fault, error = await calls.fails(transfer, run="r", url=url, amount=amount)
        assert (fault.code, fault.applied, error.non_retryable) == (Code.UNREACHABLE, Applied.NONE, False)
        assert await calls.rows("SELECT key FROM replan_ledger") == []
