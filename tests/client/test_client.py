"""A program starts tasks, follows them, answers them, and is told how they ended, on a real server."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from activities.toolbox.declare.kind import Kind
from client.client import Client, TaskCancelled, TaskEscalated, TaskFailed, TaskHandle, TaskOverBudget
from client.events import Began, Ended, PersonAnswered, PersonAsked, PlanAccepted, StepChanged, TaskEvent
from client.problem import Problem
from replan import Key, NeedsPerson, Tool, tool
from runtime.dev_server import DevServer
from tests.harness import DONE, Stage, plan, staged, step
from tests.own_worker import Reversing
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits
from workflows.people.incidents import Fate
from workflows.people.requests import HumanRequest
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps


class Amount(BaseModel):
    amount: int = 0


class Receipt(BaseModel):
    id: int


@tool.keyed(approve="args.amount > 500")
async def charge(args: Amount, key: Key) -> Receipt:
    """Charge a card."""
    return Receipt(id=args.amount)


@tool.read
async def shut(args: Amount) -> Receipt:
    """Need a person."""
    raise NeedsPerson("The door is shut.")


async def asked(task: TaskHandle) -> Sequence[HumanRequest]:
    """What a task asks, once it asks something."""
    while not (opened := await task.requests()):
        await asyncio.sleep(0.05)
    return opened


class ByText:
    """Plans what the task says: a planner that many tests share."""

    name = "by_text"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | GiveUp:
        if situation.text == "give up":
            return GiveUp(reason="There is no way.")
        if situation.records:
            return DONE
        word, _, number = situation.text.partition(" ")
        return plan(step("shut", "shut") if word == "shut" else step("paid", "charge", amount=int(number)))


@tool.read
async def broken(args: Amount) -> Receipt:
    """Need a key that nobody has."""
    raise NeedsPerson("The key was revoked.", code="unauthorized")


TOOLS: list[Tool[..., Any]] = [charge, shut, broken]


@pytest.fixture(scope="module")
async def stage(client: TemporalClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(client, tmp_path_factory.mktemp("client"), TOOLS, ByText()) as running:
        yield running


@pytest.fixture
async def replan(server: DevServer, stage: Stage) -> Client:
    return await Client.connect(server.address, queue=stage.queue)


async def test_a_task_is_a_model_or_a_text_with_options(replan: Client) -> None:
    """The fields of Task are the options; a wrong value says which."""
    plain = await replan.run("pay 40")
    done = await replan.run(Task(text="by hand", plan=(step("paid", "charge", amount=3),)), limits=Limits(tool_calls=9))
    with pytest.raises(TypeError, match="no option 'strategi': did you mean"):
        await replan.start("pay 1", strategi="react")
    with pytest.raises(ValueError, match="on_escalation"):
        await replan.start("pay 1", on_escalation="shout")  # type: ignore[arg-type]

    assert (plain.status, plain.result, plain.steps[0].result) == (TaskStatus.COMPLETED, "done", {"id": 40})
    assert (done.task, done.steps[0].result) == ("by hand", {"id": 3})


async def test_a_call_that_no_worker_has_told_is_not_approved(replan: Client) -> None:
    """The memo, all that is known of a request while the workers are busy, does not have its call."""
    task = await replan.start("pay 900", on_escalation="wait")
    untold = (await asked(task))[0].model_copy(update={"call": None})

    for choice in ("approve", "edit"):
        with pytest.raises(Problem, match="No worker has told which call the request r1 is about"):
            await task.answer(choice, request=untold)
    await task.answer("abort", request=untold)


async def test_what_happens_is_followed_as_typed_events(replan: Client) -> None:
    """From the plan over a question, which the program answers, to the end."""
    task = await replan.start("pay 900", on_escalation="wait")
    seen = list[TaskEvent]()
    async for event in task.follow():
        seen.append(event)
        if isinstance(event, PersonAsked):
            assert event.request.call is not None and event.request.call.args == {"amount": 900}
            await task.answer("approve", request=event.request, by="a program")
    statuses = [event.step.status for event in seen if isinstance(event, StepChanged)]

    told = [
        type(event) for event in seen if isinstance(event, Began | PlanAccepted | PersonAsked | PersonAnswered | Ended)
    ]
    assert told == [Began, PlanAccepted, PersonAsked, PersonAnswered, Ended]
    assert statuses[-1] is StepStatus.COMPLETED
    assert isinstance(seen[-1], Ended) and seen[-1].outcome.status is TaskStatus.COMPLETED
    assert await task.requests() == []


async def test_a_task_that_is_not_completed_is_a_typed_exception(replan: Client) -> None:
    """It carries the outcome, and says what happened."""
    for text, kind in (("give up", TaskFailed), ("shut", TaskEscalated), ("pay 900", TaskEscalated)):
        with pytest.raises(kind) as raised:
            await replan.run(text)

        outcome = raised.value.outcome
        assert str(raised.value) == f"Task {outcome.task_id!r} is {outcome.status}: {outcome.reason}"


async def test_a_limit_and_a_cancel_have_exceptions_of_their_own(replan: Client) -> None:
    """A task that waits for a person is stopped; one may be given more."""
    task = await replan.start("shut", on_escalation="wait")
    await asked(task)
    assert await task.extend(tool_calls=5) == "tool_calls 105"
    await task.cancel()
    with pytest.raises(TaskCancelled):
        await task.result()
    with pytest.raises(TaskOverBudget):
        await replan.run("shut", on_escalation="wait", limits=Limits(deadline=1))
    with pytest.raises(Problem, match="has ended"):
        await task.answer("skip")


async def test_to_start_is_idempotent_by_id(replan: Client, stage: Stage) -> None:
    """The same content joins the task, another is refused, an ended one needs `again`."""
    same = stage.queue  # no other test of this server has it
    first = await replan.start("shut", id=same, on_escalation="wait")
    second = await replan.start("shut", id=same, on_escalation="wait")
    assert (first.id, second.id) == (same, same)
    with pytest.raises(Problem, match="was asked something else"):
        await replan.start("pay 7", id=same)
    await first.cancel()
    with pytest.raises(TaskCancelled):
        await second.result()
    with pytest.raises(Problem, match="has ended already"):
        await replan.start("pay 7", id=same)
    done = await (await replan.start("pay 7", id=same, again=True)).result()

    assert done.steps[0].result == {"id": 7}
    assert (await replan.task(same)).id == same
    with pytest.raises(Problem, match="no task 'unheard-of'"):
        await replan.task("unheard-of")
    with pytest.raises(Problem, match="cannot be an id"):
        await replan.start("pay 7", id=" ")


async def test_to_start_and_to_extend_are_idempotent_by_key(replan: Client) -> None:
    """The same task with the same key is one task, also after its end; another task with it is refused. An extension
    that is sent twice with one key counts once."""
    first = await replan.start("pay 40", key="parcel 7")
    await first.result()
    again = await replan.start("pay 40", key="parcel 7")
    other = await replan.start("pay 40", key="parcel 8")
    with pytest.raises(Problem) as refused:
        await replan.start("pay 41", key="parcel 7")
    task = await replan.start("pay 900", on_escalation="wait", limits=Limits(tool_calls=5))
    await asked(task)
    said = [await task.extend(tool_calls=2, key=key) for key in ("a", "a", "b")]
    extensions = (await task.outcome()).extensions
    await task.cancel()

    assert again.id == first.id != other.id
    assert refused.value.code == "other_task"
    assert said[0] == said[1] != said[2]
    assert [one.extended for one in extensions] == [{"tool_calls": 2}] * 2


async def test_what_waits_is_listed_with_its_request(replan: Client) -> None:
    """The longest wait first, from the server's list alone."""
    tasks = [await replan.start("pay 900", on_escalation="wait") for _ in range(2)]
    for task in tasks:
        await asked(task)
    ids = {task.id for task in tasks}
    async with asyncio.timeout(20):  # the list is a moment behind
        found = await replan.waiting()
        while ids - {one.task_id for one in found}:
            found = await replan.waiting()
    for task in tasks:
        await task.cancel()

    assert [one.request.since for one in found] == sorted(one.request.since for one in found)
    assert {(one.task, one.request.call) for one in found if one.task_id in ids} == {("pay 900", None)}


async def test_the_codec_of_a_connection_is_kept(server: DevServer, client: TemporalClient, tmp_path: Path) -> None:
    """A program brings its own connection; what it encrypts, a worker with the same codec reads."""
    codec = Reversing()
    config = client.config()
    config["data_converter"] = dataclasses.replace(config["data_converter"], payload_codec=codec)
    theirs = await TemporalClient.connect(
        server.address, data_converter=dataclasses.replace(DataConverter.default, payload_codec=codec)
    )
    async with staged(TemporalClient(**config), tmp_path, TOOLS, ByText()) as stage:
        done = await Client(theirs, queue=stage.queue).run("pay 40")

    assert done.steps[0].result == {"id": 40}


async def test_tasks_are_listed_explained_and_undone(replan: Client) -> None:
    """What the console shows, as data; what has no undo is named."""
    task = await replan.start("pay 77")
    await task.result()
    with pytest.raises(TaskEscalated):
        await replan.run("shut")
    explained, undone = await task.explain(), (await task.undo()).outcome.undo
    listed = await replan.list(status="escalated", query=f"TaskQueue = '{replan.queue}'")

    assert (explained.status, explained.items, explained.is_plain) == ("completed", (), True)
    assert [(one.step_id, one.done, one.reason) for one in undone] == [("paid", False, "charge has no undo")]
    assert "shut" in {one.task for one in listed} and {one.status for one in listed} == {"escalated"}
    with pytest.raises(Problem, match="There is no status 'ended'"):
        await replan.list(status="ended")
    with pytest.raises(Problem, match="has ended already"):
        await task.cancel()


async def test_one_answer_resolves_an_incident(replan: Client) -> None:
    """The tool that needs a person names a cause of its own here."""
    task = await replan.start("broken", plan=[step("broken", "broken")], on_escalation="wait", plan_only=True)
    await asked(task)
    while "broken/unauthorized" not in {one.cause for one in await replan.incidents()}:
        await asyncio.sleep(0.1)
    failed = await replan.resolve("broken/unauthorized", by="a program", note="a new key")
    await task.cancel()

    assert (failed.canary, failed.fate, failed.tasks) == (task.id, Fate.FAILED_AGAIN, 1)
    with pytest.raises(Problem, match="No task waits because of"):
        await replan.resolve("nothing/unauthorized")
