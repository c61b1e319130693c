"""A receiver is told what tasks ask of people, and no task and no answer waits for it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowHistory

from activities.toolbox.declare.kind import Kind
from client.redaction import Redaction
from client.reset import reset
from replan import Approval, Key, NeedsPerson, Tool, tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.console.replaying import replay
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.receiving import Mailbox, receiver
from tests.workflows.history import Handle, events, timers, until
from tests.workflows.props import Said, Stages, Word, echo, played
from workflows.account import search_attributes
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, NewSteps, Question

WORD = "a-value-of-an-argument"


class Receipt(BaseModel):
    id: int


@tool.keyed
async def charge(args: Word, key: Key) -> Receipt:
    """Charge, which nobody may."""
    raise NeedsPerson(f"The key for {args.word} was revoked.", code="unauthorized")


TOOLS: list[Tool[..., Any]] = [echo, charge]
PAY: Proposals = [plan(step("paid", "charge", word=WORD)), DONE]
TWO: Proposals = [plan(step("paid", "charge", word=WORD), step("fee", "charge", word="b")), DONE]


def waiting(**more: Any) -> Task:
    """A task that waits for people."""
    return Task(text=f"pay {WORD}", on_escalation="wait", **more)


async def asked(handle: Handle, number: int = 1) -> None:
    """Wait until a task has asked so often."""
    await until(handle, lambda now: len(now.requests) >= number)


async def started(handle: Handle) -> list[str]:
    """The ids of the workflows that a task has started."""
    found = [event.start_child_workflow_execution_initiated_event_attributes for event in await events(handle)]
    return [one.workflow_id for one in found if one.workflow_id]


@asynccontextmanager
async def told(
    stages: Stages, tools: list[Tool[..., Any]], planner: Any, task: Task | None = None, *statuses: int
) -> AsyncIterator[tuple[Mailbox, Handle]]:
    """A task whose worker tells a receiver, which answers with these statuses."""
    async with receiver(*statuses) as mailbox, stages(tools, planner, notify=mailbox.url) as stage:
        yield mailbox, await stage.start(task or waiting())


async def test_a_receiver_is_told_of_a_request_and_of_its_answer(stages: Stages) -> None:
    """With the commands that answer it, each with an id of its own; without a value, a reason or a name."""
    async with told(stages, TOOLS, PAY) as (mailbox, handle):
        await mailbox.has(1)
        await handle.execute_update("skip", {"by": "ann", "reason": "done by hand"})
        ended = await outcome(handle)
        await mailbox.has(2)
        ids = await started(handle)

    opened, closed = mailbox.posted
    assert ended.status is TaskStatus.COMPLETED
    assert mailbox.types == ["request.opened r1", "request.closed r1"]
    assert [one["webhook-id"] for one in mailbox.headers] == [opened["id"], closed["id"]] == ids
    assert opened["data"]["commands"]["provide"] == (
        f"python starter.py answer {handle.id} provide --request r1 --result JSON"
    )
    assert (opened["data"]["step"], opened["data"]["code"], opened["data"]["end"]) == ("paid", "unauthorized", None)
    assert opened["data"]["cause"] == "charge/unauthorized"
    assert opened["data"]["commands"]["resolve"] == "python starter.py resolve charge/unauthorized"
    assert (closed["data"]["end"], closed["data"]["answer"], closed["data"]["commands"]) == ("answered", "skip", {})
    assert closed["text"] == (
        f"The task {handle.id} has closed its request: answered with skip (r1: fault unauthorized of the step paid)."
    )
    for secret in (WORD, "revoked", "ann", "by hand"):
        assert secret not in json.dumps(mailbox.posted)


async def test_what_nobody_answers_has_a_reminder(stages: Stages) -> None:
    """Halfway, where the request is open for less than two days; the end of the task is told, too."""
    async with told(stages, TOOLS, PAY, waiting(answer_within=3)) as (mailbox, handle):
        ended = await outcome(handle)
        await mailbox.has(3)
        waits = await timers(handle)

    assert ended.code == "unanswered"
    assert mailbox.types == ["request.opened r1", "request.reminder r1", "request.closed r1"]
    assert mailbox.posted[-1]["data"]["end"] == "unanswered"
    assert (1.5, "reminder of the request r1") in [(one.seconds, one.summary) for one in waits]


async def test_when_further_people_may_answer_that_is_told(stages: Stages) -> None:
    """Before the reminder, or after it: whichever comes first."""

    @tool.keyed(approve=Approval(by="role:finance", after="1s escalate role:board"))
    async def refund(args: Word, key: Key) -> Said:
        """Pay back."""
        return Said(said=args.word)

    tools, planned = [refund], [plan(step("paid", "refund", word="a")), DONE]
    async with told(stages, tools, planned, waiting(answer_within=4)) as (mailbox, handle):
        await outcome(handle)
        await mailbox.has(4)

    types = ["request.opened r1", "request.escalated r1", "request.reminder r1", "request.closed r1"]
    assert mailbox.types == types
    assert "waits for a person, and further people may answer now" in mailbox.posted[1]["text"]
    assert mailbox.posted[1]["data"]["approvers"]["then"] == ["role:board"]


@pytest.mark.full
async def test_what_ends_a_task_closes_each_request(stages: Stages) -> None:
    """They are told apart; whoever aborts one closes all, and a cancel leaves nobody with what no answer is for."""
    async with told(stages, TOOLS, TWO) as (mailbox, handle):
        await asked(handle, 2)
        await handle.execute_update("abort", {"request": "r2"})
        ended = await outcome(handle)
        await mailbox.has(4)
    async with told(stages, TOOLS, PAY) as (cancelled, handle):
        await asked(handle)
        await handle.cancel()
        await outcome(handle)
        await cancelled.has(2)

    ends = {one["data"]["request"]: one["data"]["end"] for one in mailbox.posted if one["type"] == "request.closed"}
    assert (ended.code, ends) == ("aborted", {"r1": "aborted", "r2": "aborted"})
    assert len({one["id"] for one in mailbox.posted}) == 4
    assert cancelled.posted[1]["data"]["end"] == "ended"


class OneByOne:
    """A planner of one step at a time."""

    name = "one by one"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer:
        """Two steps, then the end."""
        done = len(situation.records)
        return plan(step(f"s{done}", "echo", word="a")) if done < 2 else DONE


@pytest.mark.full
async def test_a_budget_that_is_extended_closes_its_request(stages: Stages) -> None:
    """The command that answers names the limit."""
    async with told(stages, TOOLS, OneByOne(), waiting(limits=Limits(tool_calls=1))) as (mailbox, handle):
        await asked(handle)
        await handle.execute_update("extend", {"tool_calls": 2})
        await outcome(handle)
        await mailbox.has(2)

    opened, closed = mailbox.posted
    assert opened["data"]["commands"]["extend"] == f"python starter.py extend {handle.id} --request r1 --tool-calls +10"
    assert (opened["data"]["kind"], closed["data"]["answer"]) == ("budget", "extend")


order = played("order", None, declare=tool.idempotent(approve="always"))


async def test_a_call_is_not_approved_unseen(stages: Stages) -> None:
    """The receiver gets neither its arguments nor the code of the approval, but the command that shows them."""
    proposals: Proposals = [plan(step("ordered", "order", word=WORD)), DONE]
    async with told(stages, [order], proposals) as (mailbox, handle):
        await asked(handle)
        [request] = (await handle.query(AgentWorkflow.progress)).requests
        code = request.call.code if request.call else ""
        await handle.execute_update("approve", {"call": code})
        ended = await outcome(handle)
        await mailbox.has(2)

    opened, closed = mailbox.posted
    assert code and code not in json.dumps(mailbox.posted) and WORD not in json.dumps(mailbox.posted)
    assert opened["data"]["commands"]["approve"] == f"python starter.py answer {handle.id}"
    assert opened["data"]["commands"]["reject"] == f"python starter.py answer {handle.id} reject --request r1"
    assert (opened["data"]["kind"], closed["data"]["answer"], ended.status) == ("approval", "approve", "completed")


async def test_a_question_is_not_told(stages: Stages) -> None:
    """That there is one, but not its words or options, which may be results."""
    question = Question(text=f"Is {WORD} right?", options=(f"{WORD}, yes", "no"))
    async with told(stages, TOOLS, [question, DONE]) as (mailbox, handle):
        await mailbox.has(1)
        await handle.execute_update("reply", {"text": "no"})
        await outcome(handle)
        await mailbox.has(2)

    assert WORD not in json.dumps(mailbox.posted)
    assert mailbox.posted[0]["data"]["commands"]["reply"].endswith("reply --request r1 --text TEXT")


async def test_a_receiver_that_is_down_holds_nothing_up(stages: Stages) -> None:
    """The task is answered and ends; when the receiver is back, it is told all of it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    async with stages(TOOLS, PAY, notify=url) as stage:
        handle = await stage.start(waiting())
        await asked(handle)
        await handle.execute_update("abort", {})
        ended = await outcome(handle)
        async with receiver(port=port) as mailbox:
            await mailbox.has(2)

    assert ended.code == "aborted"
    assert sorted(mailbox.types) == ["request.closed r1", "request.opened r1"]


async def test_a_repetition_has_the_same_id(stages: Stages) -> None:
    """Whatever the receiver answers but 2xx: it may have been deployed meanwhile."""
    statuses = (302, 404)
    async with receiver(*statuses, 200) as mailbox, stages(TOOLS, PAY, notify=mailbox.url) as stage:
        handle = await stage.start(waiting())
        await mailbox.has(len(statuses) + 1)
        await handle.terminate()

    assert len({one["webhook-id"] for one in mailbox.headers}) == 1
    assert len({json.dumps(one) for one in mailbox.posted}) == 1


@pytest.mark.full
async def test_a_worker_without_a_receiver_leaves_it_to_another(stages: Stages, server: DevServer) -> None:
    """A task that a worker with one began is told of by the next worker that has one."""
    (own := stages.folder / "own").mkdir()
    other = await connect(address=server.address, plain=True)
    async with receiver() as mailbox:
        async with stages(TOOLS, PAY, notify="http://127.0.0.1:9/") as stage:
            handle = await stage.start(waiting())
            await asked(handle)
        async with stages(TOOLS, PAY, queue=stage.queue):
            await handle.execute_update("abort", {})
            ended = await outcome(handle)
            async with staged(other, own, TOOLS, PAY, queue=stage.queue, notify=mailbox.url):
                await mailbox.has(2)

    assert ended.code == "aborted"


@pytest.mark.full
async def test_without_a_receiver_nothing_is_started(stages: Stages) -> None:
    """The commands of such a task are those of before."""
    _, handle = await stages.ended(TOOLS, PAY, waiting(answer_within=1))
    waits = await timers(handle)

    assert await started(handle) == []
    assert [one.seconds for one in waits] == [1]


@pytest.mark.full
async def test_after_a_reset_a_request_is_another_one(stages: Stages) -> None:
    """The step asks again, and the receiver does not take that for a repetition; a reset is not refused meanwhile."""
    async with receiver(503, 200) as mailbox, stages(TOOLS, PAY, notify=mailbox.url) as stage:
        id = (await stage.start(waiting())).id
        newest = stages.client.get_workflow_handle_for(AgentWorkflow.run, id)
        await asked(newest)
        await reset(stages.client, newest, to="paid", reason="a test")
        await mailbox.has(3)
        await asked(newest)
        await newest.execute_update("skip", {})
        ended = await outcome(newest)
        await mailbox.has(4)

    assert ended.status is TaskStatus.COMPLETED
    assert sorted(mailbox.types) == ["request.closed r1"] + ["request.opened r1"] * 3
    assert len({one["id"] for one in mailbox.posted}) == 3


@pytest.fixture
async def early(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server that suggests a new run after a few events."""
    dynamic = {"limit.historyCount.suggestContinueAsNew": "10"}
    (folder := tmp_path / "server").mkdir()
    spec = ServerSpec(
        folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=dynamic
    )
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield await connect(address=server.address, plain=True)


@pytest.mark.full
async def test_a_new_run_loses_no_notification(early: Client, tmp_path: Path) -> None:
    """What the receiver did not take yet goes on beside the task."""
    port, turns = free_port(), [plan(step(f"s{number}", "echo", word=f"{number}")) for number in range(4)]
    proposals = [PAY[0], *turns, DONE]
    async with staged(early, tmp_path, TOOLS, proposals, notify=f"http://127.0.0.1:{port}/") as stage:
        handle = await stage.start(waiting())
        await asked(handle)
        await handle.execute_update("skip", {})
        newest: Handle = early.get_workflow_handle(handle.id)
        ended = await outcome(handle)
        run = (await newest.describe()).run_id
        async with receiver(port=port) as mailbox:
            await mailbox.has(2)

    assert run != handle.first_execution_run_id
    assert [one.status for one in ended.steps] == [StepStatus.SKIPPED] + [StepStatus.COMPLETED] * 4
    assert sorted(mailbox.types) == ["request.closed r1", "request.opened r1"]


@pytest.mark.full
async def test_a_history_with_notifications_replays(stages: Stages) -> None:
    """Redacted, too: then it has no value of the task."""
    async with told(stages, TOOLS, TWO, waiting(answer_within=60)) as (mailbox, handle):
        await asked(handle, 2)
        await handle.execute_update("skip", {"request": "r1"})
        await handle.execute_update("skip", {"request": "r2"})
        await outcome(handle)
        await mailbox.has(4)
        history = await handle.fetch_history()
    redacted = WorkflowHistory("redacted", Redaction().events(history.events))
    (plain := stages.folder / "plain.json").write_text(history.to_json())
    (closed := stages.folder / "redacted.json").write_text(redacted.to_json())
    done = replay(plain, closed)

    assert (done.returncode, done.stdout.count(": ok")) == (0, 2), done.stdout + done.stderr
    assert WORD not in closed.read_text()
