"""Plain functions, on a real server: nothing stops a thread, so an attempt is not over while its thread lives."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from replan import Key, Refused, Tool, tool
from tests.harness import DONE, Stage, outcome, plan, step
from tests.log_lines import captured
from tests.workflows.props import Stages
from workflows.account.outcome import Outcome
from workflows.account.records import UndoRecord
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Applied
from workflows.plans.proposal import Step

TIMEOUT = 0.4
"""Seconds of an attempt; its thread is waited for until eleven times as long."""
LATE = 2.0
"""Seconds that a thread takes: longer than timeout and settle together."""


class Nothing(BaseModel):
    """No arguments."""


class Paid(BaseModel):
    id: int


class Bank:
    """What was paid, and paid back, and how long a call takes."""

    def __init__(self, first: float | None = None) -> None:
        """The first call takes so many seconds, without a number until the bank closes; all others take none."""
        self.first = first
        self.closed = threading.Event()
        self.began = 0
        self.paid = 0
        self.refunded = 0

    def hang(self) -> None:
        """Block the thread."""
        self.began += 1
        if self.began == 1:
            self.closed.wait(60 if self.first is None else self.first)

    def pay(self) -> Paid:
        """Block the thread, then pay."""
        self.hang()
        self.paid += 1
        return Paid(id=self.paid)


def tools(bank: Bank, effect: str = "unkeyed", *, finds: bool = True) -> Sequence[Tool[..., Any]]:
    """A payment by a plain function, the read that finds it, and what pays it back."""

    @tool.read
    async def find(args: Nothing) -> Paid:
        """Find a payment."""
        if not bank.paid:
            raise Refused("There is no payment.", code="not_found")
        return Paid(id=bank.paid)

    @tool.keyed
    async def refund(args: Nothing, key: Key) -> Nothing:
        """Pay back."""
        bank.refunded += 1
        return args

    more: dict[str, Any] = {"timeout": TIMEOUT, "undo": refund}
    more |= {"reconcile": find, "settle": 0.3, "enforces_timeout": True} if finds else {}

    def pay(args: Nothing) -> Paid:
        """Pay, in a thread."""
        return bank.pay()

    def keyed(args: Nothing, key: Key) -> Paid:
        """Pay with a key, in a thread."""
        return bank.pay()

    keyed.__name__ = "pay"
    made = tool.keyed(**more)(keyed) if effect == "keyed" else getattr(tool, effect)(**more)(pay)
    return [find, refund, made]


@dataclass
class Paying(Stage):
    """A worker whose tasks pay once, their bank, and its log."""

    bank: Bank = field(default_factory=Bank)
    lines: list[Any] = field(default_factory=list)

    def logged(self, event: str) -> list[Any]:
        """The lines of one event so far."""
        return [line for line in self.lines if line["event"] == event]

    async def cancelled(self) -> Outcome:
        """A task that was cancelled while its thread ran, with a rollback."""
        handle = await self.start()
        async with asyncio.timeout(30):
            while not self.bank.began:  # the other side is a thread
                await asyncio.sleep(0.02)
        await handle.signal(AgentWorkflow.undo_when_cancelled)
        await handle.cancel()
        return await outcome(handle)

    async def close(self) -> None:
        """Let every thread end that outlived its attempt, and wait for that."""
        self.bank.closed.set()
        async with asyncio.timeout(30):
            while len(self.logged("thread_ended")) < len(self.logged("thread_left")):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def paying(stages: Stages, bank: Bank, given: Sequence[Tool[..., Any]], *steps: Step) -> AsyncIterator[Paying]:
    """A worker whose tasks have these steps, else one payment; no thread runs on when it is left."""
    chosen = steps or (step("a", "pay"),)
    with captured() as lines:
        async with stages(given, [plan(*chosen), DONE]) as stage:
            ready = Paying(stage.client, stage.queue, bank=bank, lines=lines)
            yield ready
            await ready.close()


@pytest.mark.parametrize(
    "effect", ["unkeyed", *(pytest.param(one, marks=pytest.mark.full) for one in ("keyed", "idempotent"))]
)
async def test_a_thread_that_ends_late_is_the_result_of_its_attempt(stages: Stages, effect: str) -> None:
    """Past timeout and settle it pays: that is the step's result, and nobody paid once more meanwhile."""
    bank = Bank(LATE)
    async with paying(stages, bank, tools(bank, effect)) as stage:
        ended = await stage.run()

    assert (ended.status, ended.steps[0].result) == (TaskStatus.COMPLETED, {"id": 1})
    assert (bank.began, bank.paid) == (1, 1)


@pytest.mark.full
async def test_what_a_late_thread_raises_is_the_fault_of_its_attempt(stages: Stages) -> None:
    """A refusal is a refusal, however late: nothing is in doubt."""
    bank = Bank(LATE)

    @tool.unkeyed(timeout=TIMEOUT)
    def pay(args: Nothing) -> Paid:
        """Refuse late."""
        bank.hang()
        raise Refused("The account is empty.")

    async with paying(stages, bank, [pay]) as stage:
        ended = await stage.run(replans=0)

    assert (ended.faults[-1].code, ended.faults[-1].applied, bank.began) == ("refused", Applied.NONE, 1)


@pytest.mark.parametrize("finds", [pytest.param(True, marks=pytest.mark.full), False])
async def test_a_thread_that_outlives_its_attempt_is_for_a_person(stages: Stages, finds: bool) -> None:
    """That nothing is found proves nothing while it may run on: it is not paid again, and the reason says why.

    The worker logs and counts it until it ends: two lines, the second with what it came to.
    """
    bank = Bank()
    async with paying(stages, bank, tools(bank, finds=finds)) as stage:
        ended = await stage.run()
        await stage.close()

    assert (ended.status, ended.code, bank.paid) == (TaskStatus.ESCALATED, "timeout", 1)
    assert "pay still ran after" in ended.reason and "may be applied later" in ended.reason
    [left], [over] = stage.logged("thread_left"), stage.logged("thread_ended")
    assert (left["kind"], left["step"], left["live"]) == ("pay", "a", 1)
    assert (over["error"], over["live"]) == (None, 0)


async def test_what_is_found_settles_it_although_the_thread_runs(stages: Stages) -> None:
    """A payment that is there was made, whatever its thread still does."""
    bank = Bank()

    @tool.read
    async def find(args: Nothing) -> Paid:
        """Find the payment that was made before the answer came."""
        return Paid(id=7)

    @tool.unkeyed(timeout=TIMEOUT, reconcile=find, settle=0.3, enforces_timeout=True)
    def pay(args: Nothing) -> Paid:
        """Pay, and answer much later."""
        bank.paid += 1
        bank.hang()
        return Paid(id=0)

    async with paying(stages, bank, [find, pay]) as stage:
        ended = await stage.run()

    assert (ended.status, ended.steps[0].result, bank.paid) == (TaskStatus.COMPLETED, {"id": 7}, 1)
    assert (ended.faults[-1].still_running, ended.faults[-1].reconciled) == (True, "applied")


@pytest.mark.full
async def test_a_key_is_sent_again_but_nothing_found_proves_nothing(stages: Stages) -> None:
    """The service knows the key, so it is asked again; what the thread does that outlived its attempt is not known."""
    bank, calls = Bank(), list[str]()

    @tool.read
    async def find(args: Nothing) -> Paid:
        """Find nothing."""
        raise Refused("There is no payment.", code="not_found")

    @tool.keyed(timeout=TIMEOUT, reconcile=find, settle=0.3, enforces_timeout=True)
    def pay(args: Nothing, key: Key) -> Paid:
        """Hang once, then refuse."""
        calls.append(key)
        bank.hang()
        raise Refused("No.", code="conflict")

    async with paying(stages, bank, [find, pay]) as stage:
        ended = await stage.run(replans=0)

    assert (ended.status, len(calls), len(set(calls))) == (TaskStatus.ESCALATED, 2, 1)
    assert (ended.faults[-1].code, ended.faults[-1].reconciled) == ("conflict", "cannot_tell")


async def test_a_cancel_waits_for_the_thread_and_undoes_what_it_did(stages: Stages) -> None:
    """It pays after the cancel: that is known, and paid back."""
    bank = Bank(LATE)
    async with paying(stages, bank, tools(bank)) as stage:
        ended = await stage.cancelled()

    assert ended.undo == (UndoRecord(step_id="a", kind="refund", done=True),)
    assert (ended.status, bank.paid, bank.refunded) == (TaskStatus.CANCELLED, 1, 1)


@pytest.mark.parametrize("effect", ["unkeyed", pytest.param("keyed", marks=pytest.mark.full)])
async def test_a_rollback_names_a_thread_that_outlived_the_cancel(stages: Stages, effect: str) -> None:
    """Nobody is told that all was undone, and the payment that comes later is one."""
    bank = Bank()
    async with paying(stages, bank, tools(bank, effect)) as stage:
        ended = await stage.cancelled()
        await stage.close()

    [told] = ended.undo
    assert (told.step_id, told.done, bank.paid, bank.refunded) == ("a", False, 1, 0)
    assert "pay was still running when its attempt ended" in told.reason and "Not undone: a" in ended.reason


@pytest.mark.full
async def test_an_undo_of_what_an_earlier_thread_may_do_again_stays_for_a_person(stages: Stages) -> None:
    """Repeating is harmless, but not after it was taken back."""
    bank = Bank()

    @tool.unkeyed
    async def stop(args: Nothing) -> Nothing:
        """Fail for good."""
        raise KeyError("stop")

    steps = step("a", "pay"), step("b", "stop", "a")
    async with paying(stages, bank, [*tools(bank, "idempotent"), stop], *steps) as stage:
        ended = await stage.run(Task(text="a task", on_escalation="undo"))
        await stage.close()

    told = next(one for one in ended.undo if one.step_id == "a")
    assert (told.done, bank.paid, bank.refunded) == (False, 2, 1)
    assert "earlier attempt of pay was still running" in told.reason
