"""Finding out, on a real server, whether a call happened whose answer was lost."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from activities.boundary.attempt import FaultRaised
from replan import Key, Refused, Tool, Unreachable, tool
from tests.harness import DONE, outcome, plan, step
from tests.workflows.history import until
from tests.workflows.props import Stages
from workflows.account.outcome import Outcome
from workflows.account.records import FaultRecord, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.proposal import NewSteps

SETTLE = 0.4
"""Seconds."""


class Pay(BaseModel):
    amount: int


class Sought(BaseModel):
    reference: str = ""
    amount: int


class Paid(BaseModel):
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
        if self.found == "the bank is gone":
            raise Refused("There is no such bank any more.", code="gone")
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


PAYS = plan(step("one", "pay", amount=7))


async def paid(stages: Stages, world: World, effect: str = "unkeyed", *then: NewSteps) -> Outcome:
    """A task that pays once."""
    return await stages.run(tools(world, effect), [PAYS, *then, DONE])


def noted(fault: FaultRecord) -> tuple[str, str | None, str]:
    """What a fault says of its effect."""
    return fault.decision, fault.reconciled, fault.applied.value


async def test_what_is_found_is_the_result(stages: Stages) -> None:
    """The answer was lost, the payment was not: it is the step's result, and nothing is paid again."""
    world = World("lost")
    ended = await paid(stages, world)

    assert (ended.status, ended.steps[0].result, len(world.paid)) == (TaskStatus.COMPLETED, {"id": 1}, 1)
    assert [noted(fault) for fault in ended.faults] == [("reconcile", "applied", "applied")]


async def test_what_did_not_happen_is_done(stages: Stages) -> None:
    """Not found, and not found again when no attempt can be under way: then it is called once more, and only then."""
    world = World("dead", "paid")
    ended = await paid(stages, world)

    assert (ended.status, ended.steps[0].result, len(world.paid)) == (TaskStatus.COMPLETED, {"id": 1}, 1)
    assert [noted(fault) for fault in ended.faults] == [("wait", "not_applied", "none")]
    assert len(world.asked) == 2


@pytest.mark.parametrize("found", ["found", pytest.param("slow", marks=pytest.mark.full)])
async def test_what_happens_late_is_not_done_twice(stages: Stages, found: str) -> None:
    """The first look comes too early, and the payment arrives after it: the look after `settle` finds it.

    A look is as old as its beginning: one that began too early and answered late is no proof.
    """
    world = World("late", found=found)
    ended = await paid(stages, world)

    assert (ended.status, len(world.paid), len(world.asked)) == (TaskStatus.COMPLETED, 1, 2)


@pytest.mark.parametrize(("found", "code"), [("nobody answers", "unreachable"), ("the bank is gone", "gone")])
async def test_what_nobody_can_tell_is_for_a_person(stages: Stages, found: str, code: str) -> None:
    """The read fails, too: `escalated`, told what may have happened and by which key it can be looked for."""
    ended = await paid(stages, World("lost", found=found))

    assert (ended.status, noted(ended.faults[-1])) == (TaskStatus.ESCALATED, ("escalate", "cannot_tell", "unknown"))
    assert "pay may have been applied (key " in ended.reason and "/one)" in ended.reason
    assert f"could not be found out: find ended with {code}" in ended.reason


@pytest.mark.full
async def test_a_read_that_is_left_alone_is_no_finding(stages: Stages) -> None:
    """Its breaker is open: after the ledger and a timer it is asked again, and then finds the payment."""
    world = World("lost", found="left alone")
    async with stages(tools(world), [PAYS, DONE]) as stage:
        handle = await stage.start()
        await until(handle, lambda progress: bool(progress.with_status(StepStatus.WAITING)))
        ended = await outcome(handle)

    assert (ended.status, len(world.paid), len(world.asked)) == (TaskStatus.COMPLETED, 1, 2)
    assert ended.spent.tool_calls == 3


async def test_a_refusal_after_a_lost_answer_is_the_echo_of_our_own_effect(stages: Stages) -> None:
    """A phantom conflict: the retry is told "paid already" and finds its own payment; no replan, no second one."""
    world = World("lost", "refused")
    ended = await paid(stages, world, "keyed")

    assert (ended.status, ended.replans, len(world.paid)) == (TaskStatus.COMPLETED, 0, 1)
    assert noted(ended.faults[-1]) == ("reconcile", "applied", "applied")


async def test_a_refusal_after_an_attempt_that_did_nothing_is_believed(stages: Stages) -> None:
    """Nothing is found, so the world has really refused: a new plan."""
    world = World("dead", "refused", "paid")
    ended = await paid(stages, world, "keyed", plan(step("two", "pay", amount=8)))

    assert (ended.status, ended.replans, len(world.paid)) == (TaskStatus.COMPLETED, 1, 1)
    assert noted(ended.faults[1]) == ("replan", "not_applied", "none")


async def test_a_key_is_trusted_as_long_as_there_are_attempts(stages: Stages) -> None:
    """Four attempts with one key, all without an answer: only then is it found out, by the key and the arguments."""
    world = World("lost", "lost", "lost", "lost")
    ended = await paid(stages, world, "keyed")

    assert (ended.status, ended.steps[0].attempts, len(set(world.paid))) == (TaskStatus.COMPLETED, 4, 1)
    assert [(one.reference, one.amount) for one in world.asked] == [(world.paid[0], 7)]


@pytest.mark.full
async def test_attempts_that_did_nothing_are_counted(stages: Stages) -> None:
    """A call that never gets through is not made for ever: its attempts end as those of any other."""
    world = World(*["dead"] * 4, "paid")
    ended = await paid(stages, world)

    assert (ended.steps[0].attempts, world.paid) == (4, [])
    assert {fault.applied for fault in ended.faults} == {Applied.NONE}
