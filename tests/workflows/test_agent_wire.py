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
from tests.workflows.history import kinds
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


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        ("binary/encrypted", "?", ["persistent_infrastructural", "undecodable", 1]),
        pytest.param(
            "json/plain", "{not json", ["persistent_infrastructural", "undecodable", 1], marks=pytest.mark.full
        ),
        pytest.param(
            "json/plain", '["no", "object"]', ["persistent_semantic", "invalid_input", 1], marks=pytest.mark.full
        ),
        ("json/plain", '{"word": 7}', ["persistent_semantic", "invalid_input", 1]),
        pytest.param("binary/null", "", ["persistent_semantic", "invalid_input", 1], marks=pytest.mark.full),
    ],
)
async def test_arguments_that_cannot_be_read_are_a_typed_fault_after_one_attempt(
    client: Client, tmp_path: Path, encoding: str, data: str, expected: list[Any]
) -> None:
    """The boundary decodes by itself, so that the SDK does not retry in silence what can never succeed."""
    engine = await open_store(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
    queue = f"queue-{uuid.uuid4().hex}"
    async with httpx2.AsyncClient() as http:
        activities = Boundary(Resources(engine, http, None)).activities(Registry([echo]))
        async with serve.build(
            client, queue, workflows=[SendsPayload], activities=activities, interceptors=[], is_watched=True
        ):
            found = await client.execute_workflow(
                SendsPayload.run, args=[encoding, data], id=f"send-{uuid.uuid4().hex}", task_queue=queue
            )
    await engine.dispose()

    assert found == expected


class Anything(BaseModel):
    """A result that may hold what JSON cannot."""

    value: Any


def returning(value: object) -> Tool[..., Any]:
    """A tool that returns something else than it promises."""

    @tool.read
    async def answer(args: Word) -> Said:
        """Answer."""
        return value  # type: ignore[return-value]  # the lie that is tested

    return answer


@pytest.mark.parametrize(
    "lie",
    [{"sad": 1}, *(pytest.param(one, marks=pytest.mark.full) for one in (None, 7, "text", [Said(said="x")]))],
    ids=repr,
)
async def test_a_result_that_is_not_what_was_promised_is_a_refusal(stages: Stages, lie: object) -> None:
    """A result can lie: it is checked against the annotation, and what breaks it leads to a new plan."""
    ended = await stages.run([returning(lie)], [plan(step("a", "answer")), DONE])

    assert [(one.code, one.decision, one.attempt) for one in ended.faults] == [("unexpected_result", "replan", 1)]


@pytest.mark.parametrize(
    "fits", [pytest.param({"said": "x"}, marks=pytest.mark.full), {"said": "x", "more": 1}], ids=repr
)
async def test_a_result_that_fits_the_promise_is_taken_as_it(stages: Stages, fits: object) -> None:
    """Plain data of the promised shape will do; fields that were not promised do not cross the border."""
    ended = await stages.run([returning(fits)], [plan(step("a", "answer")), DONE])

    assert ended.steps[0].result == {"said": "x"}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param(object(), "unserialisable", id="object"),
        pytest.param("w" * (MAX_RESULT + 1), "too_large", id="long", marks=pytest.mark.full),
        pytest.param("🦊" * (MAX_RESULT // 4 + 1), "too_large", id="long in bytes"),
        pytest.param(float("nan"), "unserialisable", id="nan", marks=pytest.mark.full),
        pytest.param([1, {"deep": float("inf")}], "unserialisable", id="infinity", marks=pytest.mark.full),
    ],
)
async def test_a_result_that_cannot_be_carried_goes_to_a_person(stages: Stages, value: object, code: str) -> None:
    """On the wire there is plain JSON of a bounded size; a tool that returns anything else has to be mended."""

    @tool.read
    async def answer(args: Word) -> Anything:
        """Answer."""
        return Anything(value=value)

    ended = await stages.run([answer], [plan(step("a", "answer")), DONE])

    assert (ended.status, ended.code, ended.steps[0].attempts) == (TaskStatus.ESCALATED, code, 1)


async def test_a_transaction_whose_result_cannot_be_carried_is_rolled_back(tmp_path: Path, stages: Stages) -> None:
    """The size is checked before the commit: what cannot be told has not happened."""

    @tool.transactional
    async def insert(args: Word, tx: Transaction) -> Said:
        """Insert a row, and say a lot or little about it."""
        await tx.execute(text("insert into words values (:word)"), {"word": args.word})
        return Said(said="w" * (MAX_RESULT + 1) if args.word == "long" else "ok")

    sqlite3.connect(tmp_path / "store.db").execute("create table words (word text)").connection.close()
    script: Proposals = [plan(step("a", "insert", word="short"), step("b", "insert", "a", word="long")), DONE]
    ended = await stages.run([insert], script)
    connection = sqlite3.connect(tmp_path / "store.db")
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
    """Many words."""

    words: list[str]


@tool.read
async def swallow(args: Words) -> Said:
    """Take many words."""
    return Said(said=str(len(args.words)))


@pytest.mark.parametrize("letter", [pytest.param("x", marks=pytest.mark.full), "語"])
async def test_arguments_that_the_server_would_not_carry_are_never_scheduled(stages: Stages, letter: str) -> None:
    """Several references to a large result would make a payload at which the server terminates the workflow."""
    many: JsonValue = [{"$from": "a", "path": "said"}] * 12
    script: Proposals = [plan(step("a", "large", word=letter), step("b", "swallow", words=many)), DONE]
    ended, handle = await stages.ended([large, swallow], script)
    scheduled = await kinds(handle)

    assert [(one.step_id, one.code, one.attempt, one.decision) for one in ended.faults] == [
        ("b", "invalid_input", 0, "replan")
    ]
    assert "swallow" not in scheduled


@pytest.mark.parametrize("letter", [pytest.param("x", marks=pytest.mark.full), "語"])
async def test_what_the_server_would_not_carry_to_the_planner_is_left_out(stages: Stages, letter: str) -> None:
    """Bytes count, not characters: at 2 MB the server would terminate the workflow, with all that was finished."""
    steps = plan(*(step(f"a{number}", "large", word=letter) for number in range(9)))
    planner = Recording(steps, DONE)
    ended = await stages.run([large], planner)
    told = [record.left_out > 0 for record in planner.told[1].records]

    assert (ended.status, {one.status for one in ended.steps}) == (TaskStatus.COMPLETED, {StepStatus.COMPLETED})
    assert (told.count(False), [one.result_omitted for one in ended.steps]) == (2, told)


@pytest.mark.full
async def test_what_was_left_out_for_the_planner_is_there_for_the_steps(stages: Stages) -> None:
    """A reference is resolved in the workflow, which has everything."""
    steps = plan(*(step(f"a{number}", "large", word="x") for number in range(9)))
    lengths = plan(*(step(f"b{n}", "swallow", words=[{"$from": f"a{n}", "path": "said"}]) for n in range(9)))
    ended = await stages.run([large, swallow], [steps, lengths, DONE])

    assert [one.result for one in ended.steps[-9:]] == [{"said": "1"}] * 9


@pytest.mark.full
async def test_large_arguments_are_shown_as_they_were_planned(stages: Stages) -> None:
    """A task whose outcome is refused could never end."""
    planned: JsonValue = [{"$from": "a", "path": "said"}] * 2
    steps = plan(step("a", "large", word="x"), *(step(f"b{number}", "swallow", words=planned) for number in range(8)))
    ended = await stages.run([large, swallow], [steps, DONE])

    assert ended.status is TaskStatus.COMPLETED
    assert [one.args for one in ended.steps[1:]] == [{"words": planned}] * 8


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


async def test_arguments_that_stand_for_a_single_value_are_refused(stages: Stages) -> None:
    """A call is never made with its defaults because its arguments turned out to be no object."""
    whole = Step(id="b", kind="echo", args={"$from": "a", "path": "said"})
    ended = await stages.run([echo], [plan(step("a", "echo", word="hi"), whole), DONE])

    assert [(one.step_id, one.code, one.attempt) for one in ended.faults] == [("b", "invalid_input", 0)]
