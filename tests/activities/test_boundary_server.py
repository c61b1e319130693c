"""The boundary on a real server: what reaches the history, what the header brings, how a cancel and a retry look."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from pydantic import BaseModel, TypeAdapter
from sqlalchemy import exc, text
from temporalio import activity
from temporalio.client import Client

from activities.boundary.breakers.admitting import _tell_workflow
from activities.boundary.breakers.tickets import Called
from replan import Busy, Documents, Refused, Tool, Transaction, tool
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.log_lines import captured
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code

HIDDEN = "sk-secret"


class Word(BaseModel):
    word: str = ""


@tool.read
async def where(args: Word, docs: Documents) -> Word:
    """Say which documents the task has."""
    return Word(word=docs.root.name)


def raising(make: Callable[[], BaseException]) -> Tool[..., Any]:
    @tool.read(breaker=None)
    async def broken(args: Word, tx: Transaction) -> Word:
        """Fail."""
        error = make()
        if isinstance(error, exc.SQLAlchemyError):
            await tx.execute(text("SELECT nothing FROM nowhere WHERE key = :key"), {"key": HIDDEN})
        raise error from ValueError(HIDDEN)

    return broken


FOREIGN: dict[str, list[Callable[[], object]]] = {
    "bug": [lambda: KeyError(HIDDEN)],
    "exit": [lambda: SystemExit(HIDDEN)],
    "cancels itself": [lambda: asyncio.CancelledError(HIDDEN)],
    "HTTP": [lambda: httpx2.ConnectError(HIDDEN)],
    "SQL": [lambda: exc.SQLAlchemyError(HIDDEN)],
    "validation": [lambda: TypeAdapter(int).validate_python(HIDDEN)],
    "group": [lambda: ExceptionGroup(HIDDEN, [OSError(HIDDEN), KeyError(HIDDEN)])],
}


@pytest.mark.parametrize("make", sampled(FOREIGN, "SQL", "group"))
async def test_what_a_foreign_exception_says_reaches_no_history(
    client: Client, tmp_path: Path, make: Callable[[], BaseException]
) -> None:
    """History is read by many and kept for long: no message, no trace, no parameter of a foreign exception is in it."""
    async with staged(client, tmp_path, [raising(make)], [plan(step("a", "broken"))]) as stage:
        handle = await stage.start(replans=0)
        ended = await asyncio.wait_for(outcome(handle), 60)
        history = (await handle.fetch_history()).to_json()

    assert ended.status is not TaskStatus.COMPLETED
    assert HIDDEN not in history and "Traceback" not in history and str(Path(__file__).name) not in history


async def test_each_attempt_on_a_server_is_one_line(client: Client, tmp_path: Path) -> None:
    """Task, step, revision and attempt come from Temporal and the header; the planner's calls have lines, too."""
    calls = list[str]()

    @tool.idempotent
    async def flaky(args: Word) -> Word:
        """Fail once."""
        calls.append(args.word)
        if len(calls) == 1:
            raise Busy("Later.")
        return args

    @tool.read
    def beat(args: Word) -> Word:
        """Use Temporal's own activity, in a thread."""
        activity.heartbeat("half way")
        return Word(word=str(activity.info().attempt))

    @tool.read
    async def book(args: Word) -> Word:
        """Refuse what is taken."""
        if args.word == "14:00":
            raise Refused("14:00 is taken.", code="conflict", observed={"free": ["14:30"]})
        return args

    (tmp_path / "team").mkdir()
    first = plan(
        step("a", "flaky"), step("b", "where", "a"), step("c", "beat", "b"), step("d", "book", "c", word="14:00")
    )
    proposals: Proposals = [first, plan(step("e", "book", word="14:30")), DONE]
    async with staged(client, tmp_path, [where, flaky, beat, book], proposals) as stage:
        with captured() as lines:
            ended = await stage.run(Task(text="a task", documents="team"))
    seen = [(line["step"], line["revision"], line["attempt"], line["outcome"]) for line in lines if "outcome" in line]

    assert seen == [
        *[("catalogue", 0, 1, "ok"), ("plan:1", 1, 1, "ok")],
        *[("a", 1, 1, "transient_fail"), ("a", 1, 2, "retried"), ("b", 1, 1, "ok"), ("c", 1, 1, "ok")],
        *[("d", 1, 1, "persistent_fail"), ("plan:2", 2, 1, "ok"), ("e", 2, 1, "ok"), ("plan:3", 3, 1, "ok")],
    ]
    assert {line["task"] for line in lines if line["event"] == "step"} == {ended.task_id}
    faults = [(one.code, one.observed) for one in ended.faults]
    assert faults == [(Code.BUSY, None), (Code.CONFLICT, {"free": ["14:30"]})]
    results = [json.dumps(one.result) for one in ended.steps]
    assert results == ['{"word": ""}', '{"word": "team"}', '{"word": "1"}', "null", '{"word": "14:30"}']


async def test_documents_that_went_away_go_to_a_person_at_once(client: Client, tmp_path: Path) -> None:
    """The folder was there when the task began: no other plan can help, and nothing else is read instead."""

    @tool.idempotent
    async def tidy(args: Word, docs: Documents) -> Word:
        """Delete the documents."""
        docs.root.rmdir()
        return args

    (tmp_path / "team").mkdir()
    proposal = plan(step("a", "tidy"), step("b", "where", "a"))
    async with staged(client, tmp_path, [where, tidy], [proposal, DONE]) as stage:
        ended = await stage.run(Task(text="a task", documents="team"))

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "needs_person")
    assert ended.steps[1].attempts == 1


@pytest.mark.parametrize("below", ["..", *(pytest.param(name, marks=pytest.mark.full) for name in ("/etc", "nowhere"))])
async def test_a_task_with_documents_elsewhere_is_refused(client: Client, tmp_path: Path, below: str) -> None:
    async with staged(client, tmp_path, [where], [plan(step("a", "where")), DONE]) as stage:
        ended = await stage.run(Task(text="a task", documents=below))

    assert (ended.status, ended.code, ended.steps) == (TaskStatus.FAILED, "task_refused", ())
    assert f"There is no folder {below!r} below the worker's documents" in ended.reason


async def test_a_result_of_megabytes_is_refused_before_it_is_sent(client: Client, tmp_path: Path) -> None:
    """The server would take 5 MB for a timeout and call again: one attempt, and a person."""
    calls = list[str]()

    @tool.transactional
    async def large(args: Word, tx: Transaction) -> Word:
        """Return far too much."""
        calls.append(args.word)
        return Word(word="x" * 5_000_000)

    async with staged(client, tmp_path, [large], [plan(step("a", "large")), DONE]) as stage:
        ended = await stage.run()

    assert (ended.status, ended.code, len(calls)) == (TaskStatus.ESCALATED, "too_large", 1)


async def test_the_ticket_of_a_task_that_is_gone_is_forgotten(client: Client) -> None:
    """Else its turn would be told for ever, and no other call would follow."""
    key, workflow = "gone/a", f"gone-{uuid4().hex[:8]}"

    assert not await _tell_workflow(client, Called(key=key, workflow=workflow))
