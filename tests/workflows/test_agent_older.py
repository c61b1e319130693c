"""An older worker beside a newer one, on a real server: it checks proposals that name what only the newer one has."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import update
from temporalio.client import Client

from activities.planning.published import CATALOGUES
from activities.storage.store import open_store, write
from activities.toolbox.registry import Registry
from evals.fakes.script import ReceivedRequest, Response, finishes, proposes, step as planned
from replan import Key, Tool, tool
from runtime.dev_server import DevServer
from tests.harness import DONE, Proposals, outcome, plan, published, step
from tests.processes import Processes
from tests.providers.planning import planning
from tests.stores import make_store
from tests.workflows.history import Handle, timers, until
from tests.workflows.props import Recording, Said, Scripts, Stages, echo, played
from tests.workflows.test_agent_missing import shout
from workflows.account.progress import Progress
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.contract import AllowedEffect
from workflows.plans.demonstration import DemonstratedMove, Demonstration

SHOUTS = plan(step("a", "shout", word="hi"))
BY_HAND = Task(text="shout", plan=SHOUTS.steps, plan_only=True)


def new_queue() -> str:
    """A queue of the test's own."""
    return f"older-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def known(stages: Stages, queue: str, *tools: Tool[..., Any]) -> AsyncIterator[None]:
    """What a newer worker of the queue has, which has just ended."""
    engine = await open_store(await make_store(stages.folder))
    async with published(stages.client, queue, engine, Registry(tools)):
        yield
    await engine.dispose()


async def waited(handle: Handle) -> Progress:
    """The task, once one of the workflow's own calls has missed its tool."""
    return await until(handle, lambda now: any(fault.code == "missing_tool" for fault in now.own_faults))


async def approve(handle: Handle) -> None:
    """Approve the call that a task asks about."""
    call = (await until(handle, lambda now: bool(now.open_requests))).open_requests[0].call
    assert call is not None
    await handle.execute_update("approve", {"call": call.code})


class Order(BaseModel):
    article: str


class PricedOrder(Order):
    """Those of the newer version."""

    currency: str


def ordering(args_type: type[BaseModel]) -> Tool[..., Any]:
    """One version of a tool."""

    async def order(args: Any, key: Key) -> Said:
        """Order an article."""
        return Said(said=json.dumps(args.model_dump()))

    order.__annotations__ = {"args": args_type, "key": Key, "return": Said}
    return tool.keyed(order)


CONTRACT = (AllowedEffect(kind="shout", args={}),)
EXAMPLE = (Demonstration(task="hi?", moves=(DemonstratedMove(kind="shout"),), answer="HI"),)
PRICED = plan(step("o", "order", article="lamp", currency="EUR")).steps
NAMING = {
    "a plan": BY_HAND,
    "a contract": Task(text="a task", contract=CONTRACT),
    "demonstrations": Task(text="a task", demonstrations=EXAMPLE, strategy="react"),
    "a later plan": Task(text="later", plan=(step("e", "echo"),), revisions=(SHOUTS,), plan_only=True),
    "an argument": Task(text="order", plan=PRICED, plan_only=True),
}


async def test_what_a_task_needs_is_what_the_queue_has(stages: Stages) -> None:
    """A worker that lacks a kind says neither that there is none nor that what names it is refused: it waits.

    It neither refuses nor drops an argument that only the newer version of its tool takes.
    """
    queue, newer_tools = new_queue(), [echo, shout, ordering(PricedOrder)]
    async with known(stages, queue, *newer_tools):
        async with stages([echo, ordering(Order)], [DONE], queue=queue) as older:
            handles = {name: await older.start(task) for name, task in NAMING.items()}
            for handle in handles.values():
                await waited(handle)
        async with stages(newer_tools, [DONE], queue=queue):
            ended = {name: await outcome(handle) for name, handle in handles.items()}

    assert {(one.status, one.rejections) for one in ended.values()} == {(TaskStatus.COMPLETED, ())}
    assert ended["a plan"].steps[0].result == {"said": "HI"}
    assert ended["an argument"].steps[0].result == {"said": '{"article": "lamp", "currency": "EUR"}'}


confirm = played("confirm", None, declare=tool.read(approve="always"))
"""Asks a person, so that the workers can be exchanged meanwhile."""
SCRIPT: Proposals = [plan(step("c", "confirm", word="x")), SHOUTS, DONE]


@pytest.mark.parametrize("strategy", ["plan", "react"])
async def test_a_task_that_an_older_worker_began_uses_what_a_newer_one_has(stages: Stages, strategy: Any) -> None:
    """Its catalogue lacks the kind, and the worker that plans has it: the plan brings the spec along."""
    queue = new_queue()
    async with stages([confirm], SCRIPT, queue=queue) as older:
        handle = await older.start(Task(text="a task", strategy=strategy, on_escalation="wait"))
        await until(handle, lambda now: bool(now.open_requests))
    async with stages([confirm, shout], SCRIPT, queue=queue):
        await approve(handle)
        ended = await outcome(handle)

    assert (ended.status, [one.status for one in ended.steps]) == (TaskStatus.COMPLETED, ["completed"] * 2)
    assert ended.rejections == ()


async def test_a_turn_that_the_older_worker_takes_waits_for_the_newer_one(stages: Stages) -> None:
    """A task that knows the kind from its catalogue, even if the newer worker has been gone for long."""
    queue = new_queue()
    async with stages([confirm, shout], SCRIPT, queue=queue) as newer:
        handle = await newer.start(Task(text="a task", strategy="react", on_escalation="wait"))
        await until(handle, lambda now: bool(now.open_requests))
    await forget(stages.folder)
    async with stages([confirm], SCRIPT, queue=queue):
        await approve(handle)
        await waited(handle)
    async with stages([confirm, shout], SCRIPT, queue=queue):
        ended = await outcome(handle)

    assert (ended.status, ended.rejections) == (TaskStatus.COMPLETED, ())


async def test_a_step_is_offered_every_second_while_another_worker_has_its_tool(stages: Stages) -> None:
    """The server prefers the workers that have waited longest, which may all be older ones."""
    queue = new_queue()
    script: Proposals = [plan(step("c", "confirm", word="x"), step("a", "shout", "c", word="hi")), DONE]
    async with stages([confirm, shout], script, queue=queue) as newer:
        handle = await newer.start(Task(text="a task", on_escalation="wait"))
        await until(handle, lambda now: bool(now.open_requests))
    async with known(stages, queue, shout), stages([confirm], script, queue=queue):
        await approve(handle)
        await until(handle, lambda now: sum(fault.code == "missing_tool" for fault in now.faults) > 2)
    async with stages([confirm, shout], script, queue=queue):
        ended = await outcome(handle)
    waits = [one.seconds for one in await timers(handle) if one.summary.startswith("a waits: missing_tool")]

    assert (ended.status, set(waits)) == (TaskStatus.COMPLETED, {1.0})


async def forget(folder: Path) -> None:
    """Make all workers of a store gone for long."""
    engine = await open_store(await make_store(folder))
    await write(engine, lambda tx: tx.execute(update(CATALOGUES).values(until=CATALOGUES.c.until - 3600)))
    await engine.dispose()


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_kind_of_workers_that_are_gone_is_refused_at_once(stages: Stages, is_gone: bool) -> None:
    """What a tool that was removed is called holds up no plan of a task that never had it.

    Workers of another queue on the same store take no step of this task either.
    """
    queue = new_queue()
    async with known(stages, queue if is_gone else "another queue", echo, shout):
        if is_gone:
            await forget(stages.folder)
        async with stages([echo], Recording(SHOUTS, DONE), queue=queue) as stage:
            ended = await stage.run()

    assert (ended.status, len(ended.rejections), ended.own_faults) == (TaskStatus.COMPLETED, 1, ())


async def test_a_mistake_that_no_worker_can_mend_goes_back_at_once(stages: Stages) -> None:
    """Beside a kind of another worker, only the mistake is named; and arguments that no version takes are one."""
    queue = new_queue()
    planner = Scripts(
        {
            "kind": [plan(step("a", "shout"), step("b", "no_such_kind")), DONE],
            "argument": [plan(step("o", "order", article="lamp", colour="red")), DONE],
        }
    )
    async with (
        known(stages, queue, echo, shout, ordering(PricedOrder)),
        stages([echo, ordering(Order)], planner, queue=queue) as stage,
    ):
        ended = [await stage.run(text) for text in ("kind", "argument")]

    assert [(one.status, one.own_faults) for one in ended] == [(TaskStatus.COMPLETED, ())] * 2
    assert planner.told["kind"][1].rejected[0].step == "b"
    assert "has no argument 'colour'" in planner.told["argument"][1].rejected[0].text


async def test_a_person_is_asked_when_no_worker_comes(stages: Stages) -> None:
    """After the patience, for `missing_tool`; `retry` goes on as soon as there is a worker. No attempt is used up."""
    queue = new_queue()
    async with known(stages, queue, echo, shout):
        async with stages([echo], [SHOUTS, DONE], queue=queue, patience=2) as older:
            handle = await older.start(Task(text="a task", on_escalation="wait"))
            alone = await older.run()
            asked = await until(handle, lambda now: bool(now.open_requests))
        async with stages([echo, shout], [SHOUTS, DONE], queue=queue):
            await handle.execute_update("retry")
            ended = await outcome(handle)

    assert (alone.status, alone.code) == (TaskStatus.ESCALATED, "missing_tool")
    assert alone.reason.startswith("The planner: This worker cannot check it (step 'a': there is no kind")
    assert (asked.open_requests[0].code, ended.status) == ("missing_tool", TaskStatus.COMPLETED)


def shouting(heard: ReceivedRequest) -> Response:
    """A model that shouts, and then says so."""
    return proposes(planned("a", "shout", word="hi")) if heard.turn < 1 else finishes("HI")


async def test_a_reply_of_a_model_is_not_paid_twice_for_that(stages: Stages) -> None:
    """It is recorded before it is left to another worker, which takes it from the store."""
    queue = new_queue()
    async with known(stages, queue, echo, shout), planning("anthropic", shouting, shouting) as (api, model):
        async with stages([echo], model, queue=queue) as older:
            handle = await older.start("shout")
            await waited(handle)
        replies = len(api.bodies)
        async with stages([echo, shout], model, queue=queue):
            ended = await outcome(handle)

    assert (replies, len(api.bodies), ended.spent.model_calls) == (1, 2, 2)
    assert (ended.status, ended.steps[0].result) == (TaskStatus.COMPLETED, {"said": "HI"})


TOOLS = '''
from pydantic import BaseModel
from replan import tool


class Word(BaseModel):
    word: str


@tool.read
async def shout(args: Word) -> Word:
    """Say it loudly."""
    return Word(word=args.word.upper())
'''


@pytest.mark.timeout(180)
async def test_six_plans_complete_on_two_workers_of_which_one_lacks_the_tool(
    server: DevServer, client: Client, tmp_path: Path
) -> None:
    """Real processes on one store, as in a rolling deploy: by hand, planned, and turn by turn."""
    tools, script, queue = tmp_path / "shouting.py", tmp_path / "script.json", new_queue()
    tools.write_text(TOOLS)
    proposals: Proposals = [SHOUTS, DONE]
    script.write_text(json.dumps([one.model_dump(mode="json") for one in proposals]))
    processes, usual = Processes(server.address, tmp_path), ("--queue", queue, "--planner", f"scripted:{script}")
    tasks = [BY_HAND, Task(text="planned"), Task(text="in turns", strategy="react")] * 2
    with processes.worker(*usual, "--tools", str(tools)), processes.worker(*usual):
        handles = [
            await client.start_workflow(AgentWorkflow.run, task, id=f"{queue}-{number}", task_queue=queue)
            for number, task in enumerate(tasks)
        ]
        ended = await asyncio.gather(*map(outcome, handles))

    assert [(one.status, len(one.rejections)) for one in ended] == [(TaskStatus.COMPLETED, 0)] * 6
