"""A kind that the task knows and no worker does, on a real server: a rolling deploy, or a forgotten tools file."""

import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from temporalio.client import Client

from activities.boundary.boundary import Boundary
from activities.planning.activities import Planning
from activities.planning.planner import Planner, ScriptedPlanner
from activities.storage.store import open_store
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from client.explain.people import answer_sentences
from client.history.reader import read_history
from client.history.story import Story
from replan import Refused, Tool, tool
from runtime.payloads import DATA_CONVERTER
from tests.harness import DONE, Proposals, Stage, outcome, plan, step, worker
from tests.workflows.history import timers, until
from tests.workflows.props import Recording, Said, Stages, Word, echo, played
from workflows.account.progress import Progress
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus


@tool.read
async def shout(args: Word) -> Said:
    """Say the word loudly: a kind that the newest workers have."""
    return Said(said=args.word.upper())


@asynccontextmanager
async def outdated(
    client: Client,
    folder: Path,
    offered: Sequence[Tool[..., Any]],
    known: Collection[str],
    planner: Planner | Proposals,
    *,
    patience: float = 60,
    queue: str | None = None,
) -> AsyncIterator[Stage]:
    """A worker that plans with all kinds that a newer one would have, and knows only some of them itself."""
    queue, registry = queue or f"queue-{uuid.uuid4().hex}", Registry(offered)
    engine = await open_store(f"sqlite+aiosqlite:///{folder / 'store.db'}")
    chosen = ScriptedPlanner(planner) if isinstance(planner, Sequence) else planner
    planning = Planning(chosen, registry, searchable=True, patience=patience)
    async with httpx2.AsyncClient() as http:
        boundary = Boundary(Resources(engine, http, folder)).activities({kind: registry[kind] for kind in known})
        async with worker(client, queue, [*planning.activities(), *boundary]):
            yield Stage(client, queue)
    await engine.dispose()


def waits(progress: Progress) -> bool:
    """Whether some step sits on a timer."""
    return bool(progress.with_status(StepStatus.WAITING))


async def test_a_kind_that_no_worker_knows_is_waited_for_and_then_a_person_is_asked(
    client: Client, tmp_path: Path
) -> None:
    """Named timers as long as the patience lasts, to the second; siblings go on; no attempt is burned.

    A worker that stands alone has none, and says so at once: nobody else will come.
    """
    script: Proposals = [plan(step("a", "shout"), step("b", "echo", word="x")), DONE]
    async with outdated(client, tmp_path, [echo, shout], ["echo"], script, patience=2) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        slept = await timers(handle)
    async with outdated(client, tmp_path, [echo, shout], ["echo"], script, patience=0) as stage:
        handle = await stage.start()
        alone = await outcome(handle)

    assert (alone.code, await timers(handle)) == ("missing_tool", [])
    assert alone.faults[-1].reason == (
        "This worker does not know the kind 'shout': start it with the tools file that defines it."
    )
    assert [(one.seconds, one.summary) for one in slept] == [(1, "a waits: missing_tool, then again")] * 2
    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "missing_tool")
    assert [(one.id, one.status, one.attempts) for one in ended.steps] == [
        ("a", StepStatus.FAILED, 0),
        ("b", StepStatus.COMPLETED, 1),
    ]


async def test_a_step_completes_when_a_worker_that_knows_its_kind_appears(stages: Stages) -> None:
    """The deploy goes on, the new worker takes the step, and nothing was lost: one attempt, one tool call."""
    script: Proposals = [plan(step("a", "shout", word="hi")), DONE]
    async with outdated(stages.client, stages.folder, [echo, shout], ["echo"], script, patience=60) as old:
        handle = await old.start(tool_calls=1)
        await until(handle, waits)
    async with stages([echo, shout], script, queue=old.queue):
        ended = await outcome(handle)

    assert (ended.status, ended.steps[0].result) == (TaskStatus.COMPLETED, {"said": "HI"})
    assert (ended.steps[0].attempts, ended.spent.tool_calls) == (1, 1)


@pytest.mark.full
async def test_a_kind_that_a_deploy_brings_resolves_itself(stages: Stages) -> None:
    """Whoever is asked need not answer: the task tries again when the request is to be reminded of."""
    script: Proposals = [plan(step("a", "shout", word="hi"), step("b", "echo", word="x")), DONE]
    task = Task(text="a task", on_escalation="wait", answer_within=8)
    async with outdated(stages.client, stages.folder, [echo, shout], ["echo"], script, patience=0) as old:
        handle = await old.start(task)
        (request,) = (await until(handle, lambda now: bool(now.open_requests))).open_requests
    async with stages([echo, shout], script, queue=old.queue):
        ended = await outcome(handle)
        named = [one.summary for one in await timers(handle)]
        story = Story(await read_history(handle.id, handle.fetch_history_events(), DATA_CONVERTER, journal=True))

    assert (request.cause, ended.status) == ("shout/missing_tool", TaskStatus.COMPLETED)
    assert [(one.status, one.attempts) for one in ended.steps] == [(StepStatus.COMPLETED, 1)] * 2
    assert [(one.closed, one.answer) for one in ended.requests] == [("repeated", None)]
    assert sorted(named) == [
        "until a is tried again: missing_tool",
        "waiting for a person: a missing_tool | retry, replan, provide, skip, abort",
    ]
    (asked,) = story.requests
    (said,) = answer_sentences(story, asked)
    assert said.text.startswith("A person was asked (r1); the task tried again by itself after 4")
    assert said.text.endswith(" s, and went on.")


@pytest.mark.full
async def test_a_missing_kind_that_stays_missing_goes_unanswered(client: Client, tmp_path: Path) -> None:
    """To try again does not prolong the time for an answer, and one that comes between is taken."""
    script: Proposals = [plan(step("a", "shout", word="hi")), DONE]
    task = Task(text="a task", on_escalation="wait", answer_within=3)
    async with outdated(client, tmp_path, [echo, shout], ["echo"], script, patience=0) as old:
        unanswered = await old.run(task)
        handle = await old.start(task.model_copy(update={"answer_within": 6.0}))
        await until(handle, lambda now: bool(now.open_requests))
        await handle.execute_update("skip")
        skipped = await outcome(handle)

    assert (unanswered.status, unanswered.code) == (TaskStatus.ESCALATED, "unanswered")
    assert [one.closed for one in unanswered.requests] == ["unanswered"]
    assert (skipped.status, skipped.steps[0].status) == (TaskStatus.COMPLETED, StepStatus.SKIPPED)


@pytest.mark.full
async def test_a_look_of_a_kind_that_no_worker_knows_is_a_stale_view(client: Client, tmp_path: Path) -> None:
    """Looking is worth trying, not waiting for."""
    refuse = played("refuse", Refused("No.", observed="the door is shut"), declare=tool.read(observe=shout))
    planner = Recording(plan(step("a", "refuse")), DONE)
    async with outdated(client, tmp_path, [refuse, shout], ["refuse"], planner) as stage:
        ended = await stage.run()

    assert ended.status is TaskStatus.COMPLETED
    assert [(one.value, one.stale) for one in planner.told[1].observations] == [("the door is shut", True)]


async def test_a_kind_that_the_task_does_not_have_is_refused_at_once(stages: Stages) -> None:
    """An unknown kind in a proposal is the planner's mistake and not a worker's."""
    planner = Recording(plan(step("a", "shout")), DONE)
    ended = await stages.run([echo], planner)

    assert (ended.status, ended.steps) == (TaskStatus.COMPLETED, ())
    assert [one.text for one in planner.told[1].rejected] == [
        "step 'a': there is no kind 'shout': there are echo",
    ]
