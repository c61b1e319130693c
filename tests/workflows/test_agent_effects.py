"""Effects beyond the database, on a real server: a lost answer costs no second charge, whatever the kind promises."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
from pydantic import BaseModel
from temporalio.client import Client

from replan import Key, Tool, tool
from tests.activities.payments import Payments, payments
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied


class Charge(BaseModel):
    """What to charge, and where."""

    url: str


class Receipt(BaseModel):
    """The charge that was made."""

    id: int


@tool.keyed
async def charge(args: Charge, key: Key, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card, with a key."""
    reply = await http.post(args.url, json={}, headers={"Idempotency-Key": key})
    return Receipt.model_validate(reply.raise_for_status().json())


@tool.unkeyed
async def transfer(args: Charge, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card, without a key."""
    reply = await http.post(args.url, json={})
    return Receipt.model_validate(reply.raise_for_status().json())


@tool.unkeyed
def send(args: Charge) -> Receipt:
    """Charge a card, as most scripts do."""
    reply = requests.post(args.url, json={}, timeout=5)
    reply.raise_for_status()
    return Receipt.model_validate(reply.json())


@tool.unkeyed
def send_and_look(args: Charge) -> Receipt:
    """Charge a card, then look for something that is not there."""
    requests.post(args.url, json={}, timeout=5).raise_for_status()
    requests.get(args.url, params={"reference": "none"}, timeout=5).raise_for_status()
    return Receipt(id=0)


@pytest.fixture
def service() -> Iterator[Payments]:
    """A payment service."""
    with payments() as running:
        yield running


async def test_a_keyed_charge_survives_lost_answers(client: Client, tmp_path: Path, service: Payments) -> None:
    """Charged at the first request, answered at the third: one charge, and the receipt of it."""
    service.plan = ["drop", "503"]
    async with staged(client, tmp_path, [charge], [plan(step("pay", "charge", url=service.url)), DONE]) as stage:
        ended = await stage.run()

    assert (ended.status, ended.steps[0].attempts, ended.steps[0].result) == (TaskStatus.COMPLETED, 3, {"id": 1})
    assert len(service.charges) == 1


@pytest.mark.full
async def test_a_keyed_charge_that_never_answers_goes_to_a_person(
    client: Client, tmp_path: Path, service: Payments
) -> None:
    """It may have happened, so it is neither planned around nor forgotten."""
    service.plan = ["drop"] * 9
    async with staged(client, tmp_path, [charge], [plan(step("pay", "charge", url=service.url)), DONE]) as stage:
        ended = await stage.run()

    assert (ended.status, ended.faults[-1].applied, ended.replans) == (TaskStatus.ESCALATED, Applied.UNKNOWN, 0)
    assert len(service.charges) == 1


@pytest.mark.parametrize("trouble", ["drop", pytest.param("503", marks=pytest.mark.full)])
async def test_an_unkeyed_charge_without_an_answer_is_made_once(
    client: Client, tmp_path: Path, service: Payments, trouble: str
) -> None:
    """One request, and a person."""
    service.plan = [trouble]
    async with staged(client, tmp_path, [transfer], [plan(step("pay", "transfer", url=service.url)), DONE]) as stage:
        ended = await stage.run()

    assert (ended.status, ended.steps[0].attempts, service.plan) == (TaskStatus.ESCALATED, 1, [])
    assert len(service.charges) == (1 if trouble == "drop" else 0)


@pytest.mark.parametrize("tool", [transfer, send], ids=["with the client that is given", "with one of its own"])
async def test_an_unkeyed_charge_that_was_refused_is_planned_anew(
    client: Client, tmp_path: Path, service: Payments, tool: Tool[..., Any]
) -> None:
    """A 409 of the only request of the only attempt is the service's word that nothing was charged."""
    service.plan, kind = ["409"], tool.__name__
    again = plan(step("pay-2", kind, url=service.url + "?again"))
    async with staged(client, tmp_path, [tool], [plan(step("pay", kind, url=service.url)), again, DONE]) as it:
        ended = await it.run()

    assert (ended.status, ended.replans, len(service.charges)) == (TaskStatus.COMPLETED, 1, 1)


async def test_a_charge_before_a_rejected_look_is_not_planned_around(
    client: Client, tmp_path: Path, service: Payments
) -> None:
    """404 is the word on the look; the charge was made, so a person decides."""
    again = plan(step("pay-2", "send_and_look", url=service.url + "?again"))
    first = plan(step("pay", "send_and_look", url=service.url))
    async with staged(client, tmp_path, [send_and_look], [first, again, DONE]) as it:
        ended = await it.run()

    assert (ended.status, ended.replans, ended.faults[-1].applied) == (TaskStatus.ESCALATED, 0, Applied.UNKNOWN)
    assert len(service.charges) == 1


@pytest.mark.full
async def test_a_refusal_after_a_lost_answer_and_a_durable_wait_is_not_believed(
    client: Client, tmp_path: Path, service: Payments
) -> None:
    """The step was scheduled anew in between, so only the workflow remembers that a charge may have been made."""
    seen = list[str]()

    @tool.keyed(retry="once")
    async def pay(args: Charge, key: Key, http: httpx2.AsyncClient) -> Receipt:
        """Charge a card, then lose the answer to the worker's own shutdown."""
        seen.append(key)
        if len(seen) == 1:
            await http.post(args.url, json={}, headers={"Idempotency-Key": key})
            await asyncio.sleep(60)
        reply = await http.post(args.url, json={}, headers={"Idempotency-Key": key})
        return Receipt.model_validate(reply.raise_for_status().json())

    script: Proposals = [plan(step("pay", "pay", url=service.url)), DONE]
    async with staged(client, tmp_path, [pay], script) as stage:
        handle = await stage.start()
        async with asyncio.timeout(20):
            while not service.charges:
                await asyncio.sleep(0.05)
    service.plan = ["409"]
    async with staged(client, tmp_path, [pay], script, queue=stage.queue):
        ended = await outcome(handle)

    assert (ended.status, ended.faults[-1].code, ended.faults[-1].applied) == (
        TaskStatus.ESCALATED,
        "conflict",
        Applied.UNKNOWN,
    )
    assert (len(service.charges), len(set(seen)), ended.replans) == (1, 1, 0)


async def test_a_worker_with_another_store_does_nothing(client: Client, tmp_path: Path, service: Payments) -> None:
    """Its ledger knows nothing of what the task did: a person has to start the right worker."""
    ready = asyncio.Event()

    @tool.read
    async def wait(args: Charge) -> Receipt:
        """Wait until the first worker is gone."""
        ready.set()
        await asyncio.sleep(0 if service.plan else 60)
        return Receipt(id=0)

    script: Proposals = [plan(step("w", "wait", url=""), step("pay", "charge", "w", url=service.url)), DONE]
    async with staged(client, tmp_path, [charge, wait], script) as stage:
        handle = await stage.start()
        await ready.wait()
    service.plan = ["go on"]
    (tmp_path / "other").mkdir()
    async with staged(client, tmp_path / "other", [charge, wait], script, queue=stage.queue):
        ended = await outcome(handle)

    assert (ended.status, ended.code, service.charges) == (TaskStatus.ESCALATED, "wrong_store", [])
