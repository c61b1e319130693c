"""The report: what a known workload did, added up from the server's list and its histories."""

import asyncio
import dataclasses
import tracemalloc
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from client.client import Client, TaskHandle
from client.history.fetch import fetch_runs
from client.problem import Problem
from client.report.report import Period, Report, make_report
from client.report.row import Recovery
from client.tasks import TASKS
from runtime.client import as_replan
from tests import counting
from tests.console import server_lists
from tests.harness import Stage, staged
from tests.own_worker import Reversing
from tests.reporting import TOOLS, ByText, text
from workflows.account.task import Task
from workflows.limits.budget import Limits

WORKLOAD = [
    *[text([("get_price", []), ("charge", [])])] * 4,
    text([("get_price", ["busy", "busy"])]),
    text([("charge", ["unreachable"]), ("get_price", [])]),
    text([("get_price", ["unreachable"] * 4)]),
    text([("list_price", ["busy"] * 4)]),
    text([("charge", ["conflict"])], [("charge", [])]),
    text([("charge", ["conflict"])], [("charge", ["not_found"])], [("get_price", [])]),
    text([("charge", ["unauthorized"])]),
]
"""The texts of tasks that all end, ten of them completed."""
WAITING = text([("charge", ["needs_person"])])


async def run_all(stage: Stage, texts: list[str]) -> None:
    limits = Limits(fruitless=None)
    await asyncio.gather(*(stage.run(Task(text=one, limits=limits, on_escalation="end")) for one in texts))


async def listed(client: TemporalClient, stage: Stage, closed: int, running: int = 0) -> str:
    """The list filter for the tasks of a stage, as soon as the server lists so many: that takes a moment."""
    query = f"TaskQueue = '{stage.queue}'"
    for count, which in ((closed, "!="), (running, "=")):
        await server_lists.listed(client, f"{TASKS} AND {query} AND ExecutionStatus {which} 'Running'", count)
    return query


@pytest.fixture(scope="module")
async def query(client: TemporalClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The list filter that finds the tasks of WORKLOAD, and one that waits for a person."""
    folder = tmp_path_factory.mktemp("report")
    async with staged(client, folder, TOOLS, ByText(), jitter=lambda: 0.0) as stage:
        handle = await stage.start(Task(text=WAITING, on_escalation="wait"))
        await run_all(stage, WORKLOAD)
        async with asyncio.timeout(20):
            while not await TaskHandle(client, handle.id).requests():
                await asyncio.sleep(0.05)
        yield await listed(client, stage, len(WORKLOAD), 1)
        await handle.terminate()


@pytest.fixture(scope="module")
async def report(client: TemporalClient, query: str) -> Report:
    return await Client(client).report(query=query, cached=False)


async def test_it_adds_up_what_the_tasks_did(client: TemporalClient, query: str, report: Report) -> None:
    """How they ended, a running one marked; what followed each fault; what retries were good for; new plans by code.
    Calls and steps are spread over the tasks that ended; what waits has its age. The sums are those of the histories,
    each counter with each of its labels."""
    exits = {(one.status, one.code): one.tasks for one in report.exits}
    followed = {one.code: (one.quadrant, one.faults, one.followed) for one in report.faults}
    retries = {(one.tool, one.code): (one.retries, one.helped, one.wasted) for one in report.retries}
    [waits] = report.waiting
    tasks = [run async for run in client.list_workflows(f"{TASKS} AND {query}")]
    sums = counting.summed([await fetch_runs(as_replan(client), run.id, run.run_id) for run in tasks])

    assert exits == {("completed", ""): 10, ("escalated", "unauthorized"): 1, ("waiting", ""): 1}
    assert (report.tasks, report.running, report.in_part, report.more) == (12, 1, 0, 0)
    assert sum(sum(one.tasks.values()) for one in report.timeline) == 11
    assert followed == {
        "busy": ("transient_semantic", 6, {Recovery.RETRY: 2, Recovery.FALLBACK: 4}),
        "unreachable": ("transient_infrastructural", 5, {Recovery.RETRY: 1, Recovery.REPLAN: 4}),
        "conflict": ("persistent_semantic", 2, {Recovery.REPLAN: 2}),
        "not_found": ("persistent_semantic", 1, {Recovery.REPLAN: 1}),
        "unauthorized": ("persistent_infrastructural", 1, {Recovery.NONE: 1}),
        "needs_person": ("persistent_infrastructural", 1, {Recovery.OPEN: 1}),
    }
    assert retries == {
        ("get_price", "busy"): (2, 2, 0),
        ("get_price", "unreachable"): (3, 0, 0),
        ("list_price", "busy"): (3, 0, 0),
        ("charge", "unreachable"): (1, 1, 0),
    }
    plans = {one.code: one.revisions for one in report.replans}  # with the number of the plan that failed
    assert plans == {"conflict": {"1": 2}, "not_found": {"2": 1}, "unreachable": {"1": 1}}
    assert report.time_to_replan is not None and report.time_to_replan.number == 3  # once, the planner answered at once
    assert report.wasted == 0 and report.tool_calls is not None and report.steps is not None
    assert (report.tool_calls.number, report.tool_calls.median, report.tool_calls.most) == (11, 2, 5)
    assert (report.steps.least, report.steps.most, sum(report.calls_per_task.values())) == (1, 3, 11)
    assert (waits.kind, waits.requests) == ("needs_person", 1)
    assert waits.example.startswith("test-") and waits.oldest < report.until
    assert {(one.name, frozenset(one.labels.items())): one.value for one in report.counters} == sums
    assert len(sums) > 10


async def test_ended_tasks_are_read_once(client: TemporalClient, query: str, report: Report, tmp_path: Path) -> None:
    """The second report takes them from the cache, and says the same; without a place for it, it is done without."""
    file = tmp_path / "cache" / "report.sqlite"
    first, second = [await make_report(as_replan(client), Period(None, query), cache=file) for _ in range(2)]
    (tmp_path / "a-file").write_text("")
    other = await make_report(as_replan(client), Period(None, query), cache=tmp_path / "a-file" / "report.sqlite")
    differs = {"until": None, "since": None, "cached": 0}

    assert (first.cached, second.cached) == (0, len(WORKLOAD))
    assert first.model_copy(update=differs) == second.model_copy(update=differs)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (other.tasks, other.cached) == (12, 0)


@pytest.mark.parametrize(
    "content",
    [b"no database", *(pytest.param(one, marks=pytest.mark.full) for one in (b"SQLite format 3\0" + b"x" * 5000, b""))],
)
async def test_a_broken_cache_is_replaced(client: TemporalClient, query: str, tmp_path: Path, content: bytes) -> None:
    """A full disk or a killed process must not cost a report."""
    file = tmp_path / "report.sqlite"
    file.write_bytes(content)
    first, second = [await make_report(as_replan(client), Period(None, query), cache=file) for _ in range(2)]

    assert (first.tasks, second.cached) == (12, len(WORKLOAD))


async def test_a_limit_takes_the_newest_and_says_so(client: TemporalClient, query: str) -> None:
    """With how many were left out; progress is told from the first to the last. An empty period is an empty report."""
    steps = list[tuple[int, int]]()
    made = await Client(client).report(query=query, limit=3, cached=False, progress=lambda *now: steps.append(now))
    empty = await Client(client).report(query=f"TaskQueue = '{uuid.uuid4()}'")
    with pytest.raises(Problem) as wrong:
        await Client(client).report(query="Nonsense = 1")

    assert (made.tasks, made.more, made.running) == (3, 9, 1)
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert (empty.tasks, empty.exits, empty.tool_calls, empty.timeline) == (0, (), None, ())
    assert wrong.value.code == "bad_query"


async def test_a_task_that_was_reset_is_counted_once(client: TemporalClient, tmp_path: Path) -> None:
    """The run that a reset replaced is no task of its own."""
    async with staged(client, tmp_path, TOOLS, ByText()) as stage:
        handle = await stage.start(Task(text=text([("get_price", [])], [("get_price", [])])))
        await handle.result()
        task = TaskHandle(client, handle.id)
        await task.reset("p2s0")
        await task.result()
        query = await listed(client, stage, 2)
        made = await Client(client).report(query=query, cached=False)

    assert made.tasks == 1
    assert made.tool_calls is not None and made.tool_calls.most == 2


async def test_what_cannot_be_read_is_counted_and_named(client: TemporalClient, tmp_path: Path) -> None:
    """The payloads of the task have a codec that this client lacks; another client has it, so nothing is cached."""
    config = client.config()
    config["data_converter"] = dataclasses.replace(config["data_converter"], payload_codec=Reversing())
    theirs = TemporalClient(**config)
    async with staged(theirs, tmp_path, TOOLS, ByText()) as stage:
        await stage.run(Task(text=text([("get_price", ["busy"])])))
        query = await listed(client, stage, 1)
        blind = await make_report(as_replan(client), Period(None, query), cache=tmp_path / "cache")
        seeing = await make_report(as_replan(theirs), Period(None, query), cache=tmp_path / "cache")

    assert ([one.why for one in blind.unread], blind.in_part) == (["is encrypted"], 1)
    assert ([one.tool for one in blind.tools], [one.tool for one in seeing.tools]) == ([], ["get_price"])
    assert (blind.tasks, seeing.in_part, seeing.cached) == (1, 0, 0)


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_memory_does_not_grow_with_histories(client: TemporalClient, tmp_path: Path) -> None:
    """Of each task a row is kept while it is added up: 150 tasks more take less than 4 kB each."""
    async with staged(client, tmp_path, TOOLS, ByText(), jitter=lambda: 0.0) as stage:
        for _ in range(7):
            await run_all(stage, [text([("get_price", []), ("charge", [])])] * 30)
        query = await listed(client, stage, 210)
    peaks = list[int]()
    for limit in (10, 60, 210):  # the first reading imports and caches what any report needs
        tracemalloc.start()
        await make_report(as_replan(client), Period(None, query), limit=limit, cache=None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[2] - peaks[1] < 150 * 4096, peaks
