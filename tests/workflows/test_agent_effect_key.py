"""Tasks with the same effect key, on a real server: their calls have the same keys, so each effect is applied once."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from sqlalchemy import Column, Integer, String, Table, delete, insert, select
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import Client, WorkflowHistory

from client.effects import EffectState, TaskEffect, fetch_effects
from client.explain import explanation, page
from client.follow import View
from client.history.fetch import fetch_story
from client.redaction import Redaction
from client.reset import Fate, reset
from client.undo import undo
from replan import Key, Refused, Tool, Transaction, metadata, tool
from tests.console.histories import history
from tests.console.replaying import replay
from tests.harness import DONE, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, calls
from tests.workflows.props import Stages, Word, played
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Applied, Code
from workflows.limits.budget import Limits
from workflows.plans.proposal import Step

ENTRIES = Table("effect_key_entries", metadata, Column("id", Integer, primary_key=True), Column("word", String(20)))
EFFECT_KEY = "gateway:kestrel/order-7"
"""It has the characters that also separate the parts of an idempotency key."""


class Entry(BaseModel):
    id: int


class Sent(BaseModel):
    number: int


def tools(sent: list[str]) -> Sequence[Tool[..., Any]]:
    """An effect of each kind that has to stay single; `sent` has what went out, and with which key."""

    def send_out(text: str) -> Sent:
        sent.append(text)
        return Sent(number=len(sent))

    @tool.transactional
    async def remove(args: Entry, tx: Transaction) -> Entry:
        """Remove an entry."""
        if not (await tx.execute(delete(ENTRIES).where(ENTRIES.c.id == args.id))).rowcount:
            raise Refused("There is no such entry.", code="not_found")
        return args

    @tool.transactional(undo=remove.using(id="result.id"))
    async def write(args: Word, tx: Transaction) -> Entry:
        """Write an entry."""
        return Entry(id=await tx.scalar(insert(ENTRIES).values(word=args.word).returning(ENTRIES.c.id)))

    @tool.keyed
    async def charge(args: Word, key: Key) -> Sent:
        """Charge with a key."""
        return send_out(f"charge {key}")

    @tool.unkeyed
    async def shout(args: Word) -> Sent:
        """Shout; `lost` gets no answer."""
        told = send_out(f"shout {args.word}")
        if args.word == "lost":
            raise ConnectionResetError("the answer never came")
        return told

    return [remove, write, charge, shout, played("look", None)]


def keyed(*steps: Step, effect_key: str | None = EFFECT_KEY, **fields: Any) -> Task:
    """A task with a hand-written plan and an effect key."""
    fields = {"limits": Limits(replans=0), "plan_only": True, **fields}
    return Task(text="a task", plan=steps, effect_key=effect_key, **fields)


@pytest.fixture
def sent() -> list[str]:
    """What went out."""
    return []


@pytest.fixture
async def stage(client: Client, tmp_path: Path, sent: list[str]) -> AsyncIterator[Stage]:
    """A worker."""
    async with staged(client, tmp_path, tools(sent), []) as running:
        yield running


async def entries(folder: Path) -> list[str]:
    """The words that were written."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'store.db'}")
    async with engine.connect() as connection:
        found = list(await connection.scalars(select(ENTRIES.c.word)))
    await engine.dispose()
    return found


async def keys(handle: Handle) -> dict[str, str]:
    """By the id of an activity, the idempotency key that the newest run sent."""
    return {call.id: call.header["key"] for call in await calls(handle) if call.header}


async def effects(client: Client, handle: Handle) -> dict[str, TaskEffect]:
    """The effects of a task, by key, as its history has them."""
    return {effect.key: effect for effect in await fetch_effects(client, await fetch_story(client, handle), ())}


def test_an_effect_key_is_plain() -> None:
    """Letters, digits and `._:/-`, at most 200, without a slash at the end.

    Digests of tasks that were started before the field existed stay the same.
    """
    for key in ("", "/", "a/", "a b", "a\n", "ä", "x" * 201):
        with pytest.raises(ValidationError, match="effect_key"):
            keyed(step("a", "look"), effect_key=key)
    assert "effect_key" not in Task(text="a task").model_dump(mode="json")
    assert keyed(step("a", "look")).model_dump(mode="json")["effect_key"] == EFFECT_KEY


async def test_a_later_task_gets_the_first_results(stage: Stage, tmp_path: Path, sent: list[str]) -> None:
    """A transaction is not repeated, an unkeyed call is not made again, and a keyed one has the same key."""
    steps = step("a", "write", word="x"), step("b", "shout", "a", word="y"), step("c", "charge", "b")
    first, second = [await stage.run(keyed(*steps)) for _ in range(2)]
    third = await stage.run(keyed(*steps, effect_key=None))

    assert (first.status, second.status) == (TaskStatus.COMPLETED, TaskStatus.COMPLETED)
    assert [done.result for done in second.steps[:2]] == [done.result for done in first.steps[:2]]
    assert [done.replayed for done in first.steps] == [False] * 3
    assert [done.replayed for done in second.steps] == [True, True, False]
    assert [done.replayed for done in third.steps] == [False] * 3
    assert await entries(tmp_path) == ["x", "x"]
    assert sent[:3] == ["shout y", f"charge {EFFECT_KEY}/c", f"charge {EFFECT_KEY}/c"] and sent[3] == "shout y"


async def test_two_tasks_at_once_have_one_effect(stage: Stage, tmp_path: Path) -> None:
    """The second transaction waits for the first, and returns its result."""
    done = await asyncio.gather(*(stage.run(keyed(step("a", "write", word="x"))) for _ in range(4)))

    assert (await entries(tmp_path), {task.status for task in done}) == (["x"], {TaskStatus.COMPLETED})
    assert sorted(task.steps[0].replayed for task in done) == [False, True, True, True]


async def test_an_unknown_outcome_is_also_unknown_to_a_later_task(stage: Stage, sent: list[str]) -> None:
    """The unkeyed call of which the first task got no answer is not made by the second: a person has to find out."""
    first, second = [await stage.run(keyed(step("a", "shout", word="lost"))) for _ in range(2)]
    fault = second.steps[0].fault

    assert (first.status, second.status, sent) == (TaskStatus.ESCALATED, TaskStatus.ESCALATED, ["shout lost"])
    assert fault is not None and (fault.code, fault.applied) == (Code.WORKER_LOST, Applied.UNKNOWN)
    assert f"shout may have been applied (key {EFFECT_KEY}/a)" in second.reason
    assert "or a task with the same effect key is making the call" in second.reason


@pytest.mark.parametrize("kind", ["write", "shout"])
async def test_other_arguments_under_the_key_are_a_conflict(
    stage: Stage, tmp_path: Path, sent: list[str], kind: str
) -> None:
    """Nothing happens, and no other id of the step is offered, under which the effect would be applied."""
    await stage.run(keyed(step("a", kind, word="x")))
    other = await stage.run(keyed(step("a", kind, word="y")))
    fault = other.steps[0].fault

    assert fault is not None and (fault.code, fault.applied, fault.by_id) == (Code.CONFLICT, Applied.NONE, False)
    assert fault.reason.endswith("for another effect, start a task with another effect key.")
    assert (await entries(tmp_path) or [word.removeprefix("shout ") for word in sent]) == ["x"]


async def test_an_undo_uses_the_same_keys(client: Client, stage: Stage, tmp_path: Path) -> None:
    """Either task undoes the effect, once; the call is then rejected, since its result would not hold."""
    task = keyed(step("a", "write", word="x"))
    handles = [await stage.start(task) for _ in range(2)]
    for handle in handles:
        await outcome(handle)
    [second] = (await effects(client, handles[1])).values()
    rollbacks = [await undo(client, handle, View(), is_attended=False) for handle in reversed(handles)]
    made = [await keys(rollback.handle) for rollback in rollbacks]
    told = await effects(client, handles[1])
    third = await stage.run(task)

    assert (second.key, second.state) == (f"{EFFECT_KEY}/a", EffectState.APPLIED)
    assert [rollback.is_complete for rollback in rollbacks] == [True, True]
    assert [sent["undo:a"] for sent in made] == [f"{EFFECT_KEY}/undo:a"] * 2
    assert (await entries(tmp_path), told[f"{EFFECT_KEY}/a"].undone_by) == ([], f"{EFFECT_KEY}/undo:a")
    assert third.steps[0].fault is not None and "was done and then undone" in third.steps[0].fault.reason


async def test_a_reset_keeps_the_keys(client: Client, stage: Stage, tmp_path: Path) -> None:
    """The new run gets the first result."""
    task = keyed(step("a", "write", word="x"), step("b", "look", "a"))
    handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, (await stage.start(task)).id)
    await outcome(handle)
    await reset(client, handle, to="a", reason="a test", fate=Fate.KEEP, view=View(), is_attended=False)
    done = await outcome(handle)

    assert ([found.replayed for found in done.steps], await entries(tmp_path)) == ([True, False], ["x"])
    assert await keys(handle) == {"a": f"{EFFECT_KEY}/a", "b": f"{EFFECT_KEY}/b"}
    assert [*await effects(client, handle)] == [f"{EFFECT_KEY}/a"]


async def test_requests_to_the_planner_keep_the_run_id(stages: Stages) -> None:
    """Two tasks with one effect key never share a conversation with a planner."""
    _, handle = await stages.ended(
        tools([]), [plan(step("a", "look")), DONE], Task(text="a task", effect_key=EFFECT_KEY)
    )
    made = await keys(handle)

    assert (made["a"], made["plan:2"]) == (f"{EFFECT_KEY}/a", f"{handle.first_execution_run_id}/plan:2")


async def test_a_redacted_history_has_a_placeholder_for_the_effect_key(
    client: Client, stage: Stage, tmp_path: Path
) -> None:
    """It replays, its keys stay related, and it explains the same."""
    handle = await stage.start(keyed(step("a", "shout", word="dunlin"), step("b", "write", "a", word="x")))
    await outcome(handle)
    events = Redaction().events((await handle.fetch_history()).events)
    file = tmp_path / "redacted.json"
    file.write_text(json.dumps(WorkflowHistory(handle.id, events).to_json_dict()))
    read = await history(events)
    told = "\n".join(page.page_lines(explanation.explain_task(read), None))

    assert replay(file).returncode == 0
    assert [word for word in ("kestrel", "order-7", "dunlin") if word in "".join(map(str, events))] == []
    assert read.task is not None and read.task.effect_key == read.key_prefix != EFFECT_KEY
    headers = [event.activity_task_scheduled_event_attributes.header.fields for event in events]
    made = [json.loads(fields["replan-call"].data)["key"] for fields in headers if "replan-call" in fields]
    assert {f"{read.key_prefix}/a", f"{read.key_prefix}/b"} <= set(made)
    assert "Changed in the world: a (shout) and b (write)." in told
