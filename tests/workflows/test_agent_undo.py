"""Rollback, on a real server: what a task did is taken back, the newest first, and what cannot be is named."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, Table, delete, insert, select
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import WorkflowFailureError

from activities.effects.ledger import LEDGER
from replan import Key, NeedsPerson, Refused, Tool, Transaction, metadata, tool
from tests.harness import DONE, Stage, outcome, plan, step
from tests.workflows.history import Handle
from tests.workflows.props import Stages
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus, UndoRecord
from workflows.account.state import Folded
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import NewSteps, Step
from workflows.rollback import Undo, UndoWorkflow

NOTES = Table("undo_notes", metadata, Column("id", Integer, primary_key=True), Column("word", String(20)))


UNDONE = Task(text="a task", on_escalation="undo")


class Word(BaseModel):
    word: str


class Note(BaseModel):
    id: int


class Done(BaseModel):
    done: bool = True


class Nothing(BaseModel):
    """No arguments."""


def tools(sent: list[str]) -> Sequence[Tool[..., Any]]:
    """Notes in the store, letters that go out with a key, and what needs a person."""

    @tool.transactional
    async def remove(args: Note, tx: Transaction) -> Done:
        """Remove a note."""
        if not (await tx.execute(delete(NOTES).where(NOTES.c.id == args.id))).rowcount:
            raise Refused("There is no such note.", code="not_found")
        return Done()

    @tool.transactional(undo=remove.using(id="result.id"))
    async def write(args: Word, tx: Transaction) -> Note:
        """Write a note."""
        return Note(id=await tx.scalar(insert(NOTES).values(word=args.word).returning(NOTES.c.id)))

    @tool.keyed
    async def recall(args: Word, key: Key) -> Done:
        """Recall a letter."""
        sent.append(f"recall {args.word}")
        return Done()

    @tool.keyed(undo=recall)
    async def send(args: Word, key: Key) -> Done:
        """Send a letter."""
        sent.append(f"send {args.word}")
        return Done()

    @tool.unkeyed
    async def shout(args: Word) -> Done:
        """Shout, which cannot be taken back."""
        sent.append(f"shout {args.word}")
        return Done()

    @tool.read
    async def person(args: Nothing) -> Done:
        """Need a person."""
        raise NeedsPerson("Somebody has to look.")

    @tool.read(timeout=60)
    async def wait(args: Nothing) -> Done:
        """Wait."""
        await asyncio.sleep(60)
        return Done()

    return [remove, write, recall, send, shout, person, wait]


def three(last: str) -> NewSteps:
    """Three effects, then what ends the task."""
    return plan(
        step("a", "write", word="x"),
        step("b", "send", "a", word="y"),
        step("c", "write", "b", word="z"),
        step("last", last, "c"),
    )


async def notes(folder: Path) -> list[str]:
    """The words in the store."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'store.db'}")
    async with engine.connect() as connection:
        found = list(await connection.scalars(select(NOTES.c.word)))
    await engine.dispose()
    return found


async def undone(folder: Path) -> list[tuple[str, str]]:
    """The steps whose effects the ledger has as undone, with their tasks."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'store.db'}")
    query = select(LEDGER.c.step, LEDGER.c.task).where(LEDGER.c.undone_at.is_not(None)).order_by(LEDGER.c.step)
    async with engine.connect() as connection:
        found = [(row.step, row.task) for row in await connection.execute(query)]
    await engine.dispose()
    return found


@pytest.mark.parametrize("is_wanted", [True, pytest.param(False, marks=pytest.mark.full)])
async def test_an_escalated_task_is_rolled_back_where_that_is_wanted(stages: Stages, is_wanted: bool) -> None:
    """In reverse order, each by the kind that its spec names; the task stays escalated and says what was undone.

    By default nothing is undone behind anybody's back.
    """
    sent = list[str]()
    ended = await stages.run(tools(sent), [three("person"), DONE], UNDONE if is_wanted else "a task")

    assert (ended.status, [one.step_id for one in ended.undo]) == (TaskStatus.ESCALATED, [*"cba"] if is_wanted else [])
    if not is_wanted:
        assert await notes(stages.folder) == ["x", "z"]
        return
    assert [one.status for one in ended.steps][:3] == [StepStatus.UNDONE] * 3
    assert (await notes(stages.folder), sent) == ([], ["send y", "recall y"])
    assert await undone(stages.folder) == [(id, ended.task_id) for id in "abc"]  # of b, the ledger had no row before
    assert ended.reason.endswith("Undone: c, b, a.")


async def test_what_cannot_be_undone_is_named(stages: Stages) -> None:
    """A kind without an undo, and an undo that is refused: the others are undone all the same."""
    sent = list[str]()
    steps = plan(
        step("a", "write", word="x"),
        step("b", "shout", "a", word="y"),
        step("c", "write", "b", word="z"),
        Step(id="gone", kind="remove", args={"id": 2}, needs=("c",)),
        step("last", "person", "gone"),
    )
    ended = await stages.run(tools(sent), [steps, DONE], UNDONE)

    assert ended.undo == (
        UndoRecord(step_id="gone", reason="remove has no undo"),
        UndoRecord(step_id="c", kind="remove", reason="There is no such note."),
        UndoRecord(step_id="b", reason="shout has no undo"),
        UndoRecord(step_id="a", kind="remove", done=True),
    )
    assert await notes(stages.folder) == []
    assert "Not undone: gone (remove has no undo); c (There is no such note)" in ended.reason


@pytest.mark.parametrize("is_wanted", [True, pytest.param(False, marks=pytest.mark.full)])
async def test_a_cancelled_task_is_rolled_back_when_it_was_asked_to(stages: Stages, is_wanted: bool) -> None:
    """The signal, then Temporal's own cancel: Canceled, with everything undone. A plain cancel undoes nothing."""
    async with stages(tools([]), [three("wait"), DONE]) as stage:
        handle = await stage.start()
        async with asyncio.timeout(20):
            while not (stages.folder / "store.db").exists() or await notes(stages.folder) != ["x", "z"]:
                await asyncio.sleep(0.05)
        if is_wanted:
            await handle.signal("undo_when_cancelled")
        await handle.cancel()
        ended = await outcome(handle)

    assert (ended.status, [one.done for one in ended.undo]) == (TaskStatus.CANCELLED, [True] * 3 if is_wanted else [])
    assert await notes(stages.folder) == ([] if is_wanted else ["x", "z"])


async def rolled_back(stage: Stage, task: Handle, **more: Any) -> Outcome:
    """The rollback of a closed task by a workflow of its own."""
    progress = await task.query(AgentWorkflow.progress)
    given = Undo(progress=progress.model_copy(update={"origin": task.first_execution_run_id, **more}))
    return await stage.client.execute_workflow(UndoWorkflow.run, given, id=f"undo-{task.id}", task_queue=stage.queue)


async def test_a_closed_task_is_undone_by_a_workflow_of_its_own_as_often_as_one_likes(stages: Stages) -> None:
    """The keys are those of the task, so the second rollback finds everything done and does nothing again."""
    sent = list[str]()
    async with stages(tools(sent), [three("person"), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        twice = [await rolled_back(stage, handle) for _ in range(2)]

    assert [[one.done for one in ended.undo] for ended in twice] == [[True] * 3] * 2
    assert (await notes(stages.folder), sent) == ([], ["send y", "recall y"])


async def test_a_closed_task_with_long_arguments_is_undone(stages: Stages) -> None:
    """The arguments are not kept beyond 8 KiB; the undo asks for `result.id` alone, and that is."""
    async with stages(tools([]), [plan(step("a", "write", word="x" * 20_000)), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        kept = (await handle.query(AgentWorkflow.progress)).records[0]
        undone = await rolled_back(stage, handle)

    assert kept.args is None
    assert ([one.done for one in undone.undo], await notes(stages.folder)) == ([True], [])


@pytest.mark.full
async def test_effects_that_are_not_kept_any_more_are_named(stages: Stages) -> None:
    """A long task folds its oldest steps away: nobody is told that all was undone."""
    async with stages(tools([]), [plan(step("a", "write", word="x")), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        with pytest.raises(WorkflowFailureError) as failed:
            await rolled_back(stage, handle, folded=Folded(effects=2))

    assert "earlier steps (2 of a long task are not kept any more" in str(failed.value.cause)
    assert await notes(stages.folder) == []


class Payment(BaseModel):
    to: str
    currency: str = "EUR"
    note: str | None = None


class Refund(BaseModel):
    to: str
    currency: str = "USD"
    note: str = "refund"


async def test_an_undo_gets_the_defaults_with_which_its_call_was_made(stages: Stages) -> None:
    """Not its own, which could undo something else; what the call did not have at all is left out."""
    refunded = list[str]()

    @tool.idempotent
    async def refund(args: Refund) -> Refund:
        """Pay back."""
        refunded.append(f"{args.to} {args.currency} {args.note}")
        return args

    @tool.idempotent(undo=refund.using(currency="args.currency", note="args.note"))
    async def pay(args: Payment) -> Payment:
        """Pay."""
        return args

    @tool.read
    async def person(args: Payment) -> Payment:
        """Need a person."""
        raise NeedsPerson("Somebody has to look.")

    steps = plan(
        step("a", "pay", to="ann"),
        step("b", "pay", "a", to="bob", currency="GBP", note="rent"),
        step("c", "person", "b", to="x"),
    )
    ended = await stages.run([refund, pay, person], [steps, DONE], UNDONE)

    assert [(one.step_id, one.done, one.reason) for one in ended.undo] == [("b", True, ""), ("a", True, "")]
    assert refunded == ["bob GBP rent", "ann EUR refund"]
