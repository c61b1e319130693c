"""Answers that come at a bad moment: while a task continues as new, while workers change, before a task has begun."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from client import people
from client.problem import Problem
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, until
from tests.workflows.props import Recording, Stages, echo
from tests.workflows.test_agent_long import EARLY, runs
from workflows.account import search_attributes
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.people.requests import Choice
from workflows.plans.proposal import Question

LAST = Question(text="Is that all?")


@pytest.fixture(scope="module")
async def early(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new run after 20 events, about two proposals."""
    folder = tmp_path_factory.mktemp("early")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=EARLY)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield await connect(address=server.address, plain=True)


def waiting() -> Task:
    """A task that waits for people."""
    return Task(text="a task", on_escalation="wait", limits=Limits(tool_calls=200))


async def begun(stage: Stage) -> tuple[Handle, Handle]:
    """A task that has begun: a handle of its first run, and one of its newest."""
    first = await stage.start(waiting())
    return first, stage.client.get_workflow_handle_for(AgentWorkflow.run, first.id)


async def asked(handle: Handle, number: int) -> None:
    """Wait until the task has opened the request with this number."""
    await until(handle, lambda now: len(now.requests) >= number, seconds=60)


@pytest.mark.full
async def test_no_extension_is_lost_or_counted_twice_while_runs_change(early: Client, tmp_path: Path) -> None:
    """A budget is extended again and again in the same words, while a new run begins every few steps."""
    steps = [plan(step(f"s{number}", "echo", word=str(number))) for number in range(9)]
    async with staged(early, tmp_path, [echo], [*steps, LAST, DONE]) as stage:
        first, newest = await begun(stage)
        said = list[str | None]()
        while not (await newest.query(AgentWorkflow.progress)).open_requests:
            given = (people.answer(newest, Choice.EXTEND, tool_calls=1, by="ann") for _ in range(3))
            said += await asyncio.gather(*given)
            await asyncio.sleep(0.1)
        await people.answer(newest, Choice.REPLY, text="yes")
        ended = await outcome(newest)
        parts = await runs(early, first)

    assert len(parts) > 2 and None not in said
    assert len(ended.extensions) == len(said) > len(parts)
    assert (ended.status, len(ended.steps)) == (TaskStatus.COMPLETED, 9)


async def test_an_answer_that_is_sent_again_to_the_next_run_counts_once(early: Client, tmp_path: Path) -> None:
    """As a client does that lost the reply of the run before: the server knows only the Updates of the newest run."""
    steps = [plan(step(f"s{number}", "echo", word=str(number))) for number in range(4)]
    script: Proposals = [Question(text="Shall it begin?"), *steps, LAST, DONE]
    async with staged(early, tmp_path, [echo], script) as stage:
        first, newest = await begun(stage)
        await asked(newest, 1)
        extend = {"tool_calls": 5, "by": "ann"}
        said = [await newest.execute_update("extend", extend, id="more", result_type=str)]
        said.append(await newest.execute_update("reply", {"text": "yes"}, id="yes", result_type=str))
        await asked(newest, 2)
        said.append(await newest.execute_update("extend", extend, id="more", result_type=str))
        said.append(await newest.execute_update("reply", {"text": "yes", "request": "r1"}, id="yes", result_type=str))
        still_open = (await newest.query(AgentWorkflow.progress)).open_requests
        await newest.execute_update("reply", {"text": "that is all"}, id="all")
        ended = await outcome(newest)
        parts = await runs(early, first)

    assert len(parts) > 1 and said == ["tool_calls 205", "r1: reply", "extend", "reply"]
    assert [one.id for one in still_open] == ["r2"]
    assert (len(ended.extensions), [one.answer.text for one in ended.requests if one.answer]) == (
        1,
        ["yes", "that is all"],
    )


@pytest.mark.full
async def test_a_reply_with_which_a_new_run_begins_is_taken_once(early: Client, tmp_path: Path) -> None:
    """The workflow task that takes the answer continues as new. Of two people, one is told that the other was first."""
    number = 6
    questions = [Question(text=f"Which {one}?") for one in range(number)]
    steps = [plan(step(f"s{one}", "echo", word=str(one))) for one in range(number)]
    script: Proposals = [one for pair in zip(steps, questions, strict=True) for one in pair]
    planner = Recording(*script, DONE)
    async with staged(early, tmp_path, [echo], planner) as stage:
        first, newest = await begun(stage)
        lost = list[str]()
        for one in range(1, number + 1):
            await asked(newest, one)
            given = (
                people.answer(newest, Choice.REPLY, text=f"{name} {one}", by=name, request=f"r{one}")
                for name in ("ann", "bob")
            )
            came = await asyncio.gather(*given, return_exceptions=True)
            lost += [str(error) for error in came if isinstance(error, Problem)]
            assert [isinstance(error, Problem | str) for error in came] == [True, True], came
        ended = await outcome(newest)
        parts = await runs(early, first)
    told = planner.told[-1].words

    assert len(parts) > 2 and ended.status is TaskStatus.COMPLETED
    assert [one.answer is not None for one in ended.requests] == [True] * number
    assert [one.text for one in told] == [one.answer.text for one in ended.requests if one.answer]
    assert len(lost) == number and all("was answered already: reply by " in one for one in lost[:-1])
    # With the last answer the task ends, perhaps before the other one arrives.
    assert "was answered already: reply by " in lost[-1] or "has ended" in lost[-1]


@pytest.mark.full
async def test_answers_are_taken_while_workers_change(stages: Stages) -> None:
    """As in a deploy: each is accepted once, by the worker that stops or by one that starts."""
    queue, planner = f"queue-{uuid.uuid4().hex[:8]}", Recording(LAST, DONE)
    async with stages([echo], planner, queue=queue) as stage:
        _, handle = await begun(stage)
        await asked(handle, 1)
    names = [f"p{number}" for number in range(9)]
    for at in range(0, len(names), 3):
        given = [
            asyncio.create_task(handle.execute_update("extend", {"replans": 1, "by": name}))
            for name in names[at : at + 3]
        ]
        for one in given:  # sent while no worker runs; each worker stops when one more answer was taken
            async with stages([echo], planner, queue=queue):
                await one
    reply = asyncio.create_task(handle.execute_update("reply", {"text": "yes"}, result_type=str))
    async with stages([echo], planner, queue=queue):
        said = await reply
        ended = await outcome(handle)

    assert (said, ended.status) == ("r1: reply", TaskStatus.COMPLETED)
    assert Counter(one.by for one in ended.extensions) == dict.fromkeys(names, 1)
    assert [one.text for one in planner.told[-1].words] == ["yes"]


async def test_an_extension_before_the_first_workflow_task_counts(stages: Stages) -> None:
    """The task has no worker yet; its budget is extended before its first step, which would exceed it."""
    queue = f"queue-{uuid.uuid4().hex[:8]}"
    stage = Stage(stages.client, queue)
    handle = await stage.start(Task(text="a task", limits=Limits(tool_calls=1)))
    extended = asyncio.create_task(people.answer(handle, Choice.EXTEND, tool_calls=2, by="ann"))
    await asyncio.sleep(0.5)
    steps = plan(step("a", "echo", word="a"), step("b", "echo", word="b"), step("c", "echo", word="c"))
    async with stages([echo], [steps, DONE], queue=queue):
        said = await extended
        ended = await outcome(handle)

    assert (said, ended.status, len(ended.steps)) == ("tool_calls 3", TaskStatus.COMPLETED, 3)
    assert [(one.by, one.extended) for one in ended.extensions] == [("ann", {"tool_calls": 2})]
