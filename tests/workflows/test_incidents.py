"""One cause for which many tasks wait: one answer resumes them all, after one of them has tried it."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from client.incidents import Incident, find_incidents, follow_resolution, resolve
from client.problem import Problem
from replan import Key, NeedsPerson, Tool, tool
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, until
from tests.workflows.props import Word, echo
from workflows.asking import RESOLVE
from workflows.people import HumanRequest, Resolution
from workflows.resolving import Fate, Resolved
from workflows.task import Task, TaskStatus

CAUSE = "pay/unauthorized"


class Service:
    """What stands outside of Replan, with a credential that somebody has to mend."""

    def __init__(self) -> None:
        """It accepts nobody."""
        self.accepts = frozenset[str]()
        self.calls = list[str]()


SERVICE = Service()


@pytest.fixture(autouse=True)
def closed() -> None:
    """Each test begins with a revoked credential."""
    SERVICE.__init__()  # type: ignore[misc]


class Receipt(BaseModel):
    """What a payment returns."""

    id: int


@tool.keyed
async def pay(args: Word, key: Key) -> Receipt:
    """Pay, if the credential is good."""
    SERVICE.calls.append(key)
    if not {args.word, "all"} & SERVICE.accepts:
        raise NeedsPerson("The credential was revoked: make a new one.", code="unauthorized")
    return Receipt(id=7)


@tool.unkeyed
async def wire(args: Word) -> Receipt:
    """Fail in the middle, so that nobody knows whether it happened."""
    raise RuntimeError("in the middle")


@tool.read
async def closed_door(args: Word) -> Receipt:
    """Open a door, if everything is accepted."""
    if "all" not in SERVICE.accepts:
        raise NeedsPerson("The door is shut.", code="forbidden")
    return Receipt(id=1)


TOOLS: list[Tool[..., Any]] = [echo, pay, wire]
PAY: Proposals = [plan(step("before", "echo", word="a"), step("paid", "pay", "before", word="b")), DONE]


async def waiting(stage: Stage, count: int = 1, word: str = "") -> list[Handle]:
    """Tasks that wait for a person; with a word, they only pay."""
    by_hand = {"plan": (step("paid", "pay", word=word),), "plan_only": True} if word else {}
    task = Task(text="a task", on_escalation="wait", **by_hand)
    handles = [await stage.start(task) for _ in range(count)]
    for handle in handles:
        await until(handle, lambda now: bool(now.open_requests))
    return handles


async def asking(handle: Handle) -> HumanRequest:
    """The open request of a task."""
    return (await until(handle, lambda now: bool(now.open_requests))).open_requests[0]


async def listed(client: Client, queue: str, waiting: int, cause: str = CAUSE) -> Incident:
    """The incident of the queue, when the server lists so many tasks."""
    while True:
        for one in await find_incidents(client):
            if (one.cause, one.queue, one.waiting) == (cause, queue, waiting):
                return one
        await asyncio.sleep(0.2)


async def resolved(client: Client, queue: str, cause: str = CAUSE, note: str = "") -> Resolved:
    """Resolve an incident as the console does."""
    running = await resolve(client, cause, queue, by="ann", note=note)
    return [now async for now in follow_resolution(running)][-1]


async def test_one_answer_resumes_all_tasks_of_a_cause(client: Client, tmp_path: Path) -> None:
    """Two attempts of the step that failed, one of every other, and each history says who resolved it and why."""
    async with staged(client, tmp_path, TOOLS, PAY) as stage:
        handles = await waiting(stage, 3)
        seen = await listed(client, stage.queue, 3)
        SERVICE.accepts = frozenset({"all"})
        done = await resolved(client, stage.queue, note="new key")
        ended = await asyncio.gather(*map(outcome, handles))

    assert seen.reason == "The credential was revoked: make a new one."
    assert (done.fate, done.tasks, done.went_on, done.again, done.gone, done.left) == (Fate.WENT_ON, 3, 3, 0, 0, 0)
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
    assert {tuple((one.id, one.attempts) for one in task.steps) for task in ended} == {(("before", 1), ("paid", 2))}
    assert len(SERVICE.calls) == 6 and len({*SERVICE.calls}) == 3
    answers = [one.answer for task in ended for one in task.requests]
    assert [(one.choice, one.by, one.text) for one in answers if one] == [("retry", "ann", "new key")] * 3
    assert not [one for one in await find_incidents(client) if one.queue == stage.queue]


async def test_a_canary_that_fails_again_spends_nobody_else(client: Client, tmp_path: Path) -> None:
    """The others are not told, and a later resolution answers all of them."""
    async with staged(client, tmp_path, TOOLS, PAY) as stage:
        handles = await waiting(stage, 3)
        await listed(client, stage.queue, 3)
        failed = await resolved(client, stage.queue)
        calls = len(SERVICE.calls)
        SERVICE.accepts = frozenset({"all"})
        await listed(client, stage.queue, 3)
        done = await resolved(client, stage.queue)
        ended = await asyncio.gather(*map(outcome, handles))

    assert (failed.fate, failed.tasks, calls) == (Fate.FAILED_AGAIN, 1, 4)
    assert failed.canary == handles[0].id and "revoked" in failed.reason
    assert (done.fate, done.went_on) == (Fate.WENT_ON, 3)
    assert sorted(task.steps[1].attempts for task in ended) == [2, 2, 3]


async def test_tasks_whose_own_fault_stays_wait_again(client: Client, tmp_path: Path) -> None:
    """They are counted, and told no second time."""
    async with staged(client, tmp_path, TOOLS, PAY) as stage:
        first = await waiting(stage, word="good")
        others = await waiting(stage, 2, word="bad")
        await listed(client, stage.queue, 3)
        SERVICE.accepts = frozenset({"good"})
        done = await resolved(client, stage.queue)
        ended = await outcome(first[0])
        still = [await asking(one) for one in others]
        await asyncio.gather(*(one.cancel() for one in others))

    assert (done.canary, done.tasks, done.went_on, done.again) == (first[0].id, 3, 1, 2)
    assert (ended.status, len(SERVICE.calls)) == (TaskStatus.COMPLETED, 6)
    assert [one.id for one in still] == ["r2", "r2"] and len({one.after for one in still}) == 1


async def test_a_signal_is_taken_once_and_only_for_its_cause(client: Client, tmp_path: Path) -> None:
    """Repeated, about another cause, or unreadable: nothing happens."""
    async with staged(client, tmp_path, TOOLS, PAY) as stage:
        [handle] = await waiting(stage)
        other = Resolution(id="x1", cause="pay/forbidden")
        same = Resolution(id="x2", cause=CAUSE)
        for sent in ("what?", other, same, same):
            await handle.signal(RESOLVE, sent)
        progress = await until(handle, lambda now: len(now.requests) == 2)
        await handle.signal(RESOLVE, same)
        await handle.signal(RESOLVE, other)
        calls = len(SERVICE.calls)
        SERVICE.accepts = frozenset({"all"})
        await handle.signal(RESOLVE, Resolution(id="x3", cause=CAUSE))
        ended = await outcome(handle)

    assert calls == 2
    assert [one.after for one in progress.requests] == ["", "x2"]
    assert (ended.status, ended.steps[1].attempts) == (TaskStatus.COMPLETED, 3)


async def test_an_unknown_effect_is_no_incident(client: Client, tmp_path: Path) -> None:
    """Somebody has to look at each such call."""
    async with staged(client, tmp_path, TOOLS, [plan(step("sent", "wire", word="b")), DONE]) as stage:
        [handle] = await waiting(stage)
        request = await asking(handle)
        await handle.cancel()

    assert (request.code, request.cause) == ("bug", "")


async def test_two_causes_in_one_task_are_two_incidents(client: Client, tmp_path: Path) -> None:
    """Each is found, although only the oldest request is what `list` shows, and each is resolved by itself."""
    steps = [step("paid", "pay", word="b"), step("shut", "closed_door", word="b")]
    async with staged(client, tmp_path, [*TOOLS, closed_door], [plan(*steps), DONE]) as stage:
        [handle] = await waiting(stage)
        await until(handle, lambda now: len(now.open_requests) == 2)
        found = [await listed(client, stage.queue, 1, cause) for cause in (CAUSE, "closed_door/forbidden")]
        SERVICE.accepts = frozenset({"all"})
        second = await resolved(client, stage.queue, "closed_door/forbidden")
        still = await asking(handle)
        first = await resolved(client, stage.queue)
        ended = await outcome(handle)

    assert {one.reason for one in found} == {"The credential was revoked: make a new one.", "The door is shut."}
    assert [one.went_on for one in (first, second)] == [1, 1]
    assert still.cause == CAUSE and ended.status is TaskStatus.COMPLETED


async def test_an_unknown_cause_is_refused_with_what_there_is(client: Client, tmp_path: Path) -> None:
    """Nothing is started."""
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    with pytest.raises(Problem, match="No task waits because of 'pay/forbiden'"):
        await resolve(client, "pay/forbiden", queue, by="", note="")
    with pytest.raises(Problem, match="No task waits"):
        await resolve(client, "a' OR 'b' = 'b", queue, by="", note="")
