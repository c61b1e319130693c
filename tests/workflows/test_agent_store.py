"""A store that is away, on a real server: the step waits on a durable timer, and nothing is lost or done twice."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, Table, insert

from replan import Tool, Transaction, metadata, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import timers
from tests.workflows.props import Stages
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus

ROWS = Table("away_rows", metadata, Column("id", Integer, primary_key=True), Column("word", String(20)))


class Word(BaseModel):
    word: str


class Row(BaseModel):
    id: int


@tool.transactional
async def write(args: Word, tx: Transaction) -> Row:
    """Write a row."""
    return Row(id=await tx.scalar(insert(ROWS).values(word=args.word).returning(ROWS.c.id)))


@tool.unkeyed
async def shout(args: Word) -> Word:
    """Shout: the claim on its key lies in the store."""
    return args


TOOLS: Sequence[Tool[..., Any]] = (write, shout)


def rows(folder: Path) -> list[str]:
    """The words in the store."""
    with sqlite3.connect(folder / "store.db") as store:
        return [word for (word,) in store.execute("SELECT word FROM away_rows ORDER BY id")]


@pytest.mark.parametrize("kind", ["write", pytest.param("shout", marks=pytest.mark.full)])
async def test_a_locked_store_is_waited_for(stages: Stages, kind: str) -> None:
    """Locked for longer than SQLite waits: a timer of the task, no attempt lost, and then the step is done."""
    async with stages(TOOLS, [plan(step("a", kind, word="x")), DONE]) as stage:
        with sqlite3.connect(stages.folder / "store.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            handle = await stage.start()
            async with asyncio.timeout(20):
                while not (waited := await timers(handle)):
                    await asyncio.sleep(0.1)
            other.execute("ROLLBACK")
        ended = await outcome(handle)

    assert waited[0].summary == "a waits: store_unavailable, then again"
    assert (ended.status, ended.steps[0].attempts, rows(stages.folder)) == (
        TaskStatus.COMPLETED,
        1,
        ["x"] if kind == "write" else [],
    )


@pytest.mark.full
async def test_a_store_that_is_gone_is_waited_for(stages: Stages) -> None:
    """Its file is elsewhere for a moment while the task runs, and comes back."""
    steps: Proposals = [plan(step("a", "write", word="x")), plan(step("b", "write", word="y")), DONE]
    async with stages(TOOLS, steps) as stage:
        files = list(stages.folder.glob("store.db*"))
        (stages.folder / "elsewhere").mkdir()
        for file in files:
            file.rename(stages.folder / "elsewhere" / file.name)
        handle = await stage.start()
        async with asyncio.timeout(30):
            while not await timers(handle):
                await asyncio.sleep(0.1)
        for file in files:
            (stages.folder / "elsewhere" / file.name).rename(file)
        ended = await outcome(handle)

    assert (ended.status, rows(stages.folder)) == (TaskStatus.COMPLETED, ["x", "y"])


@pytest.mark.parametrize("trouble", ["full", pytest.param("another version", marks=pytest.mark.full)])
async def test_what_time_cannot_cure_is_for_a_person(stages: Stages, trouble: str) -> None:
    """A full disk, and tables of another version: no retry, no new plan, a sentence; what was finished stays."""

    @tool.transactional
    async def spoil(args: Word, tx: Transaction) -> Row:
        """Meet the trouble."""
        await tx.exec_driver_sql("PRAGMA max_page_count = 1")  # never less than there are
        return Row(id=await tx.scalar(insert(ROWS).values(word="y" * 100_000).returning(ROWS.c.id)))

    @tool.read
    async def upgrade(args: Word) -> Word:
        """Do as a newer worker might."""
        with sqlite3.connect(stages.folder / "store.db") as store:
            store.execute("ALTER TABLE replan_ledger RENAME COLUMN digest TO sum")
        return args

    then = [step("b", "spoil", "a", word="y")]
    if trouble != "full":
        then = [step("up", "upgrade", "a", word="y"), step("b", "write", "up", word="y")]
    ended = await stages.run([*TOOLS, spoil, upgrade], [plan(step("a", "write", word="x"), *then)])

    assert (ended.status, ended.replans, ended.faults[-1].attempt) == (TaskStatus.ESCALATED, 0, 1)
    assert (ended.steps[0].status, rows(stages.folder)) == (StepStatus.COMPLETED, ["x"])
    assert ended.code == {"full": "quota_exhausted", "another version": "wrong_store"}[trouble]
