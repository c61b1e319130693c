"""What is doubted and what is believed, on a real server, where a step has had more than one life."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import WorkflowFailureError

from replan import Busy, Key, NeedsPerson, Refused, Tool, Transaction, Unreachable, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import backoff, until
from tests.workflows.props import Stages
from tests.workflows.test_agent_reset import again
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord, StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import FORM, Effect
from workflows.plans.proposal import Step
from workflows.rollback import Undo, UndoWorkflow

UNDONE = Task(text="a task", on_escalation="undo")


class Pay(BaseModel):
    amount: int = 1


class Done(BaseModel):
    ok: bool = True


class Anything(BaseModel):
    id: dict[str, JsonValue]


@tool.read
async def person(args: Pay) -> Done:
    """Need a person."""
    raise NeedsPerson("Somebody has to look.")


def pays(world: list[str], *, keyed: bool) -> Sequence[Tool[..., Any]]:
    """A payment that is undone, with and without a key."""

    @tool.read
    async def find(args: Pay) -> Done:
        """Find the payment."""
        if "pay" not in world:
            raise Refused("There is none.", code="not_found")
        return Done()

    @tool.idempotent
    async def refund(args: Pay) -> Done:
        """Take it back."""
        world.append("refund")
        return Done()

    if keyed:

        @tool.keyed(undo=refund, reconcile=find, settle=0.1)
        async def pay(args: Pay, key: Key) -> Done:
            """Pay with a key."""
            world.append("pay")
            return Done()

        return [find, refund, pay, person]

    @tool.idempotent(undo=refund)
    async def pay_again(args: Pay) -> Done:
        """Pay, which is harmless twice."""
        world.append("pay")
        return Done()

    return [find, refund, pay_again, person]


async def test_a_call_that_may_have_happened_has_no_substitute(stages: Stages) -> None:
    """Its last attempt surely did nothing, but its first one may have: no fallback, no new plan, a person."""
    paid = list[str]()

    @tool.keyed
    async def other(args: Pay, key: Key) -> Done:
        """Pay elsewhere."""
        paid.append("other")
        return Done()

    @tool.keyed(fallback=other)
    async def pay(args: Pay, key: Key) -> Done:
        """Pay, lose the answer, and then fail without an effect."""
        if not paid:
            paid.append("pay")
            raise ConnectionResetError("lost")
        raise Unreachable("The bank could not do it.", code="server_error")

    ended = await stages.run([pay, other], [plan(step("a", "pay")), DONE])

    assert (ended.status, paid, ended.faults[-1].applied) == (TaskStatus.ESCALATED, ["pay"], Applied.UNKNOWN)


async def retried(stages: Stages, pay: Tool[..., Any], then: str) -> Outcome:
    """A task whose payment a person has looked at, says `retry`, and what then follows."""
    async with stages([pay], [plan(step("a", "pay")), DONE]) as stage:
        handle = await stage.start(Task(text="a task", on_escalation="wait"))
        await until(handle, lambda progress: bool(progress.open_requests))
        await handle.execute_update("retry", {"by": "ann"})
        if then:
            await until(handle, lambda progress: len(progress.requests) == 2)
            await handle.execute_update(then, {"by": "ann"})
        return await outcome(handle)


async def test_a_person_who_looked_lets_a_call_be_made_again(stages: Stages) -> None:
    """Nobody knows what the first attempt did, so it is not repeated; but a person who has looked may say `retry`."""
    world = list[str]()

    @tool.unkeyed
    async def pay(args: Pay) -> Done:
        """Pay, and lose the first answer."""
        world.append("paid" if world else "lost on the way")
        if len(world) == 1:
            raise ConnectionResetError("lost")
        return Done()

    ended = await retried(stages, pay, "")

    assert (ended.status, world) == (TaskStatus.COMPLETED, ["lost on the way", "paid"])
    assert len(ended.requests) == 1


async def test_what_was_surely_applied_is_not_made_again_by_a_retry(stages: Stages) -> None:
    """Its result breaks the tool's promise, so that nothing is recorded; the person's `retry` meets the claim."""
    world = list[str]()

    @tool.unkeyed(ensure="result.ok")
    async def pay(args: Pay) -> Done:
        """Pay, and say that it was not done."""
        world.append("paid")
        return Done(ok=False)

    ended = await retried(stages, pay, "abort")

    assert (ended.status, world) == (TaskStatus.FAILED, ["paid"])
    assert [fault.applied for fault in ended.faults] == [Applied.APPLIED, Applied.APPLIED]


@pytest.mark.parametrize("kind", ["pay", pytest.param("pay_again", marks=pytest.mark.full)])
async def test_what_was_undone_is_not_reported_after_a_reset(stages: Stages, kind: str) -> None:
    """The step of the new run is a conflict: neither its old result, nor an effect that nobody would undo."""
    world = list[str]()
    steps = plan(step("a", kind, amount=1), step("b", "person", "a"))
    async with stages(pays(world, keyed=kind == "pay"), [steps, DONE]) as stage:
        handle = await stage.start(UNDONE)
        await outcome(handle)
        second = await again(stage, stage.client.get_workflow_handle_for(AgentWorkflow.run, handle.id), "a")

    assert (second.steps[0].status, second.faults[0].code) == (StepStatus.FAILED, Code.CONFLICT)
    assert world == ["pay", "refund"]


async def test_a_commit_that_failed_is_no_effect(stages: Stages) -> None:
    """The tool had returned, and its own transaction was refused at the end: after a reset it is not `done` either."""
    bank = create_async_engine(f"sqlite+aiosqlite:///{stages.folder / 'bank.db'}")
    async with bank.begin() as tx:
        await tx.execute(text("CREATE TABLE a (id INTEGER PRIMARY KEY)"))
        await tx.execute(text("CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)"))

    @tool.unkeyed(datasource=bank)
    async def pay(args: Pay, tx: Transaction) -> Done:
        """Pay into an account that is not there."""
        await tx.execute(text("INSERT INTO b VALUES (99)"))
        return Done()

    async with stages([pay], [plan(step("a", "pay")), DONE]) as stage:
        handle = await stage.start()
        first = await outcome(handle)
        second = await again(stage, stage.client.get_workflow_handle_for(AgentWorkflow.run, handle.id), "a")

    assert (first.faults[-1].applied, second.status) == (Applied.UNKNOWN, TaskStatus.ESCALATED)


@pytest.mark.full
async def test_the_first_kind_of_a_fallback_is_named(stages: Stages) -> None:
    """It may have happened before the other took over, and only the other is undone.

    So is a harmless call with a bug in the middle, instead of passing it over as if nothing had happened.
    """
    world = list[str]()

    @tool.idempotent
    async def other_back(args: Pay) -> Done:
        """Take the other back."""
        world.append("other back")
        return Done()

    @tool.idempotent(undo=other_back)
    async def other(args: Pay) -> Done:
        """Pay elsewhere."""
        world.append("other")
        return Done()

    @tool.idempotent(fallback=other, retry="once")
    async def pay(args: Pay) -> Done:
        """Pay, and lose the answer."""
        world.append("pay")
        raise ConnectionResetError("lost")

    @tool.idempotent
    async def buggy(args: Pay) -> Done:
        """Fail after the effect."""
        raise KeyError("id")

    steps = plan(step("a", "pay", amount=1), step("b", "person", "a"))
    ended = await stages.run([pay, other, other_back, person], [steps, DONE], UNDONE)
    broken = await stages.run([buggy], [plan(step("a", "buggy")), DONE], UNDONE)

    assert [(one.step_id, one.done) for one in broken.undo] == [("a", False)]
    assert world == ["pay", "other", "other back"]
    assert [one.reason for one in ended.undo if not one.done] == [
        "it may have been applied as pay before other took over"
    ]


@pytest.mark.full
async def test_a_step_that_was_only_waiting_needs_no_undo(stages: Stages) -> None:
    """Cancelled between two calls of which none did anything."""
    called = asyncio.Event()

    @tool.keyed
    async def pay(args: Pay, key: Key) -> Done:
        """Be busy for minutes."""
        called.set()
        raise Busy("Not now.", retry_after=120)

    async with stages([pay], [plan(step("a", "pay")), DONE]) as stage:
        handle = await stage.start()
        await called.wait()
        while (await handle.query(AgentWorkflow.progress)).records[0].status is not StepStatus.WAITING:
            await asyncio.sleep(0.05)
        await handle.signal("undo_when_cancelled")
        await handle.cancel()
        ended = await outcome(handle)

    assert (ended.status, ended.undo) == (TaskStatus.CANCELLED, ())


async def test_the_arguments_of_an_undo_are_data(stages: Stages) -> None:
    """What the world returned is passed on as it is, also where it looks like a reference to another step."""
    got = list[dict[str, JsonValue]]()

    @tool.read
    async def secret(args: Pay) -> Anything:
        """Return a secret."""
        return Anything(id={"secret": 1})

    @tool.keyed
    async def recall(args: Anything, key: Key) -> Done:
        """Note what is to be recalled."""
        got.append(args.id)
        return Done()

    @tool.keyed(undo=recall.using(id="result.id"))
    async def send(args: Pay, key: Key) -> Anything:
        """Return what looks like a reference."""
        return Anything(id={"$from": "s", "path": "id"})

    steps = plan(step("s", "secret"), step("a", "send", "s"), step("b", "person", "a"))
    await stages.run([secret, recall, send, person], [steps, DONE], UNDONE)

    assert got == [{"$from": "s", "path": "id"}]


def of_old(status: StepStatus, kind: str, **more: Any) -> Progress:
    """A task with one step."""
    now = datetime.now(UTC)
    record = StepRecord(
        step=Step(id="a", kind=kind),
        revision=1,
        effect=Effect.IDEMPOTENT,
        kind=kind,
        status=status,
        started=now,
        ended=now,
    )
    return Progress(task=Task(text="a task"), task_id="t", started_at=now, records=[record], form=FORM, **more)


async def undone_by_itself(stages: Stages, progress: Progress, tools: Sequence[Tool[..., Any]]) -> str:
    """Why a rollback of this task is not complete."""
    async with stages(tools, [DONE]) as stage:
        undo = stage.client.execute_workflow(
            UndoWorkflow.run, Undo(progress=progress), id=f"undo-{stage.queue}", task_queue=stage.queue
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(undo, 20)
    return str(failed.value.cause)


def doubted(progress: Progress, kind: str, *known: tuple[Code, Applied]) -> Progress:
    """The same task with these faults of its step."""
    for code, applied in known:
        fault = Fault.of(code, "No answer.", applied=applied, source=kind)
        progress.faults.append(FaultRecord.of_call(fault, "a", 1, "escalate", at=datetime.now(UTC)))
    return progress


async def test_a_rollback_names_what_no_worker_can_look_up(stages: Stages) -> None:
    """Under a newer tools file no workflow task fails over a kind that is gone.

    The last fault of a task may pass over what came before: its account says `none` after `unknown`, since a worker
    without the tool took the second attempt. That is doubted.
    """
    lost = doubted(of_old(StepStatus.FAILED, "old", origin="r"), "old", (Code.TIMEOUT, Applied.UNKNOWN))
    moved = of_old(StepStatus.FAILED, "move", origin="r")
    moved.records[0].effect = Effect.TRANSACTIONAL
    doubted(moved, "move", (Code.UNREACHABLE, Applied.UNKNOWN), (Code.MISSING_TOOL, Applied.NONE))

    assert "no worker knows old" in await undone_by_itself(stages, lost, [person])
    assert "nobody knows whether it was applied: no worker knows move" in await undone_by_itself(
        stages, moved, [person]
    )


async def test_arguments_that_are_not_kept_are_not_guessed(stages: Stages) -> None:
    """Long ones are left out of what is carried on: neither an undo nor a look is made from the plan's own words."""
    world = list[str]()
    why = [
        await undone_by_itself(stages, of_old(status, "pay", origin="r"), pays(world, keyed=True))
        for status in (StepStatus.COMPLETED, StepStatus.CANCELLED)
    ]

    assert "the arguments are too large to be kept" in why[0] and "its arguments are too large to be kept" in why[1]
    assert world == []


@pytest.mark.full
async def test_a_run_that_is_cancelled_before_it_has_a_catalogue_reads_one_to_undo(stages: Stages) -> None:
    """A continued run knows what was done from its input, and how to undo it from a worker."""
    world, queue = list[str](), f"queue-{stages.folder.name}-{datetime.now(UTC).timestamp()}"
    progress = of_old(StepStatus.COMPLETED, "pay_again", turn=1)
    progress.records[0].args, progress.records[0].result = {"amount": 1}, {"ok": True}
    handle = await stages.client.start_workflow(AgentWorkflow.run, progress, id=queue, task_queue=queue)
    await handle.signal("undo_when_cancelled")
    await handle.cancel()
    async with stages(pays(world, keyed=False), [DONE], queue=queue):
        ended = await outcome(handle)

    assert (ended.status, world) == (TaskStatus.CANCELLED, ["refund"])


async def test_a_worker_without_the_tool_does_not_settle_what_an_attempt_before_left_open(stages: Stages) -> None:
    """It has not looked into the ledger: the workflow does, and finds the effect.

    The transfer committed, and its worker then lost the answer and ended.
    """

    @tool.transactional(retry="patient")
    async def move(args: Pay, tx: Transaction) -> Done:
        """Write that it was moved."""
        await tx.execute(text("CREATE TABLE moved (amount INTEGER)"))
        return Done()

    script: Proposals = [plan(step("a", "move")), DONE]
    async with stages([move], script, breaks=["move=lost:1"], jitter=lambda: 1.0, patience=0) as stage:
        handle = await stage.start(UNDONE)
        await backoff(handle)
        stage.started.clear()
    async with stages([person], script, queue=stage.queue):
        ended = await outcome(handle)

    assert [(one.code, one.applied, one.reconciled) for one in ended.faults] == [
        (Code.UNREACHABLE, Applied.UNKNOWN, None),
        (Code.MISSING_TOOL, Applied.APPLIED, "applied"),
    ]
    assert (ended.status, ended.steps[0].status) == (TaskStatus.COMPLETED, StepStatus.COMPLETED)
