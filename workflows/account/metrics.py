"""What a task did, as counts: its workflow adds each sample to the task's account, and to the metrics of the worker.

Runs whenever an entry is added to the journal; a worker adds samples of its own after attempts and model calls. All
other code reads the account. A sample has labels from fixed sets only: no ids and no texts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from temporalio.common import MetricMeter

from workflows.account.outcome import Ending
from workflows.account.records import FaultRecord
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Fault
from workflows.limits.budget import Spent, TaskBudget
from workflows.people.requests import UNANSWERED, HumanRequest, RequestKind
from workflows.plans import own_activities

UNREPORTED = "unreported"
"""Stands for the code of an attempt that ended without reporting (crash or timeout)."""
MAX_REVISION = 9
"""Revisions from this number on share a label."""
PLANNING, CORRECTING, SUMMARISING, STEPS, LOST = "planning", "correcting", "summarising", "steps", "lost"
"""What tokens are used for: a proposal, a proposal in place of a rejected one, a summary of a long conversation, a
step, and replies that were lost or could not be used."""
PLANNERS = frozenset(spec.kind for spec in own_activities.PLANNING)
"""The kinds of the activities that ask the planner."""
MICRO = 1_000_000
"""Micro-dollars in a dollar: counters of the SDK take whole numbers only."""


class Metric(NamedTuple):
    """A metric with its labels: a gauge if in GAUGES, a histogram if it has `buckets`, else a counter."""

    name: str
    """The name ends with the unit, if there is one; Prometheus adds `_total` to the name of a counter."""
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets, in the unit of its name."""


class Sample(NamedTuple):
    """A value of a metric; `labels` are in the order of `metric.labels`."""

    metric: Metric
    labels: tuple[str, ...] = ()
    value: float = 1


FEW = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Upper bounds of numbers of calls, steps and retries."""
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86400.0)
PARTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

TOOL_CALLS = Metric("replan_tool_calls", "Attempts of tools, as the budget counts them.", ("tool",))
RETRIES = Metric("replan_retries", "Attempts that followed a fault of the same call.", ("tool", "code"))
HELPED_RETRIES = Metric(
    "replan_helped_retries", "Retries of calls that the same tool completed in the end.", ("tool", "code")
)
WASTED_ATTEMPTS = Metric(
    "replan_wasted_attempts", "Attempts that followed a persistent fault: they could not help.", ("tool", "code")
)
REPLAYED_RESULTS = Metric(
    "replan_replayed_results", "Recorded results that were returned instead of a second effect.", ("tool", "how")
)
CIRCUIT_OPEN = Metric("replan_circuit_open", "Calls that were not made while a circuit breaker was open.", ("tool",))
REPLANS = Metric("replan_replans", "New plans because of a fault.", ("code", "revision"))
FALLBACKS = Metric("replan_fallbacks", "Steps that went on with the fallback of their tool.", ("tool",))
ESCALATIONS = Metric("replan_escalations", "Faults that needed a person.", ("code",))
UNKNOWN_OUTCOMES = Metric(
    "replan_unknown_outcomes", "Calls of which nobody knew whether they were applied.", ("tool", "verdict")
)
REQUESTS = Metric("replan_requests", "Requests to people.", ("kind",))
ANSWERS = Metric("replan_answers", "Requests that were answered, or closed without an answer.", ("kind", "choice"))
PLANNER_CALLS = Metric("replan_planner_calls", "Attempts of requests to the planner.", ("kind",))
PLANNER_RETRIES = Metric("replan_planner_retries", "Attempts that followed a fault of the planner.", ("kind", "code"))
TOKENS = Metric("replan_tokens", "Tokens that tasks paid for.", ("purpose",))
COST = Metric("replan_cost_microusd", "Micro-dollars that tasks paid for models whose price is known.", ("purpose",))
TASKS = Metric("replan_tasks", "Tasks that ended.", ("status", "code"))

RETRY_DELAY = Metric("replan_retry_delay_seconds", "The wait before a retry.", ("tool", "code"), SECONDS)
TIME_TO_REPLAN = Metric(
    "replan_time_to_replan_seconds", "From a fault to the first step of the new plan.", buckets=SECONDS
)
TASK_TOOL_CALLS = Metric("replan_task_tool_calls", "Tool calls of a task that ended.", buckets=FEW)
TASK_STEPS = Metric("replan_task_steps", "Steps that a task started until it ended.", buckets=FEW)
TASK_DURATION = Metric("replan_task_duration_seconds", "From the start of a task to its end.", ("status",), SECONDS)
RETRY_BUDGET_USED = Metric("replan_retry_budget_used", "Retries that a task used of one tool.", ("tool",), FEW)
BUDGET_LEFT = Metric("replan_budget_left_ratio", "The part of a limit that was left at the end.", ("limit",), PARTS)

MODEL_CALLS = Metric("replan_model_calls", "Requests to models.", ("provider", "model"))
MODEL_TOKENS = Metric(
    "replan_model_tokens",
    "Tokens that providers counted: input, output, cache_read, cache_write; reasoning is a part of output.",
    ("provider", "model", "type"),
)
MODEL_COST = Metric(
    "replan_model_cost_microusd", "Micro-dollars for requests whose price is known.", ("provider", "model")
)
LOST_REPLIES = Metric(
    "replan_model_lost_replies", "Requests that may be billed although no reply came.", ("provider", "model")
)
BREAKER_TRANSITIONS = Metric("replan_breaker_transitions", "Changes of the state of a circuit breaker.", ("tool", "to"))
ATTEMPT_DURATION = Metric(
    "replan_attempt_duration_seconds", "Attempts of tools and of the planner.", ("tool", "outcome"), SECONDS
)

BREAKER_STATE = Metric(
    "replan_breaker_state", "The circuit breaker of a tool: 0 closed, 1 half-open, 2 open.", ("tool",)
)
WAITING_CALLS = Metric("replan_waiting_calls", "Calls that wait for their turn at a service.", ("tool",))
PATIENCE_USED = Metric(
    "replan_patience_used_ratio",
    "The longest time that a call has waited for its turn, as a part of the time that it may wait without a success.",
    ("tool",),
)
WAITING_TASKS = Metric("replan_waiting_tasks", "Tasks that wait for a person.")
OLDEST_REQUEST = Metric("replan_oldest_request_seconds", "Since when the oldest open request waits; 0 without one.")
INCIDENTS = Metric("replan_incidents", "Causes for which tasks wait for a person.")
STARTED = Metric("replan_start_time_seconds", "When this worker began to count, in seconds since 1970.")

COUNTED = (
    *(TOOL_CALLS, RETRIES, HELPED_RETRIES, WASTED_ATTEMPTS, REPLAYED_RESULTS, CIRCUIT_OPEN),
    *(REPLANS, FALLBACKS, ESCALATIONS, UNKNOWN_OUTCOMES, REQUESTS, ANSWERS),
    *(PLANNER_CALLS, PLANNER_RETRIES, TOKENS, COST, TASKS),
)
"""The counters of workflows; the account of a task has its part of each."""
DISTRIBUTIONS = (
    *(RETRY_DELAY, TIME_TO_REPLAN),
    *(TASK_TOOL_CALLS, TASK_STEPS, TASK_DURATION, RETRY_BUDGET_USED, BUDGET_LEFT),
)
"""The histograms of workflows."""
OF_ACTIVITIES = (MODEL_CALLS, MODEL_TOKENS, MODEL_COST, LOST_REPLIES, BREAKER_TRANSITIONS, ATTEMPT_DURATION)
"""The metrics of activities, which each worker counts for itself: the counts of a worker that dies are lost."""
GAUGES = (BREAKER_STATE, WAITING_CALLS, PATIENCE_USED, WAITING_TASKS, OLDEST_REQUEST, INCIDENTS, STARTED)
"""Sampled by each worker, so that all of them have the same values, except for STARTED."""
METRICS = (*COUNTED, *DISTRIBUTIONS, *OF_ACTIVITIES, *GAUGES)

MAX_VALUE = 2.0**63
"""The bound of all values: the SDK keeps a counter as a whole number of 64 bits."""

Counts = dict[str, dict[str, int]]
"""Sums by the name of a counter, and by its labels, joined by SEPARATOR. A sum of zero is missing."""
SEPARATOR = "/"
PREFIX = "replan_"
"""The beginning of the name of each metric; the names in Counts leave it out."""


def tally(counts: Counts, samples: Iterable[Sample]) -> list[Sample]:
    """Add samples to the counts of a task; return those that may be added to the metrics of a worker, too."""
    # The SDK raises for another value, and then the workflow task fails for ever. Sums of dollars have small errors,
    # and any program may have written the Progress that a value comes from.
    kept = [sample for sample in samples if 0 <= sample.value < MAX_VALUE]
    for metric, labels, value in kept:
        if metric in COUNTED and (number := round(value)):
            sums = counts.setdefault(metric.name.removeprefix(PREFIX), {})
            key = SEPARATOR.join(labels)
            sums[key] = sums.get(key, 0) + number
    return kept


def counted(counts: Counts, metric: Metric) -> dict[tuple[str, ...], int]:
    """The sums of a counter by its labels."""
    sums = counts.get(metric.name.removeprefix(PREFIX), {})
    return {tuple(key.split(SEPARATOR)) if metric.labels else (): number for key, number in sums.items()}


def total(counts: Counts, metric: Metric) -> int:
    """The sum of a counter over all its labels."""
    return sum(counted(counts, metric).values())


def add(meter: MetricMeter, samples: Iterable[Sample]) -> None:
    """Record samples in `meter`, which sends them to the metrics of its worker."""
    # No instrument is kept: a meter of the SDK finds it by its name, and all of it takes 6 us a sample.
    for metric, labels, value in samples:
        attributes: Mapping[str, str] = dict(zip(metric.labels, labels, strict=True))
        if metric in GAUGES:
            meter.create_gauge_float(metric.name, metric.description).set(value, attributes)
        elif metric.buckets:
            meter.create_histogram_float(metric.name, metric.description).record(value, attributes)
        elif value:
            meter.create_counter(metric.name, metric.description).add(round(value), attributes)


def retry_causes(attempts: int, earlier: Sequence[Fault], repeated: Fault | None) -> list[tuple[str, bool]]:
    """For each retry in `attempts` attempts: the code of the fault before it, and whether that fault was persistent.

    `earlier` are the known faults before the final attempt. If the execution repeats an earlier one after a wait,
    `repeated` is what `last_fault` returned for that execution; else None.
    """
    faults = {fault.attempt: fault for fault in earlier}
    before = [repeated] if repeated and attempts else []
    causes = [*before, *(faults.get(number) for number in range(1, attempts))]
    return [(fault.code, not fault.quadrant.is_transient) if fault else (UNREPORTED, False) for fault in causes]


def last_fault(returned: object, earlier: Sequence[Fault] = (), repeated_fault: Fault | None = None) -> Fault | None:
    """The last fault of this execution whose attempt called the tool, else `repeated_fault`."""
    counted = [fault for fault in (*earlier, returned) if isinstance(fault, Fault) and fault.is_counted]
    return counted[-1] if counted else repeated_fault


def of_fault(fault: FaultRecord) -> Iterator[Sample]:
    """The samples of a fault whose decision is made; a fault that is reconciled next has none."""
    verdict = fault.reconciled or ("none" if fault.applied is Applied.UNKNOWN else None)
    if verdict and (fault.reconciled or fault.decision not in ("reconcile", "retry", "wait")):
        yield Sample(UNKNOWN_OUTCOMES, (fault.source, verdict))
    if fault.reconciled == "applied":
        yield Sample(REPLAYED_RESULTS, (fault.source, "reconciled"))
    if fault.decision == "fallback":
        yield Sample(FALLBACKS, (fault.source,))


def of_replan(code: str, revision: int) -> Iterator[Sample]:
    """The samples of a replan because of a fault with this code in the plan `revision`."""
    yield Sample(REPLANS, (code, f"{MAX_REVISION}+" if revision >= MAX_REVISION else str(revision)))


def of_opened(request: HumanRequest) -> Iterator[Sample]:
    yield Sample(REQUESTS, (request.kind,))
    if request.kind is RequestKind.FAULT:
        yield Sample(ESCALATIONS, (request.code,))


def of_closed(request: HumanRequest) -> Iterator[Sample]:
    """The samples of a request that was closed; none if the end of the task closed the request."""
    choice = request.answer.choice if request.answer else request.closed
    if choice and not request.is_ended:
        yield Sample(ANSWERS, (request.kind, choice))


def of_spending(purpose: str, tokens: int, usd: float) -> Iterator[Sample]:
    """The samples of tokens that a task used for `purpose`, and of what they cost."""
    yield Sample(TOKENS, (purpose,), tokens)
    yield Sample(COST, (purpose,), round(usd * MICRO))


def purpose_of(kind: str, *, is_correction: bool) -> str:
    """The purpose of a request to the planner, for `of_payment`; `is_correction`: the last proposal was rejected."""
    return SUMMARISING if kind == own_activities.COMPACT.kind else CORRECTING if is_correction else PLANNING


def of_ending(ending: Ending) -> Iterator[Sample]:
    yield Sample(TASKS, (ending.status, ending.code or ""))
    # Somebody was asked otherwise.
    if ending.status is TaskStatus.ESCALATED and ending.code != UNANSWERED:
        yield Sample(ESCALATIONS, (ending.code or "",))


def distributions(status: TaskStatus, steps: int, replans: int, spent: Spent, budget: TaskBudget) -> Iterator[Sample]:
    """The samples, for histograms, of what a task that has ended used; it started so many `steps`."""
    limits = budget.limits
    yield Sample(TASK_TOOL_CALLS, (), spent.tool_calls)
    yield Sample(TASK_STEPS, (), steps)
    yield Sample(TASK_DURATION, (status,), spent.seconds)
    for kind, number in budget.retries.items():
        yield Sample(RETRY_BUDGET_USED, (kind,), number)
    parts = {
        "tool_calls": (spent.tool_calls, limits.tool_calls),
        "replans": (replans, limits.replans),
        "tokens": (spent.tokens, limits.tokens),
        "usd": (spent.usd or 0.0, limits.usd),
        "deadline": (spent.seconds, limits.deadline),
    }
    for name, (used, limit) in parts.items():
        if limit:
            yield Sample(BUDGET_LEFT, (name,), max(0.0, 1 - used / limit))
