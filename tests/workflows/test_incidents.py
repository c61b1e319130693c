"""One cause for which many tasks wait: one answer resumes them all, after one of them has tried it."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from client.incidents import Incident, find_incidents, follow_resolution, resolve
from client.problem import Problem
from replan import Key, NeedsPerson, Tool, tool
from tests.activities.situations import NOW
from tests.harness import DONE, Proposals, Stage, outcome, plan, step
from tests.workflows.history import Handle, until
from tests.workflows.props import Stages, Word, echo
from workflows.account.progress import Progress
from workflows.account.records import Revision, StepRecord, StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.people.incidents import Fate, Resolve, Resolved, fate_of, waiting_query
from workflows.people.requests import Choice, HumanAnswer, HumanRequest, Resolution
from workflows.people.updates import RESOLVE
from workflows.plans.catalogue import Effect
from workflows.task_queues import control_queue

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
    return [now async for now in follow_resolution(client, running)][-1]


async def test_one_answer_resumes_all_tasks_of_a_cause(stages: Stages) -> None:
    """Two attempts of the step that failed, one of every other, and each history says who resolved it and why."""
    async with stages(TOOLS, PAY) as stage:
        handles = await waiting(stage, 3)
        seen = await listed(stages.client, stage.queue, 3)
        SERVICE.accepts = frozenset({"all"})
        done = await resolved(stages.client, stage.queue, note="new key")
        ended = await asyncio.gather(*map(outcome, handles))

    assert seen.reason == "The credential was revoked: make a new one."
    assert (done.fate, done.tasks, done.went_on, done.again, done.gone, done.left) == (Fate.WENT_ON, 3, 3, 0, 0, 0)
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
    assert {tuple((one.id, one.attempts) for one in task.steps) for task in ended} == {(("before", 1), ("paid", 2))}
    assert len(SERVICE.calls) == 6 and len({*SERVICE.calls}) == 3
    answers = [one.answer for task in ended for one in task.requests]
    assert [(one.choice, one.by, one.text) for one in answers if one] == [("retry", "ann", "new key")] * 3
    assert not [one for one in await find_incidents(stages.client) if one.queue == stage.queue]


@pytest.mark.full
async def test_a_canary_that_fails_again_spends_nobody_else(stages: Stages) -> None:
    """The others are not told, and a later resolution answers all of them."""
    async with stages(TOOLS, PAY) as stage:
        handles = await waiting(stage, 3)
        await listed(stages.client, stage.queue, 3)
        failed = await resolved(stages.client, stage.queue)
        calls = len(SERVICE.calls)
        SERVICE.accepts = frozenset({"all"})
        await listed(stages.client, stage.queue, 3)
        done = await resolved(stages.client, stage.queue)
        ended = await asyncio.gather(*map(outcome, handles))

    assert (failed.fate, failed.tasks, calls) == (Fate.FAILED_AGAIN, 1, 4)
    assert failed.canary in {one.id for one in handles} and "revoked" in failed.reason
    assert (done.fate, done.went_on) == (Fate.WENT_ON, 3)
    assert sorted(task.steps[1].attempts for task in ended) == [2, 2, 3]


@pytest.mark.full
async def test_tasks_whose_own_fault_stays_wait_again(stages: Stages) -> None:
    """They are counted, and told no second time."""
    async with stages(TOOLS, PAY) as stage:
        first = await waiting(stage, word="good")
        others = await waiting(stage, 2, word="bad")
        await listed(stages.client, stage.queue, 3)
        SERVICE.accepts = frozenset({"good"})
        done = await resolved(stages.client, stage.queue)
        ended = await outcome(first[0])
        still = [await asking(one) for one in others]
        await asyncio.gather(*(one.cancel() for one in others))

    assert (done.canary, done.tasks, done.went_on, done.again) == (first[0].id, 3, 1, 2)
    assert (ended.status, len(SERVICE.calls)) == (TaskStatus.COMPLETED, 6)
    assert [one.id for one in still] == ["r2", "r2"] and len({one.after for one in still}) == 1


async def test_a_signal_is_taken_once_and_only_for_its_cause(stages: Stages) -> None:
    """Repeated, about another cause, or unreadable: nothing happens."""
    async with stages(TOOLS, PAY) as stage:
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


async def test_an_unknown_effect_is_no_incident(stages: Stages) -> None:
    """Somebody has to look at each such call."""
    async with stages(TOOLS, [plan(step("sent", "wire", word="b")), DONE]) as stage:
        [handle] = await waiting(stage)
        request = await asking(handle)
        await handle.cancel()

    assert (request.code, request.cause) == ("bug", "")


@pytest.mark.full
async def test_two_causes_in_one_task_are_two_incidents(stages: Stages) -> None:
    """Each is found, although only the oldest request is what `list` shows, and each is resolved by itself."""
    steps = [step("paid", "pay", word="b"), step("shut", "closed_door", word="b")]
    async with stages([*TOOLS, closed_door], [plan(*steps), DONE]) as stage:
        [handle] = await waiting(stage)
        await until(handle, lambda now: len(now.open_requests) == 2)
        found = [await listed(stages.client, stage.queue, 1, cause) for cause in (CAUSE, "closed_door/forbidden")]
        SERVICE.accepts = frozenset({"all"})
        second = await resolved(stages.client, stage.queue, "closed_door/forbidden")
        still = await asking(handle)
        first = await resolved(stages.client, stage.queue)
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


class Mended(BaseModel):
    name: str = "mended"

    async def propose(self, situation: Any, kinds: Any) -> Any:
        """Plan, if the key is good."""
        if "planner" not in SERVICE.accepts:
            raise NeedsPerson("The key of the planner was revoked.", code="unauthorized")
        return DONE


@pytest.mark.full
async def test_a_planner_that_nobody_can_reach_is_one_incident_too(stages: Stages) -> None:
    """Its tasks have no step yet; the note is for people, so no planner is told it."""
    async with stages(TOOLS, Mended()) as stage:
        handles = await waiting(stage, 2)
        seen = await listed(stages.client, stage.queue, 2, "planner/unauthorized")
        SERVICE.accepts = frozenset({"planner"})
        done = await resolved(stages.client, stage.queue, "planner/unauthorized", note="new key")
        ended = await asyncio.gather(*map(outcome, handles))
        words = [(await handle.query("progress", result_type=Progress)).words for handle in handles]

    assert "The key of the planner was revoked." in seen.reason
    assert (done.went_on, words) == (2, [[], []])
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}


@pytest.mark.full
async def test_who_ends_meanwhile_is_counted_as_gone(stages: Stages) -> None:
    """The list of the server is behind: the canary that it names may have ended, and so may others."""
    async with stages(TOOLS, PAY) as stage:
        handles = await waiting(stage, 3)
        await listed(stages.client, stage.queue, 3)
        SERVICE.accepts = frozenset({"all"})
        running = await resolve(stages.client, CAUSE, stage.queue, by="ann", note="")
        await handles[0].execute_update("abort")
        same = await resolve(stages.client, CAUSE, stage.queue, by="bob", note="")
        done = [now async for now in follow_resolution(stages.client, running)][-1]
        ended = await asyncio.gather(*map(outcome, handles))

    assert same.id == running.id and same.result_run_id == running.result_run_id
    assert {done.canary} & {one.id for one in handles} and done.fate is Fate.WENT_ON
    assert done.left == done.again == 0
    assert {one.status for one in ended[1:]} == {TaskStatus.COMPLETED}


def test_what_became_of_a_canary_is_read_from_its_requests_and_steps() -> None:
    """Told and not yet back, through, back with the same fault, asked about something else, answered by others."""
    resolution = Resolution(id="x", cause=CAUSE)
    told = HumanAnswer(choice=Choice.RETRY, at=NOW, resolution="x")
    first = request("r1", "paid", answer=told)
    cases: dict[Fate, list[tuple[list[HumanRequest], StepStatus]]] = {
        Fate.PENDING: [([request("r1", "paid")], StepStatus.WAITING), ([first], StepStatus.RUNNING)],
        Fate.WENT_ON: [
            ([first], StepStatus.COMPLETED),
            ([first], StepStatus.FAILED),
            ([first, request("r2", "paid", cause="pay/forbidden")], StepStatus.WAITING),
        ],
        Fate.FAILED_AGAIN: [([first, request("r2", "paid", after="x")], StepStatus.WAITING)],
        Fate.GONE: [
            ([], StepStatus.COMPLETED),
            ([request("r1", "paid", answer=told.model_copy(update={"resolution": ""}))], StepStatus.RUNNING),
        ],
    }
    for fate, states in cases.items():
        for requests, status in states:
            assert fate_of(progress(requests, status), resolution).fate is fate, (fate, requests)


def test_a_planner_that_makes_a_plan_has_gone_on() -> None:
    """It has no step whose status would tell."""
    resolution = Resolution(id="x", cause="planner/unauthorized")
    told = HumanAnswer(choice=Choice.RETRY, at=NOW, resolution="x")
    asked_before = request("r1", None, cause="planner/unauthorized", answer=told)
    planned = progress([asked_before], StepStatus.RUNNING)
    planned.revisions.append(Revision(number=1))

    assert fate_of(progress([asked_before], StepStatus.RUNNING), resolution).fate is Fate.PENDING
    assert fate_of(planned, resolution).fate is Fate.WENT_ON


def request(id: str, step: str | None, *, cause: str = CAUSE, **more: Any) -> HumanRequest:
    """A request about a fault."""
    fields: dict[str, Any] = {"kind": "fault", "code": cause.partition("/")[2], "reason": "No.", "choices": ("retry",)}
    return HumanRequest(id=id, step=step, cause=cause, since=NOW, until=NOW, **fields, **more)


def progress(requests: list[HumanRequest], status: StepStatus) -> Progress:
    """A task with one step that began."""
    record = StepRecord(step=step("paid", "pay"), revision=1, effect=Effect.KEYED, kind="pay", status=status)
    return Progress(task=Task(text="a task"), task_id="a", started_at=NOW, records=[record], requests=requests)


async def test_a_resolution_that_nobody_sent_right_says_why(stages: Stages) -> None:
    """Any program may start the workflow."""
    async with stages(TOOLS, PAY) as stage:
        running = await stages.client.start_workflow(
            "ResolveWorkflow", {"cause": 7}, id=f"bad-{uuid.uuid4()}", task_queue=f"{stage.queue}-control"
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await running.result()

    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.message.startswith("The resolution cannot be read: 'cause'")


@pytest.mark.parametrize("given", ["a' OR WorkflowType != 'b", 'a"', "a\\", "a\0", "a\n"], ids=ascii)
def test_nothing_leaves_the_quotes_of_its_query(given: str) -> None:
    """The query says to whom the server's batch operation sends the answer."""
    for cause, queue in ((given, "queue"), ("pay/unauthorized", given)):
        with pytest.raises(ValueError, match="cannot stand in a query"):
            waiting_query(cause, queue)


async def test_a_cause_that_leaves_its_quotes_ends_the_resolution(stages: Stages) -> None:
    """Whoever started it: nothing is asked of the server, and no other workflow is told anything."""
    async with stages([echo], [DONE]) as stage:
        told = Resolve(cause="a' OR WorkflowType != 'b", queue=stage.queue)
        queue = control_queue(stage.queue)
        handle = await stages.client.start_workflow(
            "ResolveWorkflow", told, id=f"raw-{uuid.uuid4().hex}", task_queue=queue
        )
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 20)
