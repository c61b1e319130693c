"""The rounds: every side does the same work in turn, so that noise hits all alike."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from benchmarks import history
from benchmarks.arm import Arm, Replan
from benchmarks.meter import watched
from benchmarks.work import Sizes, Work

Samples = dict[str, list[float]]
"""What was measured by name, one value a round."""

WORKS = ("sequential", "parallel", "retry", "sequential", "throughput", "sequential", "parallel")
"""A round; what varies most from one time to the next is done more often."""


async def measure(
    arms: Sequence[Arm], sizes: Sizes, rounds: int, progress: Callable[[str], None]
) -> dict[str, Samples]:
    """Run all rounds, after one that does not count; `progress` is called after each piece with what comes next.

    Returns the samples of each arm by its name.
    """
    samples: dict[str, Samples] = {arm.name: defaultdict(list) for arm in arms}
    for arm in arms:  # the first tasks of a process pay for caches and connections
        await _throughput(arm, sizes, defaultdict(list))
    async with watched([meter for arm in arms for meter in (arm.worker, arm.server) if meter]):
        for number in range(1, rounds + 1):
            for name in WORKS:
                for arm in arms:
                    progress(f"round {number} of {rounds}: {name}, {arm.name}")
                    await _PIECES[name](arm, sizes, samples[arm.name])
    for arm in arms:
        samples[arm.name]["worker_peak_mb"] = [arm.worker.peak]
        samples[arm.name]["server_peak_mb"] = [arm.server.peak] if arm.server else []
    return samples


async def _sequential(arm: Arm, sizes: Sizes, into: Samples) -> None:
    """What one more step costs; of a pure kind, too, where it is ours."""
    short, long = await _used(arm, sizes.short), await _used(arm, sizes.long)
    more = sizes.long - sizes.short
    for name, before, after in zip(_PER_STEP, short, long, strict=True):
        if before is not None and after is not None:
            into[name].append((after - before) / more)
    if isinstance(arm, Replan):
        pure = [await arm.run(Work.of(steps, kind="calculate")) for steps in (sizes.short, sizes.long)]
        into["calculate_ms"].append((pure[1].seconds - pure[0].seconds) * 1000 / more)


_PER_STEP = ("step_ms", "events", "bytes", "worker_cpu_ms", "server_cpu_ms")


async def _used(arm: Arm, steps: int) -> tuple[float, float, float, float, float | None]:
    """What a sequential task of so many steps took, in the order of `_PER_STEP`."""
    worker, server = arm.worker.cpu, arm.server.cpu if arm.server else 0.0
    run = await arm.run(Work.of(steps))
    worker_used = (arm.worker.cpu - worker) * 1000
    server_used = (arm.server.cpu - server) * 1000 if arm.server else None
    return run.seconds * 1000, *await run.size(), worker_used, server_used


async def _throughput(arm: Arm, sizes: Sizes, into: Samples) -> None:
    began = time.perf_counter()
    await asyncio.gather(*(arm.run(Work.of(sizes.task_steps)) for _ in range(sizes.tasks)))
    into["steps_per_s"].append(sizes.tasks * sizes.task_steps / (time.perf_counter() - began))


async def _parallel(arm: Arm, sizes: Sizes, into: Samples) -> None:
    run = await arm.run(Work.of(sizes.parallel, is_parallel=True))
    into["parallel_ms"].append(history.span(await run.events(), "echo") * 1000)
    into["parallel_task_ms"].append(run.seconds * 1000)


async def _retry(arm: Arm, sizes: Sizes, into: Samples) -> None:
    run = await arm.run(Work.of(1, kind="stumble"))
    events = await run.events()
    into["retry_added_ms"].append((history.span(events, "stumble") - run.backoff) * 1000)
    into["backoff_ms"].append(run.backoff * 1000)
    single = await arm.run(Work.of(1))
    into["first_step_ms"].append(history.until_first_step(await single.events(), "echo") * 1000)
    into["task_ms"].append(single.seconds * 1000)


_PIECES = {"sequential": _sequential, "throughput": _throughput, "parallel": _parallel, "retry": _retry}
