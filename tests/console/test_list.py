"""`list`, and which task is meant: the newest in our words, whatever the server calls their end, in fitting columns."""

import asyncio
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import workflow
from temporalio.client import Client, WorkflowExecution
from temporalio.common import WorkflowIDReusePolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.toolbox.declare.kind import Kind
from client import replay, tasks as finding
from client.client import Client as Replan
from client.history.fetch import final_outcome
from client.listing import list_tasks, status_named
from client.problem import Problem
from client.start import build_task, start
from client.tasks import query_progress
from console.commands.list_tasks import tasks
from console.commands.reset import reset
from console.exits import OF_PROBLEM
from console.options import Common
from replan import NeedsPerson, tool
from tests.console.server_lists import listed, other_namespace
from tests.harness import DONE, outcome, plan, staged, step
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.planning.situation import Situation
from workflows.plans.proposal import GiveUp, Question

Captured = pytest.CaptureFixture[str]


class Word(BaseModel):
    word: str = ""


@tool.read
async def wait(args: Word) -> Word:
    """Take a minute."""
    await asyncio.sleep(60)
    return args


NAMED: dict[str | None, str | None] = {
    **{None: None, "running": "running", "Canceled": "cancelled", "CANCELLED": "cancelled", "Failed": "failed"},
    **{"over-budget": "over_budget", " escalated ": "escalated"},
}


def test_a_status_is_ours_or_temporals() -> None:
    """In any case, with either spelling; a sentence about an unknown one names all that there are."""
    all_there_are = "t is one of running, waiting, paused, completed, escalated, over_budget, cancelled, failed."

    assert {name: status_named(name) for name in NAMED} == NAMED
    for name in ("", "done", "escalate", "completed;", "x\ny"):
        with pytest.raises(Problem) as wrong:
            status_named(name)
        assert str(wrong.value).endswith(all_there_are) and "\n" not in str(wrong.value)
        assert OF_PROBLEM[wrong.value.kind] == 2


class Shop:
    """Tasks of one queue, one of each ending, and what `list` says of them."""

    def __init__(self, client: Client, queue: str, captured: Captured) -> None:
        self.client, self.queue, self._captured = client, queue, captured

    async def documents(self, status: str | None = None, *, query: str | None = None, limit: int = 20) -> Any:
        """What `list --json` says, oldest first."""
        self._captured.readouterr()
        asked = f"TaskQueue = '{self.queue}'" + (f" AND {query}" if query else "")
        code = await tasks(self.client, Common(json=True), status=status_named(status), query=asked, limit=limit)
        assert code == 0
        printed = self._captured.readouterr().out
        return json.loads(printed[printed.index('{\n  "schema"') :])["tasks"][::-1]

    async def settled(self, count: int, closed: int) -> None:
        """Wait until the server lists so many runs, and so many as closed: it takes a moment."""
        query = f"{finding.TASKS} AND TaskQueue = '{self.queue}'"
        await listed(self.client, query, count)
        await listed(self.client, f"{query} AND ExecutionStatus != 'Running'", closed)


@pytest.fixture(scope="module")
async def queue(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A queue with a task of each status; the ids are those statuses."""
    folder = tmp_path_factory.mktemp("shop")
    queue = f"queue-{secrets.token_hex(6)}"
    scripts: dict[str, Any] = {
        "completed": [DONE],
        "escalated": [Question(text="Which one?")],
        "over_budget": [plan(step("a", "wait"))],
        "failed": [GiveUp(reason="No way.")],
        "cancelled": [plan(step("a", "wait"))],
    }
    for status, script in scripts.items():
        async with staged(client, folder, [wait], script, queue=queue):
            limits = {"deadline": 1} if status == "over_budget" else {}
            task = Task.model_validate({"text": f"a task {status}", "limits": limits})
            handle = await client.start_workflow(AgentWorkflow.run, task, id=f"{queue}-{status}", task_queue=queue)
            if status == "cancelled":
                await handle.cancel()
            await outcome(handle)
    for status in ("terminated", "running"):
        task = Task(text=f"a task {status}")
        handle = await client.start_workflow(AgentWorkflow.run, task, id=f"{queue}-{status}", task_queue=queue)
        if status == "terminated":
            await handle.terminate()
    yield queue
    await client.get_workflow_handle(f"{queue}-running").terminate()


@pytest.fixture
async def shop(client: Client, queue: str, capsys: Captured) -> Shop:
    shop = Shop(client, queue, capsys)
    await shop.settled(7, 6)
    return shop


async def test_every_ending_has_its_word(shop: Shop) -> None:
    """Temporal's status and ours together: a task that was ended from outside is not `running`; the newest is first. A
    document has the task's words also where no memo holds them, the question, when, and where to look."""
    listed = {one["task_id"].removeprefix(f"{shop.queue}-"): one for one in await shop.documents()}
    told = {name: one["status"] for name, one in listed.items()}
    two, one = await shop.documents(limit=2), listed["escalated"]

    assert [*listed] == ["completed", "escalated", "over_budget", "failed", "cancelled", "terminated", "running"]
    assert told == {**{name: name for name in told}, "terminated": "failed"}
    assert [one["task_id"] for one in two] == [f"{shop.queue}-terminated", f"{shop.queue}-running"]
    assert (one["task"], one["reason"]) == ("a task escalated", "Which one?")
    assert (one["planner"], one["replans"], one["started_at"] < one["ended_at"]) == ("scripted", 0, True)
    assert listed["running"]["ended_at"] is None


class Revoked:
    name = "revoked"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> GiveUp:
        raise NeedsPerson("The key was revoked.", code="unauthorized")


async def test_the_fault_of_a_planner_is_the_last_one(client: Client, tmp_path: Path, capsys: Captured) -> None:
    """It is no step's, so the task ends with it and nothing was published before."""
    queue = f"queue-{secrets.token_hex(6)}"
    async with staged(client, tmp_path, [wait], Revoked(), queue=queue):
        handle = await client.start_workflow(AgentWorkflow.run, Task(text="x"), id=queue, task_queue=queue)
        await outcome(handle)
    shop = Shop(client, queue, capsys)
    await shop.settled(1, 1)
    [one] = await shop.documents()

    assert (one["last_fault"], one["reason"]) == ("unauthorized", "The planner: The key was revoked.")


async def test_a_filter_finds_its_status_alone(shop: Shop) -> None:
    """One of each, two that failed, none that waits or that a newer server has paused."""
    for status in TaskStatus:
        found = [one["status"] for one in await shop.documents(status)]

        assert found == [status] * {"failed": 2, "waiting": 0, "paused": 0}.get(status, 1)


async def test_a_task_that_was_reset_stands_as_its_newest_run(client: Client, tmp_path: Path, capsys: Captured) -> None:
    """It is listed once, and no more as what its old run was."""
    async with staged(client, tmp_path, [wait], [Question(text="Which one?")]) as stage:
        first = await stage.start()
        await outcome(first)
    async with staged(client, tmp_path, [wait], [DONE], queue=stage.queue):
        newest = client.get_workflow_handle_for(AgentWorkflow.run, first.id)
        await reset(client, newest, Common(), to="plan:1", why=None)
        await newest.result()
    shop = Shop(client, stage.queue, capsys)
    await shop.settled(2, 2)
    listed = await shop.documents()

    assert [(one["task_id"], one["status"]) for one in listed] == [(first.id, "completed")]
    assert await shop.documents("escalated") == []


BAD = ["nonsense", "X = 1", "TaskQueue = 'x' ORDER BY StartTime", "(", ") OR (", "X = '", "X = 'a\0'", "X = '\ud800'"]


async def test_a_bad_query_is_a_sentence(client: Client, capsys: Captured) -> None:
    """With the reason, of the server or ours; where nothing is there, it is a sentence and no mistake."""
    for query in BAD:
        with pytest.raises(Problem, match=r"(?i)this query .+: write it as in ") as wrong:
            await tasks(client, Common(), status=None, query=query, limit=1)
        assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("bad_query", 2), ascii(query)
    code = await tasks(client, Common(), status=TaskStatus.WAITING, query="TaskQueue = 'none'", limit=1)

    assert (code, capsys.readouterr().out) == (0, "There is no waiting task here that the query finds.\n")


OTHERS = "WorkflowType != 'AgentWorkflow'"
LEAVING = {
    "the end of a parenthesis": f"WorkflowId = 'a') OR ({OTHERS}",
    "before a text": f"WorkflowId = 'a') OR ({OTHERS} OR WorkflowId = 'b'",
    "a comment to the end of the line": f"WorkflowId = 'a' -- '\n) OR ({OTHERS}",
    "another comment": f"WorkflowId = 'a' # '\n) OR ({OTHERS}",
    "a comment with a quote": f"WorkflowId = 'a' /* ' */ ) OR ({OTHERS} /* ' */",
    "two kinds of quotes": f"WorkflowId = \"a'\" ) OR ({OTHERS} OR WorkflowId = 'b'",
    "two quotes": f'WorkflowId = "a""b\'" ) OR ({OTHERS} OR WorkflowId = \'b\'',
    "a quoted name": f"`WorkflowId` = 'a') OR ({OTHERS}",
}
"""Filters that end the parenthesis around them, where a reader of texts may not see it."""


@pytest.fixture(scope="module")
async def foreign(client: Client) -> AsyncIterator[str]:
    """The id of a workflow that is none of Replan's."""
    handle = await client.start_workflow("Payroll", id=f"payroll-{secrets.token_hex(4)}", task_queue="nobody")
    await listed(client, f"WorkflowId = '{handle.id}'")
    yield handle.id
    await handle.terminate()


@pytest.mark.parametrize("query", LEAVING.values(), ids=LEAVING)
async def test_a_filter_finds_nothing_but_tasks(client: Client, foreign: str, query: str) -> None:
    """Neither `list` nor `replay` nor `report` leaves Replan's own workflows."""
    codes = list[str]()
    for read in (list_tasks(client, query=query), replay.count(client, query), Replan(client).report(query=query)):
        with pytest.raises(Problem) as wrong:
            await read
        codes.append(wrong.value.code)

    assert foreign in [row.id async for row in client.list_workflows(f"WorkflowId = 'x' AND ({query})")]
    assert codes == ["bad_query"] * 3


WITHIN = [
    "WorkflowId = '{}'",
    "(WorkflowId = '{}')",
    "WorkflowId = 'a)' OR (WorkflowId = '{}' AND WorkflowId != '((')",
    "WorkflowId = 'it''s' OR `WorkflowId` = '{}' OR WorkflowId = 'it\\'s )' OR WorkflowId = \"it's\"",
    "WorkflowId = '-- /* #'\n\tOR WorkflowId IN ('{}', ')')",
]


async def test_a_filter_may_have_brackets_and_quotes(client: Client, shop: Shop) -> None:
    """What stays within its own parentheses is the server's to judge."""
    for query in WITHIN:
        listed, _ = await list_tasks(client, query=query.format(f"{shop.queue}-completed"))

        assert [one.task_id for one in listed] == [f"{shop.queue}-completed"], query


async def test_without_search_attributes_temporals_status_decides(client: Client, capsys: Captured) -> None:
    """Said on stderr, with the command that adds what is missing."""
    bare = await other_namespace(client)
    for name in ("one", "two"):
        handle = await bare.start_workflow(AgentWorkflow.run, Task(text=name), id=name, task_queue="nobody")
        if name == "one":
            await handle.terminate()
    shop = Shop(bare, "nobody", capsys)
    await shop.settled(2, 1)
    listed = await shop.documents()
    await tasks(bare, Common(json=True), status=TaskStatus.FAILED, query=None, limit=9)
    printed = capsys.readouterr()

    assert [(one["task"], one["status"], one["replans"]) for one in listed] == [
        ("one", "failed", None), ("two", "running", None),
    ]  # fmt: skip
    assert [one["task_id"] for one in json.loads(printed.out)["tasks"]] == ["one"]
    assert printed.err.startswith("note: this namespace has no search attribute ReplanStatus, so ")
    await bare.get_workflow_handle("two").terminate()


async def found_newest(client: Client, unserved: str, limit: int, *, after: int) -> Sequence[WorkflowExecution]:
    """The newest tasks of a queue, once the server lists `after` runs, which takes it a moment."""
    query = f"{finding.TASKS} AND TaskQueue = '{unserved}'"
    await listed(client, query, after)
    return await finding.newest_tasks(client, query, limit)


@pytest.fixture
def unserved() -> str:
    """A queue that only this test knows and nobody serves."""
    return f"queue-{secrets.token_hex(6)}"


async def begin(client: Client, unserved: str, id: str, *, end: bool = True) -> None:
    """Start a task that no worker takes, and end it unless it is to run on."""
    reused: Any = {"task_queue": unserved, "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE}
    handle = await client.start_workflow(AgentWorkflow.run, Task(text="waits"), id=id, **reused)
    if end:
        await handle.terminate()


async def test_the_newest_are_found_beyond_the_first_page(client: Client, unserved: str) -> None:
    """A task that started last and closed first is at the end of the server's list, whatever its length. Not one that
    still runs, which a server lists before all that have closed."""
    ids = [f"{unserved}-{number:02}" for number in range(60)]
    for id in ids:
        await begin(client, unserved, id, end=False)
    for id in reversed(ids[1:]):
        await client.get_workflow_handle(id).terminate()
    found = await found_newest(client, unserved, 3, after=len(ids))
    await client.get_workflow_handle(ids[0]).terminate()

    assert [one.id for one in found] == list(reversed(ids))[:3]


async def test_a_task_that_was_run_again_is_one_task(client: Client, unserved: str) -> None:
    """With its newest run."""
    for _ in range(30):
        await begin(client, unserved, f"{unserved}-same")
    newest = (await client.get_workflow_handle(f"{unserved}-same").describe()).run_id
    found = await found_newest(client, unserved, 1, after=30)

    assert [(one.id, one.run_id) for one in found] == [(f"{unserved}-same", newest)]


async def test_a_beginning_is_enough_where_it_is_of_one_task(client: Client, unserved: str) -> None:
    """Of several it is a sentence that names them."""
    for name in ("apple", "apricot"):
        await begin(client, unserved, f"{unserved}-{name}")
    await found_newest(client, unserved, 2, after=2)

    assert (await finding.find_task(client, f"{unserved}-app")).id == f"{unserved}-apple"
    with pytest.raises(Problem, match=f"The ids of 2 tasks begin with .*{unserved}-ap.*apricot.*: write more of it"):
        await finding.find_task(client, f"{unserved}-ap")


async def test_what_names_no_task_is_a_sentence(client: Client) -> None:
    """Nothing that is typed becomes part of a query."""
    for id in ("no-such", "it's", "x' OR WorkflowId != '", "", "\\", "%", "a\nb"):
        with pytest.raises(Problem) as wrong:
            await finding.find_task(client, id)

        assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("unknown_id", 2), id


TASK = build_task(text="do it", limits={"tool_calls": 100, "replans": 0, "deadline": None})


async def test_a_terminated_task_is_told_by_the_server(client: Client) -> None:
    """Nobody wrote an outcome: its words come from the memo, its end from the server; before it had no progress."""
    handle = await start(client, TASK, id=None, queue="nobody", again=False)
    assert await query_progress(handle) is None, "a query that nobody answers is no error"
    await handle.terminate()
    outcome = await final_outcome(client, handle)

    assert (outcome.status, outcome.task) == (TaskStatus.FAILED, "do it")
    assert outcome.reason == "The task was closed from outside (TERMINATED)."


@workflow.defn(name="Foreign")
class Foreign:
    @workflow.run
    async def run(self) -> str:
        return "done"


async def test_a_workflow_of_somebody_else_is_no_task(client: Client) -> None:
    """An id may belong to anything in the namespace: that is said, with the command that shows it."""
    id = f"foreign-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=id, workflows=[Foreign], workflow_runner=UnsandboxedWorkflowRunner()):
        await client.execute_workflow(Foreign.run, id=id, task_queue=id)

    with pytest.raises(Problem, match=rf"'{id}' is no task, but a workflow of the type 'Foreign': `temporal workflow"):
        await finding.find_task(client, id)
