"""The rounds of `benchmarks.steps`: every arm does the same work in turn, so that noise hits all alike."""

import asyncio
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle

from benchmarks.bare import BareWorkflow
from benchmarks.bare_worker import total_backoff
from benchmarks.processes import Meter, sampled
from benchmarks.work import FAILURES, Words, Work
from client.history.decoder import calls_in
from client.history.records import CallEnd
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.plans.proposal import Step

Handle = WorkflowHandle[Any, Any]
Samples = dict[str, list[float]]
"""By what was measured, one value a round."""

WORKS = ("sequential", "parallel", "retry", "sequential", "throughput", "sequential", "parallel", "breaker")
"""The works of a round; those that vary most are done more often."""


class Sizes(BaseModel):
    """How much is done in one round."""

    model_config = ConfigDict(frozen=True)

    short: int = 20
    long: int = 40
    """Sequential steps; the difference of the two is what each additional step costs."""
    tasks: int = 100
    task_steps: int = 5
    """Tasks that run at the same time, and the sequential steps of each."""
    pairs: int = 4
    """How often the sequential steps of a `long` task are done with a circuit breaker, and without one in turn."""
    parallel: int = 20
    """Steps of the task whose steps run at the same time; more than `execution.MAX_PARALLEL` would wait."""


@dataclass(frozen=True)
class Run:
    """One task that was done."""

    seconds: float
    """From before the call that starts it until we have its result."""
    backoff: float
    """How many of them were waited on purpose, before retries."""
    handle: Handle

    async def events(self) -> Sequence[HistoryEvent]:
        """The history."""
        return (await self.handle.fetch_history()).events

    async def size(self) -> tuple[int, int]:
        """Events and bytes of the history."""
        info = (await self.handle.describe()).raw_description.workflow_execution_info
        return info.history_length, info.history_size_bytes


@dataclass(frozen=True)
class Arm(ABC):
    """One of the sides that are compared: a client and a worker process of its own, on a server."""

    name: str
    """The key in the JSON document."""
    client: Client
    queue: str
    worker: Meter
    server: Meter | None
    """None for a server that the benchmark did not start."""

    async def run(self, work: Work) -> Run:
        """Do the work once."""
        began = time.perf_counter()
        handle = await self._start(work, f"{work.kind}-{len(work.items)}-{uuid.uuid4().hex[:12]}")
        result = await handle.result()
        return Run(time.perf_counter() - began, self._backoff(work, handle, result), handle)

    @abstractmethod
    async def _start(self, work: Work, id: str) -> Handle: ...

    @abstractmethod
    def _backoff(self, work: Work, handle: Handle, result: Any) -> float: ...


class Bare(Arm):
    """The Temporal SDK alone."""

    async def _start(self, work: Work, id: str) -> Handle:
        return await self.client.start_workflow(BareWorkflow.run, work, id=id, task_queue=self.queue)

    def _backoff(self, work: Work, handle: Handle, result: list[Words]) -> float:
        return total_backoff(handle.id, FAILURES) if work.kind == "stumble" else 0.0


class Replan(Arm):
    """Replan with a plan that is given: planning is a fixed cost of every task."""

    async def _start(self, work: Work, id: str) -> Handle:
        plan, limits = _plan(work), Limits(tool_calls=10 * len(work.items))
        task = Task(text="a benchmark", plan=plan, plan_only=True, limits=limits)
        return await self.client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=self.queue)

    def _backoff(self, work: Work, handle: Handle, result: Outcome) -> float:
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


async def measure(
    arms: Sequence[Arm], sizes: Sizes, rounds: int, progress: Callable[[str], None]
) -> dict[str, Samples]:
    """Run all rounds; the samples of each arm by its name. `progress` is called before each work with its title."""
    samples: dict[str, Samples] = {arm.name: defaultdict(list) for arm in arms}
    for arm in arms:  # the first tasks of a process pay for caches and connections
        await _throughput(arm, sizes, defaultdict(list))
    async with sampled([meter for arm in arms for meter in (arm.worker, arm.server) if meter]):
        for number in range(1, rounds + 1):
            for name in WORKS:
                for arm in arms:
                    progress(f"round {number} of {rounds}: {name}, {arm.name}")
                    await _MEASURES[name](arm, sizes, samples[arm.name])
    for arm in arms:
        samples[arm.name]["worker_peak_mb"] = [arm.worker.peak]
        samples[arm.name]["server_peak_mb"] = [arm.server.peak] if arm.server else []
    return samples


async def _sequential(arm: Arm, sizes: Sizes, samples: Samples) -> None:
    """Measure one additional step; for Replan also one of a pure kind."""
    short, long = await _usage(arm, sizes.short), await _usage(arm, sizes.long)
    steps = sizes.long - sizes.short
    for name, before, after in zip(_PER_STEP, short, long, strict=True):
        if before is not None and after is not None:
            samples[name].append((after - before) / steps)
    if isinstance(arm, Replan):
        pure = [await arm.run(Work.of(count, kind="calculate")) for count in (sizes.short, sizes.long)]
        samples["calculate_ms"].append((pure[1].seconds - pure[0].seconds) * 1000 / steps)


_PER_STEP = ("step_ms", "events", "bytes", "worker_cpu_ms", "server_cpu_ms")


async def _usage(arm: Arm, steps: int) -> tuple[float, float, float, float, float | None]:
    """What a sequential task of so many steps took, in the order of `_PER_STEP`."""
    worker, server = arm.worker.cpu, arm.server.cpu if arm.server else 0.0
    run = await arm.run(Work.of(steps))
    worker_used = (arm.worker.cpu - worker) * 1000
    server_used = (arm.server.cpu - server) * 1000 if arm.server else None
    return run.seconds * 1000, *await run.size(), worker_used, server_used


async def _breaker(arm: Arm, sizes: Sizes, samples: Samples) -> None:
    """Measure what the circuit breaker of a tool that never fails adds to the CPU of a step, in pairs of tasks."""
    if not isinstance(arm, Replan):
        return
    for number in range(sizes.pairs):
        used = dict[str, float]()
        for kind in sorted(("echo", "echo_unguarded"), reverse=number % 2 == 1):
            before = arm.worker.cpu
            await arm.run(Work.of(sizes.long, kind=kind))
            used[kind] = arm.worker.cpu - before
        samples["breaker_cpu_ms"].append((used["echo"] - used["echo_unguarded"]) * 1000 / sizes.long)


async def _throughput(arm: Arm, sizes: Sizes, samples: Samples) -> None:
    began = time.perf_counter()
    await asyncio.gather(*(arm.run(Work.of(sizes.task_steps)) for _ in range(sizes.tasks)))
    samples["steps_per_s"].append(sizes.tasks * sizes.task_steps / (time.perf_counter() - began))


async def _parallel(arm: Arm, sizes: Sizes, samples: Samples) -> None:
    run = await arm.run(Work.of(sizes.parallel, is_parallel=True))
    samples["parallel_ms"].append(_span(await run.events(), "echo") * 1000)
    samples["parallel_task_ms"].append(run.seconds * 1000)


async def _retry(arm: Arm, sizes: Sizes, samples: Samples) -> None:
    run = await arm.run(Work.of(1, kind="stumble"))
    samples["retry_added_ms"].append((_span(await run.events(), "stumble") - run.backoff) * 1000)
    samples["backoff_ms"].append(run.backoff * 1000)
    single = await arm.run(Work.of(1))
    samples["first_step_ms"].append(_until_first_step(await single.events(), "echo") * 1000)
    samples["task_ms"].append(single.seconds * 1000)


_MEASURES = {
    "sequential": _sequential,
    "throughput": _throughput,
    "parallel": _parallel,
    "retry": _retry,
    "breaker": _breaker,
}


def _until_first_step(events: Sequence[HistoryEvent], kind: str) -> float:
    """Seconds from the start of a task to the start of its first step of this kind, by the server's clock."""
    started = next(call.started_at for call, *_ in calls_in(events) if call.kind == kind and call.started_at)
    return (started - events[0].event_time.ToDatetime(UTC)).total_seconds()


def _span(events: Sequence[HistoryEvent], kind: str) -> float:
    """Seconds from the scheduling of the first step of this kind to the completion of the last."""
    calls = {call.scheduled: call for call, *_ in calls_in(events) if call.kind == kind}
    ends = [call.ended_at for call in calls.values() if call.closed is CallEnd.COMPLETED and call.ended_at]
    return (max(ends) - min(call.at for call in calls.values())).total_seconds()
