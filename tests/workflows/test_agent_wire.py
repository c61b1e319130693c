"""What crosses the border, on a real server: arguments and results that cannot be read, written, or carried."""

import sqlite3
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, JsonValue
from sqlalchemy import text
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from activities.boundary.boundary import MAX_RESULT, Boundary
from activities.planning.activities import Planning
from activities.planning.planner import ScriptedPlanner
from activities.storage.store import open_store
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from replan import Tool, Transaction, tool
from runtime import serve
from tests.harness import DONE, Proposals, Stage, plan, step, worker
from tests.workflows.props import Recording, Said, Stages, Word, echo
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code, Fault
from workflows.plans.proposal import Step

SLOW = Fault.of(Code.TIMEOUT, "Slow.").model_dump(mode="json")


@workflow.defn
class SendsPayload:
    """Calls a kind with a payload that no planner could have made."""

    @workflow.run
    async def run(self, encoding: str, data: str) -> list[Any]:
        """Return the type of the failure, its fault's code, and the attempt."""
        payload = Payload(metadata={"encoding": encoding.encode()}, data=data.encode())
        try:
            await workflow.execute_activity(
                "echo",
                RawValue(payload),
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=4),
            )
        except ActivityError as error:
            assert isinstance(error.cause, ApplicationError)  # nothing else is expected
            fault = error.cause.details[0]
            return [error.cause.type, fault["code"], fault["attempt"]]
        return []


INVALID, UNDECODABLE = ["persistent_semantic", "invalid_input", 1], ["persistent_infrastructural", "undecodable", 1]
SENT: dict[tuple[str, str], list[Any]] = {
    ("binary/encrypted", "?"): UNDECODABLE,
    ("json/plain", "{not json"): UNDECODABLE,
    ("json/plain", '["no", "object"]'): INVALID,
    ("json/plain", '{"word": 7}'): INVALID,
    ("binary/null", ""): INVALID,
}


async def test_arguments_that_cannot_be_read_are_a_typed_fault_after_one_attempt(
    client: Client, tmp_path: Path
) -> None:
    """The boundary decodes by itself, so that the SDK does not retry in silence what can never succeed."""
    engine = await open_store(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
    queue = f"queue-{uuid.uuid4().hex}"
    async with httpx2.AsyncClient() as http:
        activities = Boundary(Resources(engine, http, None)).activities(Registry([echo]))
        async with serve.build(
            client, queue, workflows=[SendsPayload], activities=activities, interceptors=[], is_watched=True
        ):
            found = {
                sent: await client.execute_workflow(
                    SendsPayload.run, args=list(sent), id=f"send-{uuid.uuid4().hex}", task_queue=queue
                )
                for sent in SENT
            }
    await engine.dispose()

    assert found == SENT


class Anything(BaseModel):
    value: Any


def returning(name: str, value: object, promised: Any = Said) -> Tool[..., Any]:
    """A tool that returns something else than it promises."""

    async def answer(args: Word) -> Any:
        """Answer."""
        return value

    answer.__name__ = name
    answer.__annotations__["return"] = promised
    return tool.read(answer)


ILLEGIBLE: dict[str, tuple[Any, str]] = {
    "object": (object(), "unserialisable"),
    "long": ("w" * (MAX_RESULT + 1), "too_large"),
    "long_in_bytes": ("🦊" * (MAX_RESULT // 4 + 1), "too_large"),
    "nan": (float("nan"), "unserialisable"),
    "infinity": ([1, {"deep": float("inf")}], "unserialisable"),
}


async def test_a_result_that_is_not_what_was_promised_is_a_refusal(stages: Stages) -> None:
    """A result can lie: it is checked against the annotation, and what breaks it leads to a new plan.

    Plain data of the promised shape will do; fields that were not promised do not cross the border. On the wire there
    is plain JSON of a bounded size: a tool that returns anything else has to be mended by a person.
    """
    lies: list[object] = [{"sad": 1}, None, 7, "text", [Said(said="x")]]
    fits = {"fits": {"said": "x"}, "fits_with_more": {"said": "x", "more": 1}}
    tools = [returning(f"lie{number}", lie) for number, lie in enumerate(lies)]
    tools += [returning(name, value) for name, value in fits.items()]
    tools += [returning(name, Anything(value=value), Anything) for name, (value, _) in ILLEGIBLE.items()]
    ended = await stages.each(tools, {one.__name__: [plan(step("a", one.__name__)), DONE] for one in tools})
    faults = {
        name: [(fault.code, fault.decision, fault.attempt) for fault in one.faults] for name, one in ended.items()
    }

    assert faults == {
        **{f"lie{number}": [("unexpected_result", "replan", 1)] for number in range(len(lies))},
        **{name: [] for name in fits},
        **{name: [(code, "escalate", 1)] for name, (_, code) in ILLEGIBLE.items()},
    }
    assert [ended[name].steps[0].result for name in fits] == [{"said": "x"}] * 2
    assert {ended[name].status for name in ILLEGIBLE} == {TaskStatus.ESCALATED}


async def test_a_transaction_whose_result_cannot_be_carried_is_rolled_back(stages: Stages) -> None:
    """The size is checked before the commit: what cannot be told has not happened."""

    @tool.transactional
    async def insert(args: Word, tx: Transaction) -> Said:
        """Insert a row, and say a lot or little about it."""
        await tx.execute(text("insert into words values (:word)"), {"word": args.word})
        return Said(said="w" * (MAX_RESULT + 1) if args.word == "long" else "ok")

    sqlite3.connect(stages.folder / "store.db").execute("create table words (word text)").connection.close()
    script: Proposals = [plan(step("a", "insert", word="short"), step("b", "insert", "a", word="long")), DONE]
    ended = await stages.run([insert], script)
    connection = sqlite3.connect(stages.folder / "store.db")
    rows = connection.execute("select word from words").fetchall()
    connection.close()

    assert (ended.code, ended.faults[-1].applied, rows) == ("too_large", "none", [("short",)])


LARGE = 250_000
"""Bytes."""


@tool.read
async def large(args: Word) -> Said:
    """Say a letter very often."""
    return Said(said=args.word * (LARGE // len(args.word.encode())))


class Words(BaseModel):
    words: list[str]


@tool.read
async def swallow(args: Words) -> Said:
    """Take many words."""
    return Said(said=str(len(args.words)))


async def test_arguments_that_the_server_would_not_carry_are_never_scheduled(stages: Stages) -> None:
    """Several references to a large result would make a payload at which the server terminates the workflow.

    So are arguments that turned out to be no object: a call is never made with its defaults instead.
    """
    many: JsonValue = [{"$from": "a", "path": "said"}] * 12
    whole = Step(id="b", kind="echo", args={"$from": "a", "path": "said"})
    scripts: dict[str, Proposals] = {
        letter: [plan(step("a", "large", word=letter), step("b", "swallow", words=many)), DONE] for letter in "x語"
    }
    scripts["a single value"] = [plan(step("a", "echo", word="hi"), whole), DONE]
    ended = await stages.each([large, swallow, echo], scripts)

    assert {text: [(f.step_id, f.code, f.attempt, f.decision) for f in one.faults] for text, one in ended.items()} == (
        {text: [("b", "invalid_input", 0, "replan")] for text in scripts}
    )
    assert {one.spent.tool_calls for one in ended.values()} == {1}


@pytest.mark.parametrize("letter", [pytest.param("x", marks=pytest.mark.full), "語"])
async def test_what_the_server_would_not_carry_to_the_planner_is_left_out(stages: Stages, letter: str) -> None:
    """Bytes count, not characters: at 2 MB the server would terminate the workflow, with all that was finished.

    For the steps it is there: a reference is resolved in the workflow, which has everything.
    """
    steps = plan(*(step(f"a{number}", "large", word=letter) for number in range(9)))
    lengths = plan(*(step(f"b{n}", "swallow", words=[{"$from": f"a{n}", "path": "said"}]) for n in range(9)))
    planner = Recording(steps, lengths, DONE)
    ended = await stages.run([large, swallow], planner)
    told = [record.left_out > 0 for record in planner.told[1].records]

    assert (ended.status, {one.status for one in ended.steps}) == (TaskStatus.COMPLETED, {StepStatus.COMPLETED})
    assert told.count(False) == 2
    assert [one.result for one in ended.steps[-9:]] == [{"said": "1"}] * 9


@pytest.mark.full
async def test_large_arguments_and_results_are_left_out_of_an_outcome(stages: Stages) -> None:
    """A task whose outcome is refused could never end: large arguments are shown as they were planned."""
    planned: JsonValue = [{"$from": "a", "path": "said"}] * 2
    steps = plan(step("a", "large", word="x"), *(step(f"b{number}", "swallow", words=planned) for number in range(8)))
    results = plan(*(step(f"a{number}", "large", word="x") for number in range(9)))
    ended = await stages.each([large, swallow], {"arguments": [steps, DONE], "results": [results, DONE]})

    assert {one.status for one in ended.values()} == {TaskStatus.COMPLETED}
    assert [one.args for one in ended["arguments"].steps[1:]] == [{"words": planned}] * 8
    assert [one.result_omitted for one in ended["results"].steps].count(False) == 2


@pytest.mark.parametrize(
    ("returned", "known"),
    [
        pytest.param({"result": "x"}, [], marks=pytest.mark.full),
        pytest.param({"result": "x", "a field of tomorrow": 1}, [], marks=pytest.mark.full),
        ({"result": "x", "attempt": 3, "earlier": ["half done", {"code": "a code of tomorrow"}, SLOW]}, ["timeout"]),
    ],
    ids=["older", "newer", "foreign heartbeats"],
)
async def test_what_another_version_of_the_worker_returns_is_taken(
    client: Client, tmp_path: Path, returned: JsonValue, known: list[str]
) -> None:
    """Fields come and go, and a tool's own heartbeats stand where ours would: that must not stop the task."""

    @activity.defn(name="echo")
    async def other_version(args: dict[str, JsonValue]) -> JsonValue:
        return returned

    queue = f"queue-{uuid.uuid4().hex}"
    planning = Planning(ScriptedPlanner([plan(step("a", "echo")), DONE]), Registry([echo]), searchable=True)
    async with worker(client, queue, [*planning.activities(), other_version]):
        ended = await Stage(client, queue).run()

    assert (ended.status, ended.steps[0].result) == (TaskStatus.COMPLETED, "x")
    assert [one.code for one in ended.faults] == known
