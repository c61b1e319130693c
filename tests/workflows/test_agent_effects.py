"""Effects beyond the database, on a real server: a lost answer costs no second charge, whatever the kind promises."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import requests
from pydantic import BaseModel, JsonValue

from activities.effects.ledger import LedgerEntry, apply_claimed
from activities.storage.store import open_store
from client.follow import View
from client.undo import PlannedUndo, undo
from replan import Key, Refused, Tool, tool
from tests.activities.payments import Payments, payments
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.stores import make_store
from tests.workflows.history import Handle
from tests.workflows.props import Stages
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied
from workflows.plans.proposal import NewSteps


class Charge(BaseModel):
    url: str


class Receipt(BaseModel):
    id: int


class Refund(BaseModel):
    charge: int


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


def pays(kind: str, url: str, id: str = "pay") -> NewSteps:
    """A plan that charges."""
    return plan(step(id, kind, url=url))


async def test_a_keyed_charge_survives_lost_answers(stages: Stages, service: Payments) -> None:
    """Charged at the first request, answered at the third: one charge, and the receipt of it."""
    service.plan = ["drop", "503"]
    ended = await stages.run([charge], [pays("charge", service.url), DONE])

    assert (ended.status, ended.steps[0].attempts, ended.steps[0].result) == (TaskStatus.COMPLETED, 3, {"id": 1})
    assert len(service.charges) == 1


@pytest.mark.full
async def test_a_keyed_charge_that_never_answers_goes_to_a_person(stages: Stages, service: Payments) -> None:
    """It may have happened, so it is neither planned around nor forgotten."""
    service.plan = ["drop"] * 9
    ended = await stages.run([charge], [pays("charge", service.url), DONE])

    assert (ended.status, ended.faults[-1].applied, ended.replans) == (TaskStatus.ESCALATED, Applied.UNKNOWN, 0)
    assert len(service.charges) == 1


@pytest.mark.parametrize("trouble", ["drop", pytest.param("503", marks=pytest.mark.full)])
async def test_an_unkeyed_charge_without_an_answer_is_made_once(
    stages: Stages, service: Payments, trouble: str
) -> None:
    """One request, and a person."""
    service.plan = [trouble]
    ended = await stages.run([transfer], [pays("transfer", service.url), DONE])

    assert (ended.status, ended.steps[0].attempts, service.plan) == (TaskStatus.ESCALATED, 1, [])
    assert len(service.charges) == (1 if trouble == "drop" else 0)


@pytest.mark.parametrize("tool", [transfer, send], ids=["with the client that is given", "with one of its own"])
async def test_an_unkeyed_charge_that_was_refused_is_planned_anew(
    stages: Stages, service: Payments, tool: Tool[..., Any]
) -> None:
    """A 409 of the only request of the only attempt is the service's word that nothing was charged."""
    service.plan, kind = ["409"], tool.__name__
    script: Proposals = [pays(kind, service.url), pays(kind, service.url + "?again", "pay-2"), DONE]
    ended = await stages.run([tool], script)

    assert (ended.status, ended.replans, len(service.charges)) == (TaskStatus.COMPLETED, 1, 1)


async def test_a_charge_before_a_rejected_look_is_not_planned_around(stages: Stages, service: Payments) -> None:
    """404 is the word on the look; the charge was made, so a person decides."""
    script: Proposals = [
        pays("send_and_look", service.url),
        pays("send_and_look", service.url + "?again", "pay-2"),
        DONE,
    ]
    ended = await stages.run([send_and_look], script)

    assert (ended.status, ended.replans, ended.faults[-1].applied) == (TaskStatus.ESCALATED, 0, Applied.UNKNOWN)
    assert len(service.charges) == 1


@pytest.mark.full
async def test_a_refusal_after_a_lost_answer_and_a_durable_wait_is_not_believed(
    stages: Stages, service: Payments
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
    async with stages([pay], script) as stage:
        handle = await stage.start()
        async with asyncio.timeout(20):
            while not service.charges:
                await asyncio.sleep(0.05)
    service.plan = ["409"]
    async with stages([pay], script, queue=stage.queue):
        ended = await outcome(handle)

    assert (ended.status, ended.faults[-1].code, ended.faults[-1].applied) == (
        TaskStatus.ESCALATED,
        "conflict",
        Applied.UNKNOWN,
    )
    assert (len(service.charges), len(set(seen)), ended.replans) == (1, 1, 0)


async def test_a_worker_with_another_store_does_nothing(stages: Stages, service: Payments) -> None:
    """Its ledger knows nothing of what the task did: a person has to start the right worker."""
    ready = asyncio.Event()

    @tool.read
    async def wait(args: Charge) -> Receipt:
        """Wait until the first worker is gone."""
        ready.set()
        await asyncio.sleep(0 if service.plan else 60)
        return Receipt(id=0)

    script: Proposals = [plan(step("w", "wait", url=""), step("pay", "charge", "w", url=service.url)), DONE]
    async with stages([charge, wait], script) as stage:
        handle = await stage.start()
        await ready.wait()
    service.plan = ["go on"]
    async with staged(stages.client, stages.folder / "other", [charge, wait], script, queue=stage.queue):
        ended = await outcome(handle)

    assert (ended.status, ended.code, service.charges) == (TaskStatus.ESCALATED, "wrong_store", [])


@asynccontextmanager
async def lost_after_record(
    stages: Stages, script: Proposals, counted: list[str], looks: bool = False, **options: Any
) -> AsyncIterator[Stage]:
    """A worker whose unkeyed `send_once` is applied and recorded, and whose answer is then lost."""
    engine = await open_store(await make_store(stages.folder))

    @tool.read
    async def look(args: Charge) -> Receipt:
        """Look for a charge, and find none."""
        counted.append("looked")
        raise Refused("There is none.", code="not_found")

    @tool.idempotent(authority=["charge"])
    async def refund(args: Refund) -> Receipt:
        """Give it back."""
        counted.append("refunded")
        return Receipt(id=args.charge)

    reconcile: dict[str, Any] = {"reconcile": look, "settle": 0} if looks else {}

    @tool.unkeyed(undo=refund.using(charge="result.id"), untrusted=options.get("untrusted", False), **reconcile)
    async def send_once(args: Charge, key: Key) -> Receipt:
        """Charge a card; the answer reaches the ledger and nobody else."""
        counted.append("sent")

        async def work() -> JsonValue:
            return {"id": 7}

        await apply_claimed(engine, LedgerEntry(key, "", "", "", ""), work, lambda error: False)
        await asyncio.sleep(60 if options.get("hangs") else 0)
        raise ConnectionResetError("the answer never came")

    async with stages([look, refund, send_once], script) as stage:
        yield stage
    await engine.dispose()


SENT: Proposals = [plan(step("pay", "send_once", url="x")), DONE]


@pytest.mark.parametrize(
    ("looks", "limits"),
    [(False, {}), (True, {}), (False, {"tool_calls": 1})],
    ids=["without reconcile=", "with one that finds nothing", "without a further call of a tool"],
)
async def test_the_ledger_answers_before_anybody_is_asked(stages: Stages, looks: bool, limits: dict[str, int]) -> None:
    """An unkeyed call whose answer the ledger has was applied: the step has its result, and no limit hides that."""
    counted = list[str]()
    async with lost_after_record(stages, SENT, counted, looks=looks) as stage:
        ended = await stage.run("a task", **limits)

    assert (ended.status, ended.steps[0].result, counted) == (TaskStatus.COMPLETED, {"id": 7}, ["sent"])
    assert [(fault.decision, fault.reconciled) for fault in ended.faults] == [("reconcile", "applied")]


async def stopped(stage: Stage, counted: list[str]) -> Handle:
    """A task that was stopped before it heard of its charge."""
    handle = await stage.start()
    async with asyncio.timeout(20):
        while "sent" not in counted:
            await asyncio.sleep(0.05)
    await handle.terminate()
    stage.started.clear()
    return handle


async def test_a_rollback_undoes_what_only_the_ledger_knows(stages: Stages) -> None:
    """The ledger has the charge, so it is given back, once."""
    counted = list[str]()
    script = [plan(step("a", "refund", charge=1), step("b", "send_once", "a", url="x"))]
    async with lost_after_record(stages, script, counted, hangs=True) as stage:
        handle = await stopped(stage, counted)
        rolled_back = [await undo(stage.client, handle, View(), is_attended=False) for _ in range(2)]

    assert counted == ["refunded", "sent", "refunded"]
    assert {undone.step_id: undone.done for undone in rolled_back[0].outcome.undo} == {"a": False, "b": True}
    assert [undone.step_id for undone in rolled_back[1].outcome.undo] == ["a"]


async def test_a_person_can_confirm_the_undo_of_what_only_the_ledger_knows(stages: Stages) -> None:
    """The first rollback finds the result, which the task never heard of; then the call is shown with it, and made."""
    counted, seen = list[str](), list[PlannedUndo]()

    async def confirm(planned: PlannedUndo) -> bool:
        seen.append(planned)
        return True

    async with lost_after_record(stages, SENT, counted, hangs=True, untrusted=True) as stage:
        handle = await stopped(stage, counted)
        held = await undo(stage.client, handle, View(), is_attended=False)
        shown = await undo(stage.client, handle, View(), is_attended=False, confirm=confirm)

    assert "refund needs approval: charge comes from untrusted content" in held.outcome.undo[0].reason
    assert ([call.args for call in seen[0].calls], shown.is_complete) == ([{"charge": 7}], True)
    assert counted == ["sent", "refunded"]
