"""Numbers and times that no task should have, in every field that another program can send: nothing wedges."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue

from replan import Key, NeedsPerson, Refused, Tool, tool
from tests import malformed
from tests.harness import DONE, plan, step
from tests.workflows.props import Said, Stages, Word, echo, played
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, Observation, StepRecord, StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Applied, Code, Fault
from workflows.limits.budget import TaskBudget
from workflows.people.requests import Choice, HumanAnswer, HumanRequest, RequestKind
from workflows.plans.catalogue import Effect

NUMBERS = (0, -1, 2**31, 2**63, -(2**63), 10**30, -(10**30), 1e12, 1e300, -1e300, 5e-324, float("inf"), float("nan"))
TIMES = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00")
NOW = datetime.now(UTC)
EXAMPLES = settings().max_examples
"""Those of the tier. An example is a worker with many tasks, so the tests here have a part of them."""
Path_ = tuple[str | int, ...]
Case = tuple[str, Path_, Any]
"""Which input, the path to a value in it, and what stands there instead."""


stuck = played("stuck", NeedsPerson("The key is missing.", code="unauthorized"), declare=tool.idempotent)


seek = played("seek", Refused("There is none.", code="not_found"))


take_back = played("take_back", None, declare=tool.idempotent)


@tool.keyed(undo=take_back, reconcile=seek, settle=0.1)
async def put(args: Word, key: Key) -> Said:
    """Put something somewhere."""
    return Said(said=args.word)


TOOLS: list[Tool[..., Any]] = [echo, stuck, seek, take_back, put]


def a_task() -> dict[str, Any]:
    """A task that asks a person, with every number that a task may have."""
    limits = {"tool_calls": 5, "replans": 2, "fruitless": 2, "tokens": 1000, "usd": 1.5, "deadline": 30_000_000}
    given = {"text": "a task", "on_escalation": "wait", "answer_within": 60, "limits": limits}
    plan = [{"id": "s", "kind": "stuck", "args": {"word": "x"}}]
    return Task.model_validate({**given, "plan": plan}).model_dump(mode="json") | {"answer_within": 60.0}


def a_progress() -> dict[str, Any]:
    """The state of a task that has a step of each kind of state, faults, requests and an observation."""
    fault = Fault.of(Code.TIMEOUT, "Late.", applied=Applied.UNKNOWN, source="put", retry_after=1.0, waited=1.0)
    note = {"step_id": "b", "revision": 1, "decision": "escalate", "at": NOW}
    statuses = {"a": StepStatus.COMPLETED, "b": StepStatus.FAILED, "c": StepStatus.PENDING}
    records = [
        StepRecord(
            step=step(id, "stuck" if id == "c" else "put", word="x"),
            revision=1,
            effect=Effect.KEYED,
            kind="stuck" if id == "c" else "put",
            status=status,
            args={"word": "x"},
            result={"said": "x"},
            started=None if id == "c" else NOW,
            ended=None if id == "c" else NOW,
        )
        for id, status in statuses.items()
    ]
    request = HumanRequest(
        id="r1", kind=RequestKind.FAULT, code="x", reason="x", since=NOW, until=NOW, choices=(Choice.RETRY,)
    )
    answered = request.model_copy(update={"answer": HumanAnswer(choice=Choice.RETRY, at=NOW)})
    look = Observation(step_id="b", kind="echo", args={}, value=1, at=NOW)
    progress = Progress(
        task=Task.model_validate(a_task()),
        task_id="t",
        started_at=NOW,
        origin="r",
        records=records,
        faults=[FaultRecord.model_validate({**fault.model_dump(), **note})],
        requests=[answered],
        budget=TaskBudget(limits=Task.model_validate(a_task()).limits),
        status=TaskStatus.RUNNING,
        observations=[look],
    )
    told: dict[str, Any] = json.loads(progress.model_dump_json())
    told["budget"] |= {"retries": {"stuck": 1}, "promised": {"stuck": 0}}
    told["task"]["answer_within"] = 60.0
    return told


def leaves(value: Any, *path: str | int) -> Iterator[Path_]:
    """The paths to all values that are no lists and no objects."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from leaves(item, *path, name)
    else:
        yield path


def changed(value: Any, path: Path_, by: Any) -> Any:
    """A copy with another value at `path`."""
    copy = json.loads(json.dumps(value))
    at = copy
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = by
    return copy


INPUTS: Mapping[str, tuple[str, Any]] = {
    "task": ("AgentWorkflow", a_task()),
    "progress": ("AgentWorkflow", a_progress()),
    "rollback": ("UndoWorkflow", {"progress": a_progress()}),
}


def odd_values(value: Any) -> Sequence[Any]:
    """What may stand in the place of a value: numbers for a number, times for a time, both for what is not set."""
    is_time = isinstance(value, str) and value[:3] == "202" and "T" in value
    if isinstance(value, bool) or not (value is None or is_time or isinstance(value, int | float)):
        return ()
    return TIMES if is_time else (*NUMBERS, TIMES[0]) if value is None else NUMBERS


def at(value: Any, path: Path_) -> Any:
    """The value at a path."""
    for name in path:
        value = value[name]
    return value


CASES = [
    (name, path, odd)
    for name, (_, base) in INPUTS.items()
    for path in leaves(base)
    for odd in odd_values(at(base, path))
]


async def fate(client: Client, queue: str, case: Case) -> str:
    """What is wrong with a workflow that began with an odd value; empty if it ends, or asks and can be stopped."""
    name, path, odd = case
    type, base = INPUTS[name]
    given = [malformed.as_json(changed(base, path, odd))]
    return await _end_of(client.get_workflow_handle(await malformed.start(client, type, given, queue)), case)


async def _end_of(handle: WorkflowHandle[Any, Any], case: Case) -> str:
    async with asyncio.timeout(120):
        while True:
            seen, history = await handle.describe(), await handle.fetch_history()
            if failed := [message for event in history.events if (message := _failed(event))]:
                await handle.terminate()
                return f"{case}: {failed[0]}"
            if seen.status is not WorkflowExecutionStatus.RUNNING:
                return "" if seen.status is not WorkflowExecutionStatus.TERMINATED else f"{case}: terminated"
            if _waits(history.events):
                await handle.cancel()
            await asyncio.sleep(0.3)


UPDATES: Mapping[str, Any] = {
    "extend": {"tool_calls": 1, "replans": 1, "tokens": 1, "usd": 1.0, "deadline": 1, "request": ""},
    "provide": {"result": {"said": 1, "more": [1]}},
    "edit": {"args": {"word": 1}},
    "retry": {"request": "r1", "by": 1},
    "replan": {"hint": 1},
    "skip": {"request": 1},
    "abort": {"undo": 1, "reason": "x"},
    "reply": {"text": 1},
}
SIGNALS: Mapping[str, Any] = {
    "know_earlier_effects": [{**a_progress()["records"][0], "step": {"id": "z", "kind": "put", "args": {"word": "x"}}}],
    "confirm_undo": {"a": 1},
    "resolve": {"id": "i", "cause": "stuck/unauthorized", "note": 1},
    "undo_when_cancelled": {"any": 1},
}
MESSAGES = [
    (name, path, odd)
    for name, base in {**UPDATES, **SIGNALS}.items()
    for path in leaves(base)
    for odd in odd_values(at(base, path))
]


async def fate_of_told(client: Client, queue: str, case: Case) -> str:
    """What is wrong with a task that waits for a person, and is told an odd value; empty as for `fate`."""
    name, path, odd = case
    handle = client.get_workflow_handle(
        await malformed.start(client, "AgentWorkflow", [malformed.as_json(a_task())], queue)
    )
    message = RawValue(malformed.as_json(changed({**UPDATES, **SIGNALS}[name], path, odd)))
    async with asyncio.timeout(60):
        while not _waits((await handle.fetch_history()).events):
            await asyncio.sleep(0.1)
        if name in SIGNALS:
            await handle.signal(name, message)
        else:
            with suppress(WorkflowUpdateFailedError):  # it is refused
                await handle.execute_update(name, message)
    return await _end_of(handle, case)


def _failed(event: Any) -> str:
    # "UnhandledCommand" says that an event came while the workflow ended: it is repeated, and ends then.
    message = str(event.workflow_task_failed_event_attributes.failure.message)
    is_failed = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    return message if is_failed and message != "UnhandledCommand" else ""


def _waits(events: Sequence[Any]) -> bool:
    """Whether the workflow asks a person, or waits for the end of a call."""
    names = [json.loads(event.user_metadata.summary.data or b'""') for event in events]
    return any(name.startswith(("waiting for a person", "b waits")) for name in names)


@pytest.mark.timeout(600)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=EXAMPLES // 25)
@given(st.lists(st.sampled_from(CASES), min_size=20, max_size=20))
async def test_no_number_wedges_a_workflow(stages: Stages, cases: Sequence[Case]) -> None:
    """However it was started: it is refused, or runs, and can be cancelled; no workflow task fails."""
    async with stages(TOOLS, [plan(step("z", "stuck", word="x")), DONE]) as stage:
        found = await asyncio.gather(*(fate(stages.client, stage.queue, case) for case in cases))

    assert [why for why in found if why] == []


@pytest.mark.timeout(600)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=EXAMPLES // 50)
@given(st.lists(st.sampled_from(MESSAGES), min_size=15, max_size=15))
async def test_no_number_in_an_answer_or_a_signal_wedges_a_task(stages: Stages, cases: Sequence[Case]) -> None:
    """Whatever a program says to a task that waits: it is refused, dropped or taken, and the task can be cancelled."""
    async with stages(TOOLS, [plan(step("z", "stuck", word="x")), DONE]) as stage:
        found = await asyncio.gather(*(fate_of_told(stages.client, stage.queue, case) for case in cases))

    assert [why for why in found if why] == []
