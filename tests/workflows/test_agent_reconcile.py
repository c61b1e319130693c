"""Finding out, on a real server, whether a call happened whose answer was lost."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.boundary.attempt import FaultRaised
from replan import Key, Refused, Tool, Unreachable, tool
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.workflows.history import until
from tests.workflows.props import Stages
from workflows.account.outcome import Outcome
from workflows.account.records import FaultRecord, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Code, Fault

SETTLE = 0.4
"""Seconds."""


class Pay(BaseModel):
    """What to pay."""

    amount: int


class Sought(BaseModel):
    """A payment that is looked for."""

    reference: str = ""
    amount: int


class Paid(BaseModel):
    """A payment."""

    id: int


class World:
    """What was paid, how often was asked, and what happens at each call."""

    def __init__(self, *calls: str, found: str = "found") -> None:
        """`calls`: `lost`, `late` (it happens although nobody answers, later), `dead`, `refused`, or `paid`."""
        self.calls = list(calls)
        self.found = found
        self.paid: list[str] = []
        self.asked: list[Sought] = []
        self.pending: list[str] = []

    def pay(self, reference: str) -> Paid:
        """One call."""
        match self.calls.pop(0):
            case "lost":
                self.paid.append(reference)
                raise ConnectionResetError("the answer never came")
            case "late":
                self.pending.append(reference)
                raise ConnectionResetError("the answer never came")
            case "dead":
                raise ConnectionResetError("the answer never came")
            case "refused":
                raise Refused("It was paid already.", code="conflict")
        self.paid.append(reference)
        return Paid(id=len(self.paid))

    async def find(self, sought: Sought) -> Paid:
        """Look for a payment; `slow` says after its end what there was at the beginning."""
        self.asked.append(sought)
        if self.found == "slow" and len(self.asked) == 1:
            await asyncio.sleep(2 * SETTLE)
        if self.found == "left alone" and len(self.asked) == 1:
            raise FaultRaised(Fault.of(Code.CIRCUIT_OPEN, "It is left alone."))
        if self.found == "nobody answers":
            raise Unreachable("The bank is closed.")
        if not self.paid:
            self.paid += self.pending
            raise Refused("There is no such payment.", code="not_found")
        return Paid(id=len(self.paid))


def tools(world: World, effect: str = "unkeyed") -> Sequence[Tool[..., Any]]:
    """A payment without a key, or with one, and the read that finds it."""

    @tool.read(retry="once")
    async def find(args: Sought) -> Paid:
        """Find a payment."""
        return await world.find(args)

    reconcile: dict[str, Any] = {"reconcile": find.using(reference="key"), "settle": SETTLE, "timeout": 0.5}

    @tool.unkeyed(**reconcile)
    async def pay(args: Pay) -> Paid:
        """Pay without a key."""
        return world.pay("?")

    async def keyed(args: Pay, key: Key) -> Paid:
        """Pay with a key."""
        return world.pay(key)

    keyed.__name__ = "pay"
    return [find, pay if effect == "unkeyed" else tool.keyed(**reconcile)(keyed)]


async def paid(
    client: Client, folder: Path, world: World, effect: str = "unkeyed", then: Callable[[], Proposals] | None = None
) -> Outcome:
    """A task that pays once."""
    script = [plan(step("one", "pay", amount=7)), *(then() if then else []), DONE]
    async with staged(client, folder, tools(world, effect), script) as stage:
        return await stage.run()


def noted(fault: FaultRecord) -> tuple[str, str | None, str]:
    """What a fault says of its effect."""
    return fault.decision, fault.reconciled, fault.applied.value


async def test_what_is_found_is_the_result(client: Client, tmp_path: Path) -> None:
    """The answer was lost, the payment was not: it is the step's result, and nothing is paid again."""
    world = World("lost")
    ended = await paid(client, tmp_path, world)

    assert (ended.status, ended.steps[0].result, len(world.paid)) == (TaskStatus.COMPLETED, {"id": 1}, 1)
    assert [noted(fault) for fault in ended.faults] == [("reconcile", "applied", "applied")]


async def test_the_read_is_given_the_key_and_the_arguments(client: Client, tmp_path: Path) -> None:
    """`reference="key"` is the idempotency key, and `amount` comes from the call by its name."""
    world = World("lost")
    await paid(client, tmp_path, world, "keyed")

    assert [(one.reference, one.amount) for one in world.asked] == [(world.paid[0], 7)] * len(world.asked)


async def test_what_did_not_happen_is_done(client: Client, tmp_path: Path) -> None:
    """Not found, and not found again when no attempt can be under way: then it is called once more, and only then."""
    world = World("dead", "paid")
    ended = await paid(client, tmp_path, world)

    assert (ended.status, ended.steps[0].result, len(world.paid)) == (TaskStatus.COMPLETED, {"id": 1}, 1)
    assert [noted(fault) for fault in ended.faults] == [("wait", "not_applied", "none")]
    assert len(world.asked) == 2


async def test_what_happens_late_is_not_done_twice(client: Client, tmp_path: Path) -> None:
    """The first look comes too early, and the payment arrives after it: the look after `settle` finds it."""
    world = World("late")
    ended = await paid(client, tmp_path, world)

    assert (ended.status, len(world.paid), len(world.asked)) == (TaskStatus.COMPLETED, 1, 2)


@pytest.mark.full
async def test_a_look_is_as_old_as_its_beginning(client: Client, tmp_path: Path) -> None:
    """It began too early and answered late, so it is no proof: a later one finds the payment."""
    world = World("late", found="slow")
    ended = await paid(client, tmp_path, world)

    assert (ended.status, len(world.paid), len(world.asked)) == (TaskStatus.COMPLETED, 1, 2)


async def test_what_nobody_can_tell_is_for_a_person(client: Client, tmp_path: Path) -> None:
    """The read fails, too: `escalated`, told what may have happened and by which key it can be looked for."""
    world = World("lost", found="nobody answers")
    ended = await paid(client, tmp_path, world)

    assert (ended.status, noted(ended.faults[-1])) == (TaskStatus.ESCALATED, ("escalate", "cannot_tell", "unknown"))
    assert "pay may have been applied (key " in ended.reason and "/one)" in ended.reason
    assert "could not be found out: find ended with unreachable" in ended.reason


@pytest.mark.full
async def test_a_read_that_is_left_alone_is_no_finding(stages: Stages) -> None:
    """Its breaker is open: after the ledger and a timer it is asked again, and then finds the payment."""
    world = World("lost", found="left alone")
    async with stages(tools(world), [plan(step("one", "pay", amount=7)), DONE]) as stage:
        handle = await stage.start()
        await until(handle, lambda progress: bool(progress.with_status(StepStatus.WAITING)))
        ended = await outcome(handle)

    assert (ended.status, len(world.paid), len(world.asked)) == (TaskStatus.COMPLETED, 1, 2)
    assert ended.spent.tool_calls == 3


async def test_a_refusal_after_a_lost_answer_is_the_echo_of_our_own_effect(client: Client, tmp_path: Path) -> None:
    """A phantom conflict: the retry is told "paid already" and finds its own payment; no replan, no second one."""
    world = World("lost", "refused")
    ended = await paid(client, tmp_path, world, "keyed")

    assert (ended.status, ended.replans, len(world.paid)) == (TaskStatus.COMPLETED, 0, 1)
    assert noted(ended.faults[-1]) == ("reconcile", "applied", "applied")


async def test_a_refusal_after_an_attempt_that_did_nothing_is_believed(client: Client, tmp_path: Path) -> None:
    """Nothing is found, so the world has really refused: a new plan."""
    world = World("dead", "refused", "paid")
    ended = await paid(client, tmp_path, world, "keyed", lambda: [plan(step("two", "pay", amount=8))])

    assert (ended.status, ended.replans, len(world.paid)) == (TaskStatus.COMPLETED, 1, 1)
    assert noted(ended.faults[1]) == ("replan", "not_applied", "none")


async def test_a_key_is_trusted_as_long_as_there_are_attempts(client: Client, tmp_path: Path) -> None:
    """Four attempts with one key, all without an answer: only then is it found out."""
    world = World("lost", "lost", "lost", "lost")
    ended = await paid(client, tmp_path, world, "keyed")

    assert (ended.status, ended.steps[0].attempts, len(world.asked)) == (TaskStatus.COMPLETED, 4, 1)
    assert len(set(world.paid)) == 1


@pytest.mark.parametrize("calls", [("dead", "dead", "dead", "dead", "paid")])
@pytest.mark.full
async def test_attempts_that_did_nothing_are_counted(client: Client, tmp_path: Path, calls: Sequence[str]) -> None:
    """A call that never gets through is not made for ever: its attempts end as those of any other."""
    world = World(*calls)
    ended = await paid(client, tmp_path, world, "unkeyed", lambda: [])

    assert (ended.steps[0].attempts, world.paid) == (4, [])
    assert {fault.applied for fault in ended.faults} == {Applied.NONE}
