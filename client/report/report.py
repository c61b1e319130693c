"""The report over many tasks: the tables of the dashboards, from Temporal's visibility and histories.

Made for the command `report`, over tasks that run or have ended. They are read a few at a time, each is reduced to a
row, and the rows are added up, so that memory does not grow with the length of histories. Rows of ended tasks are
cached.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio.client import Client

from client.filters import using_filter, within
from client.history.account import gathered
from client.history.fetch import fetch_runs
from client.history.records import History
from client.report.cache import Cache
from client.report.row import Labels, OpenRequest, Recovery, TaskRow, row_of
from client.tasks import TASK_TYPE, TASKS, existing
from runtime.process import version
from workflows.account import metrics
from workflows.account.metrics import Metric
from workflows.account.task import TaskStatus
from workflows.json_values import digest

AT_ONCE = 8
"""How many histories are read at once."""
K = TypeVar("K")

MAX_TASKS = 10_000
"""The default for the maximum number of tasks in a report."""
MAX_NAMED = 20
"""The maximum number of tasks that a report names because they could be read only in part."""
CLAIMED = "claimed"
"""Stands for how a person was known whose name nobody vouched for."""
DAY = timedelta(days=1)
SHORT = timedelta(days=2)
"""Up to this period, the timeline of a report counts by the hour, else by the day."""


class Spread(BaseModel, frozen=True):
    """How values are spread; the quantiles are values that occur (nearest rank)."""

    number: int
    least: float
    median: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """The spread of these values; None without values."""
        found = sorted(values)
        if not found:
            return None
        median, p99 = (found[math.ceil(part * len(found)) - 1] for part in (0.5, 0.99))
        return cls(number=len(found), least=found[0], median=median, p99=p99, most=found[-1])


class ExitCount(BaseModel, frozen=True):
    status: str
    code: str
    """The code of the Outcome, or the end of a task without an Outcome; empty for completed and open tasks."""
    tasks: int


class FaultCount(BaseModel, frozen=True):
    """The number of faults with one quadrant and code, and what followed them."""

    quadrant: str
    code: str
    faults: int
    followed: dict[str, int]
    """The number of faults for each Recovery, or for each other decision, that followed."""


class RetryCount(BaseModel, frozen=True):
    """The retries of one tool after one fault code."""

    tool: str
    code: str
    """The code of the fault before the retry; `unreported` if the attempt ended without a report."""
    retries: int
    helped: int
    wasted: int


class ReplanCount(BaseModel, frozen=True):
    code: str
    replans: int
    revisions: dict[str, int]
    """The number of replans, by the number of the plan that failed."""


class ToolCount(BaseModel, frozen=True):
    """What became of the calls of a tool."""

    tool: str
    calls: int
    retries: int
    most_retries: int
    """The most retries that one task used of its retry budget for the tool."""
    replayed: int
    reconciled: int
    unknown: dict[str, int]
    """The number of calls with an unknown outcome, by the verdict of the reconciliation."""
    not_made: int
    """Calls that were not made while the circuit breaker was open."""
    fallbacks: int


class WaitCount(BaseModel, frozen=True):
    """The open requests of one kind (see `OpenRequest.kind`)."""

    kind: str
    requests: int
    oldest: datetime
    example: str
    """The id of the task that waits longest."""


class PaidCount(BaseModel, frozen=True):
    purpose: str
    tokens: int
    usd: float


class MetricSum(BaseModel, frozen=True):
    name: str
    labels: dict[str, str]
    value: int


class Unread(BaseModel, frozen=True):
    """A task that could be read only in part."""

    task_id: str
    why: str


class Moment(BaseModel, frozen=True):
    """The tasks that ended within an hour or a day, by status."""

    at: datetime
    tasks: dict[str, int]


class Report(BaseModel, frozen=True):
    """What many tasks did: sums of their counts, and the spread of their values."""

    # Set when the report is asked for
    since: datetime | None
    """Tasks that ended before this time are left out; None if no task is left out."""
    until: datetime
    query: str | None

    # Set while the tasks are read
    tasks: int
    running: int
    """The number of tasks that have not ended; what they have done so far is counted."""
    more: int
    """The number of tasks that were left out because of the limit."""
    cached: int
    """The number of tasks that were found in the cache."""
    in_part: int
    """The number of tasks that could be read only in part, e.g. because a payload is in a store or encrypted."""
    unread: tuple[Unread, ...]
    """The first MAX_NAMED of the tasks that could be read only in part."""

    # Set when all tasks are read: how they ended, and what each took
    exits: tuple[ExitCount, ...]
    timeline: tuple[Moment, ...]
    tool_calls: Spread | None
    steps: Spread | None
    seconds: Spread | None
    """`tool_calls`, `steps` and `seconds` are per task that ended."""
    time_to_replan: Spread | None
    retry_delay: Spread | None
    calls_per_task: dict[int, int]
    """The number of ended tasks, by the number of their tool calls."""

    # Set when all tasks are read: what happened in them, added up
    faults: tuple[FaultCount, ...]
    retries: tuple[RetryCount, ...]
    wasted: int
    replans: tuple[ReplanCount, ...]
    tools: tuple[ToolCount, ...]
    requests: dict[str, int]
    """Requests to people, by kind."""
    answers: dict[str, int]
    known: dict[str, int]
    """The number of answers to requests by how a door knew the person (`token`, ...); `claimed` if none did."""
    escalations: dict[str, int]
    """The number of escalations to people, by the code of the fault or of the end."""
    waiting: tuple[WaitCount, ...]
    """The open requests, by kind (see `OpenRequest.kind`)."""
    paid: tuple[PaidCount, ...]
    budget_left: dict[str, Spread]
    """For each limit, the fraction (0 to 1) that was left when tasks ended."""
    counters: tuple[MetricSum, ...]
    """All sums, with the names and labels of the metrics of workers."""


class Totals:
    """Adds rows up."""

    def __init__(self) -> None:
        self.counters = Counter[tuple[str, Labels]]()
        self.values = defaultdict[str, list[tuple[Labels, float]]](list)
        self.recoveries = Counter[tuple[str, str, str]]()
        self.exits = Counter[tuple[str, str]]()
        self.known = Counter[str]()
        self.ended = list[tuple[datetime, str]]()
        self.waiting = list[OpenRequest]()
        self.unread = list[Unread]()
        self.tasks = self.in_part = 0

    def add(self, row: TaskRow) -> None:
        """Add the counts and values of one task."""
        self.tasks += 1
        for name, labels, number in row.counters:
            self.counters[name, labels] += number
        for name, labels, value in row.values:
            self.values[name].append((labels, value))
        for quadrant, code, recovery, number in row.recoveries:
            self.recoveries[quadrant, code, recovery] += number
        self.exits[row.status, row.code] += 1
        if row.ended_at:
            self.ended.append((row.ended_at, row.status))
        self.waiting += row.waiting
        for how, number in row.known:
            self.known[how or CLAIMED] += number
        if row.unreadable:
            self.in_part += 1
            if len(self.unread) < MAX_NAMED:
                self.unread.append(Unread(task_id=row.task_id, why=", ".join(row.unreadable)))

    def by(self, metric: Metric, label: str) -> Counter[str]:
        """The sums of a counter, by one of its labels."""
        index, found = metric.labels.index(label), Counter[str]()
        for (name, labels), number in self.counters.items():
            if name == metric.name:
                found[labels[index]] += number
        return found

    def of(self, metric: Metric) -> dict[Labels, int]:
        """The sums of a counter, by all of its labels."""
        return {labels: number for (name, labels), number in self.counters.items() if name == metric.name}

    def spread(self, metric: Metric) -> Spread | None:
        """The spread of all values of a histogram; None without values."""
        return Spread.of(value for _, value in self.values[metric.name])

    def spreads(self, metric: Metric) -> dict[str, Spread]:
        """The spread of a histogram for each value of its first label."""
        found = defaultdict[str, list[float]](list)
        for labels, value in self.values[metric.name]:
            found[labels[0]].append(value)
        return {label: spread for label, values in sorted(found.items()) if (spread := Spread.of(values))}

    def report(self, period: "Period", until: datetime, *, more: int = 0, cached: int = 0) -> Report:
        """The report over all rows that were added; `more` tasks were left out, `cached` tasks were in the cache."""
        unfinished = (TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.PAUSED)
        running = sum(number for (status, _), number in self.exits.items() if status in unfinished)
        return Report(
            since=period.since,
            until=until,
            query=period.query,
            tasks=self.tasks,
            running=running,
            more=more,
            cached=cached,
            in_part=self.in_part,
            unread=tuple(self.unread),
            exits=tuple(
                ExitCount(status=status, code=code, tasks=number) for (status, code), number in _most_first(self.exits)
            ),
            timeline=self._timeline(period, until),
            tool_calls=self.spread(metrics.TASK_TOOL_CALLS),
            steps=self.spread(metrics.TASK_STEPS),
            seconds=self.spread(metrics.TASK_DURATION),
            time_to_replan=self.spread(metrics.TIME_TO_REPLAN),
            retry_delay=self.spread(metrics.RETRY_DELAY),
            calls_per_task=dict(sorted(Counter(int(n) for _, n in self.values[metrics.TASK_TOOL_CALLS.name]).items())),
            faults=tuple(self._faults()),
            retries=tuple(self._retries()),
            wasted=sum(self.of(metrics.WASTED_ATTEMPTS).values()),
            replans=tuple(self._replans()),
            tools=tuple(self._tools()),
            requests=dict(_most_first(self.by(metrics.REQUESTS, "kind"))),
            answers=dict(_most_first(self.by(metrics.ANSWERS, "choice"))),
            known=dict(_most_first(self.known)),
            escalations=dict(_most_first(self.by(metrics.ESCALATIONS, "code"))),
            waiting=tuple(self._waits()),
            paid=tuple(self._paid()),
            budget_left=self.spreads(metrics.BUDGET_LEFT),
            counters=tuple(self._sums()),
        )

    def _timeline(self, period: "Period", until: datetime) -> tuple[Moment, ...]:
        if not self.ended:
            return ()
        begin = period.since or min(at for at, _ in self.ended)
        seconds = (timedelta(hours=1) if until - begin <= SHORT else DAY).total_seconds()
        found = defaultdict[int, Counter[str]](Counter)
        for at, status in self.ended:
            found[int(at.timestamp() // seconds)][status] += 1
        first = min(found) if period.since is None else int(period.since.timestamp() // seconds)
        places = range(first, int(until.timestamp() // seconds) + 1)
        return tuple(Moment(at=datetime.fromtimestamp(at * seconds, UTC), tasks=dict(found[at])) for at in places)

    def _faults(self) -> Iterator[FaultCount]:
        codes = Counter[tuple[str, str]]()
        for (quadrant, code, _), number in self.recoveries.items():
            codes[quadrant, code] += number
        for (quadrant, code), faults in sorted(codes.items(), key=lambda item: (item[0][0], -item[1], item[0][1])):
            names = dict.fromkeys([*Recovery, *(name for *of, name in self.recoveries if of == [quadrant, code])])
            followed = {name: number for name in names if (number := self.recoveries[quadrant, code, name])}
            yield FaultCount(quadrant=quadrant, code=code, faults=faults, followed=followed)

    def _retries(self) -> Iterator[RetryCount]:
        wasted = self.of(metrics.WASTED_ATTEMPTS)
        helped = self.of(metrics.HELPED_RETRIES)
        for labels, number in _most_first(self.of(metrics.RETRIES)):
            tool, code = labels
            more = {"helped": helped.get(labels, 0), "wasted": wasted.get(labels, 0)}
            yield RetryCount(tool=tool, code=code, retries=number, **more)

    def _replans(self) -> Iterator[ReplanCount]:
        of = self.of(metrics.REPLANS)
        for code, number in _most_first(self.by(metrics.REPLANS, "code")):
            revisions = {revision: many for (replan_code, revision), many in sorted(of.items()) if replan_code == code}
            yield ReplanCount(code=code, replans=number, revisions=revisions)

    def _tools(self) -> Iterator[ToolCount]:
        retries, most = self.by(metrics.RETRIES, "tool"), self.spreads(metrics.RETRY_BUDGET_USED)
        results, unknown = self.of(metrics.REPLAYED_RESULTS), self.of(metrics.UNKNOWN_OUTCOMES)
        not_made, fallbacks = self.by(metrics.CIRCUIT_OPEN, "tool"), self.by(metrics.FALLBACKS, "tool")
        for tool, calls in _most_first(self.by(metrics.TOOL_CALLS, "tool")):
            yield ToolCount(
                tool=tool,
                calls=calls,
                retries=retries[tool],
                most_retries=int(most[tool].most) if tool in most else 0,
                replayed=results.get((tool, "ledger"), 0),
                reconciled=results.get((tool, "reconciled"), 0),
                unknown={verdict: number for (of, verdict), number in sorted(unknown.items()) if of == tool},
                not_made=not_made[tool],
                fallbacks=fallbacks[tool],
            )

    def _waits(self) -> Iterator[WaitCount]:
        by_kind = defaultdict[str, list[OpenRequest]](list)
        for request in self.waiting:
            by_kind[request.kind].append(request)
        for kind, requests in sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0])):
            oldest = min(requests, key=lambda request: request.since)
            yield WaitCount(kind=kind, requests=len(requests), oldest=oldest.since, example=oldest.task_id)

    def _paid(self) -> Iterator[PaidCount]:
        cost = self.by(metrics.COST, "purpose")
        for purpose, tokens in _most_first(self.by(metrics.TOKENS, "purpose")):
            yield PaidCount(purpose=purpose, tokens=tokens, usd=cost[purpose] / metrics.MICRO)

    def _sums(self) -> Iterator[MetricSum]:
        metric_of = {metric.name: metric for metric in metrics.COUNTED}
        for (name, labels), number in sorted(self.counters.items()):
            yield MetricSum(name=name, labels=dict(zip(metric_of[name].labels, labels, strict=True)), value=number)


def _most_first(of: Mapping[K, int]) -> list[tuple[K, int]]:
    return sorted(of.items(), key=lambda item: (-item[1], str(item[0])))


class Period(NamedTuple):
    """The tasks of a report: those that ran at or after `since` and that the list filter `query` finds."""

    since: datetime | None = None
    query: str | None = None

    @property
    def filter(self) -> str:
        """Temporal's list filter; a run that continued as new is read with the next. Raises Problem for a bad query."""
        ran = f" AND (CloseTime IS NULL OR CloseTime >= '{self.since.isoformat()}')" if self.since else ""
        return within(f"{TASKS} AND ExecutionStatus != 'ContinuedAsNew'{ran}", self.query)


class Run(NamedTuple):
    """A run of a task that the server lists."""

    id: str
    """The id of the task."""
    run_id: str
    started_at: datetime
    is_closed: bool


Progress = Callable[[int, int], None]
"""Called with the number of tasks read so far and the number of all tasks."""


async def make_report(
    client: Client, period: Period, *, limit: int = MAX_TASKS, cache: Path | None, progress: Progress | None = None
) -> Report:
    """Read the tasks of a period, at most the `limit` that ended last, and report on them.

    Rows of ended tasks are kept in the file `cache`; None for no cache. Raises Problem if the query cannot be used.
    """
    until = datetime.now(UTC)
    runs, more = await listed_runs(client, period, limit)
    totals, reading = Totals(), _Reading(client, runs, progress or (lambda *_: None))
    # Rows of another version of Replan, or with other fields or metrics, are ignored.
    kind = f"{version()} {digest('row', TaskRow.model_json_schema(), [metric.name for metric in metrics.COUNTED])}"
    with Cache(cache, kind) as kept:
        reading.take_cached(kept, totals)
        await reading.read(kept, totals)
    return totals.report(period, until, more=more, cached=reading.cached)


async def listed_runs(client: Client, period: Period, limit: int) -> tuple[list[Run], int]:
    """The runs of a period, those that are open first, then those that were closed last; and how many are left out."""
    with using_filter():
        all = (await client.count_workflows(period.filter)).count
        listing = client.list_workflows(period.filter, limit=limit, page_size=min(limit, 1000))
        runs = [
            Run(row.id, row.run_id, row.start_time, row.close_time is not None)
            async for row in listing
            if row.workflow_type == TASK_TYPE
        ]
    return runs, max(0, all - len(runs))


async def read_each(client: Client, runs: Iterable[Run], take: Callable[[Run, History], None]) -> None:
    """Call `take` with the history of each of these runs, AT_ONCE at a time; those that were deleted are left out."""
    waiting = iter(list(runs))

    async def work() -> None:
        for run in waiting:
            history = await existing(fetch_runs(client, run.id, run.run_id))
            if history is not None:  # else it was deleted since the list was made
                take(run, history)

    await gathered(*(work() for _ in range(AT_ONCE)))


class _Reading:
    def __init__(self, client: Client, runs: Sequence[Run], progress: Progress) -> None:
        self.cached = self._done = 0
        self._client, self._progress, self._all = client, progress, len(runs)
        self._runs = {run.run_id: run for run in runs}
        times = Counter(run.id for run in runs)
        self._shared = {id for id, number in times.items() if number > 1}
        """The ids with several runs: of a task that was reset, or of several tasks."""
        self._newest = dict[tuple[str, str], tuple[datetime, TaskRow]]()
        progress(0, self._all)

    def take_cached(self, cache: Cache, totals: Totals) -> None:
        """Take the rows of closed runs from the cache; `read` does not read these runs again."""
        for run_id, text in cache.read([run.run_id for run in self._runs.values() if run.is_closed]):
            try:
                row = TaskRow.model_validate_json(text)
            except ValidationError:
                continue  # it is read again
            self.cached += 1
            self._add(self._runs.pop(run_id), row, totals)

    async def read(self, cache: Cache, totals: Totals) -> None:
        """Read the histories of the runs that the cache lacks, AT_ONCE at a time, and cache the rows of closed runs."""

        def take(run: Run, history: History) -> None:
            row = row_of(history)
            if run.is_closed and not row.unreadable:  # another client may have the codec
                cache.write(run.run_id, row.model_dump_json())
            self._add(run, row, totals)

        await read_each(self._client, self._runs.values(), take)
        for _, row in self._newest.values():
            totals.add(row)

    def _add(self, run: Run, row: TaskRow, totals: Totals) -> None:
        self._done += 1
        self._progress(self._done, self._all)
        if run.id not in self._shared:
            totals.add(row)
            return
        # A run that a reset replaced has the same first run as the run that replaced it.
        task = run.id, row.first_run
        if task not in self._newest or self._newest[task][0] < run.started_at:
            self._newest[task] = run.started_at, row
