"""The sides that are compared: each does the same work in its own way."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle

from benchmarks import backoff
from benchmarks.bare import BareWorkflow
from benchmarks.meter import Meter
from benchmarks.work import FAILURES, Words, Work
from workflows.agent import AgentWorkflow
from workflows.budget import Limits
from workflows.outcome import Outcome
from workflows.plan import Step
from workflows.task import Task, TaskStatus

Handle = WorkflowHandle[Any, Any]


@dataclass(frozen=True)
class Run:
    """One task that was done."""

    seconds: float
    """From before the call that starts it to its result in our hands."""
    handle: Handle
    backoff: float
    """Seconds of it that were waited on purpose, before retries."""

    async def events(self) -> Sequence[HistoryEvent]:
        """The history."""
        return (await self.handle.fetch_history()).events

    async def size(self) -> tuple[int, int]:
        """Events and bytes of the history."""
        info = (await self.handle.describe()).raw_description.workflow_execution_info
        return info.history_length, info.history_size_bytes


@dataclass(frozen=True)
class Arm(ABC):
    """One side: a client and a worker process of its own, on a server."""

    name: str
    """The key in the JSON document."""
    client: Client
    queue: str
    worker: Meter
    server: Meter | None
    """None for a server that somebody else started."""

    async def run(self, work: Work) -> Run:
        """Do the work once."""
        began = time.perf_counter()
        handle = await self._start(work, f"{work.kind}-{len(work.items)}-{uuid.uuid4().hex[:12]}")
        result = await handle.result()
        return Run(time.perf_counter() - began, handle, self._waited(work, handle, result))

    @abstractmethod
    async def _start(self, work: Work, id: str) -> Handle: ...

    @abstractmethod
    def _waited(self, work: Work, handle: Handle, result: Any) -> float: ...


class Bare(Arm):
    """The Temporal SDK alone."""

    async def _start(self, work: Work, id: str) -> Handle:
        return await self.client.start_workflow(BareWorkflow.run, work, id=id, task_queue=self.queue)

    def _waited(self, work: Work, handle: Handle, result: list[Words]) -> float:
        return backoff.total(handle.id, range(1, FAILURES + 1)) if work.kind == "stumble" else 0.0


class Replan(Arm):
    """Replan, given the plan by hand: planning is the same for every task and part of its fixed cost."""

    async def _start(self, work: Work, id: str) -> Handle:
        plan, limits = _plan(work), Limits(tool_calls=10 * len(work.items))
        task = Task(text="a benchmark", plan=plan, plan_only=True, limits=limits)
        return await self.client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=self.queue)

    def _waited(self, work: Work, handle: Handle, result: Outcome) -> float:
        if result.status is not TaskStatus.COMPLETED:
            raise RuntimeError(f"The task {handle.id!r} ended as {result.status}: {result.reason}")
        return sum(fault.waited or 0.0 for fault in result.faults)


def _plan(work: Work) -> tuple[Step, ...]:
    return tuple(
        Step(
            id=f"s{number}",
            kind=work.kind,
            args=_args(work, item),
            needs=() if work.is_parallel or number == 1 else (f"s{number - 1}",),
        )
        for number, item in enumerate(work.items, 1)
    )


def _args(work: Work, item: Words) -> dict[str, JsonValue]:
    return {"expression": "18% of 2450"} if work.kind == "calculate" else item.model_dump()
