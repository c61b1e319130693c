"""What Prometheus may have seen of workers, minute by minute, and when which alert fires: data for `promtool test`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LONG_AGO = "-86400"
"""When a worker began that has counted all along; `promtool` begins in 1970."""
AT = 80
"""The minute of what happens in a situation of counters."""
HOUR = 60
KEEP = 5
"""Minutes for which an alert about counters goes on to fire: `keep_firing_for`."""
OFF, NONE, N = "stale", "_", "N"
"""In the values of a situation: a scrape that fails, a minute without a scrape, and the value of each counter."""


@dataclass(frozen=True)
class Said:
    """What an alert tells."""

    summary: str
    command: str
    severity: str = "warning"


@dataclass(frozen=True)
class Firing:
    """An alert that fires from one minute to another, both included, except for some `pause`."""

    first: int
    last: int
    labels: Mapping[str, str] = field(default_factory=dict)
    pause: int = 0
    said: Said | None = None
    """In the first minute, if that is compared."""


@dataclass(frozen=True)
class Situation:
    series: Mapping[str, str]
    """From a series to its values, as `promtool` writes them: one a minute."""
    fires: Mapping[str, Firing] = field(default_factory=dict)
    """All alerts that fire."""
    minutes: int = 2 * AT
    """The last one."""

    def as_promtool(self, rules: Sequence[str]) -> Mapping[str, Any]:
        """A file for `promtool test rules`: exactly these alerts fire, in each of these minutes and in no other."""
        fired, all_labels = 'ALERTS{alertstate="firing"}', "without (alertstate, severity)"
        span, times = f"[{self.minutes}m]", f"timestamp({fired})[{self.minutes}m:1m]"
        found: Mapping[str, Callable[[Firing], int]] = {
            f"count_over_time({fired}{span})": lambda firing: firing.last - firing.first + 1 - firing.pause,
            f"min_over_time({times}) / 60": lambda firing: firing.first,
            f"max_over_time({times}) / 60": lambda firing: firing.last,
        }
        test = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "promql_expr_test": [
                {
                    "expr": f"sum {all_labels} ({expression})",
                    "eval_time": f"{self.minutes}m",
                    "exp_samples": [
                        {"labels": _labels({"alertname": alert, **firing.labels}), "value": number(firing)}
                        for alert, firing in self.fires.items()
                    ],
                }
                for expression, number in found.items()
            ],
            "alert_rule_test": [
                {"alertname": alert, "eval_time": f"{firing.first}m", "exp_alerts": [_alert(alert, firing, said)]}
                for alert, firing in self.fires.items()
                if (said := firing.said)
            ],
        }
        return {
            "rule_files": list(rules),
            "evaluation_interval": "1m",
            "group_eval_order": ["replan-counts", "replan"],
            "tests": [test],
        }


def _alert(name: str, firing: Firing, said: Said) -> Mapping[str, Any]:
    runbook = f"docs/observability.md#{name.lower()}"
    annotations = {"summary": said.summary, "command": said.command, "runbook": runbook}
    return {"exp_labels": {**firing.labels, "severity": said.severity}, "exp_annotations": annotations}


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def series(name: str, worker: str = "a", **labels: str) -> str:
    """A series that Prometheus has from one worker."""
    return name + _labels({**labels, "job": "replan", "instance": worker})


def always(value: str, minutes: int = 10 * HOUR) -> str:
    """A series with the same value all the time."""
    return f"{value}x{minutes}"


DOCTOR, LIST, BREAKERS = (f"python starter.py {word}" for word in ("doctor", "list", "breakers"))
QUEUE = {"namespace": "default", "task_queue": "replan"}
STARTED = "replan_start_time_seconds"
COUNTERS = {
    series("replan_unknown_outcomes_total", tool="send", verdict="none"): 1,
    series("replan_unknown_outcomes_total", tool="pay", verdict="applied"): 1,
    series("replan_cost_microusd_total", purpose="planning"): 9_000_000,
    series("replan_cost_microusd_total", purpose="lost"): 3_500_000,
    series("replan_tasks_total", status="completed"): 10,
    series("replan_tasks_total", status="failed", code="gave_up"): 3,
    series("replan_tasks_total", status="failed", code="aborted"): 5,
    series("replan_tasks_total", status="escalated", code="unanswered"): 8,
    series("replan_replans_total", code="conflict"): 120,
    series("temporal_workflow_task_execution_failed_total", failure_reason="WorkflowError", **QUEUE): 3,
}
"""Of one worker: if these values were new, each alert about counters would fire."""
ALL_DAY = {
    series("up", "b"): always("1"),
    series(STARTED, "b"): always(LONG_AGO),
    series("replan_tasks_total", "b", status="completed"): "0+0.1x600",
    series("replan_replans_total", "b", code="conflict"): always("0"),
}
"""Of another worker, on which a task ends every ten minutes."""


OF_COUNTS: Mapping[str, tuple[Mapping[str, str], Said]] = {
    "ReplanUnknownOutcome": (
        {"tool": "send", "verdict": "none"},
        Said("Nobody knows whether a call of send was applied (none).", f"{LIST} --status waiting"),
    ),
    "ReplanSpendRate": (
        {},
        Said("Models cost 12.50 US dollars in the last hour, more than 10.", f"{LIST} --status running"),
    ),
    "ReplanTasksFail": (
        {"status": "failed"},
        Said("25% of the tasks that ended in the last hour failed.", f"{LIST} --status failed"),
    ),
    "ReplanTasksEscalate": (
        {"status": "escalated"},
        Said(
            "25% of the tasks that ended in the last hour needed a person, and nobody answered.",
            f"{LIST} --status escalated",
        ),
    ),
    "ReplanWorkflowTaskFails": (
        QUEUE,
        Said(
            "Workers of the queue replan cannot continue tasks: 3 workflow tasks failed in the last hour.",
            *(DOCTOR, "critical"),
        ),
    ),
    "ReplanRateDoubled": (
        {},
        Said(
            "A task needs 3.75 new plans, more than twice as many as in the day before.",
            "python starter.py report --since 2h",
        ),
    ),
}
"""By alert about counters, its labels and what it tells."""


def fires(first: int = AT, window: int = HOUR) -> Mapping[str, Firing]:
    """The alerts about counters; those that look back longer than 15 minutes fire for `window` minutes."""
    spans = dict.fromkeys(OF_COUNTS, window) | {"ReplanUnknownOutcome": 15}
    return {
        alert: Firing(first, first + spans[alert] - 1 + KEEP, labels, said=said)
        for alert, (labels, said) in OF_COUNTS.items()
    }


def counted(values: Sequence[str], starts: Sequence[str], expected: Mapping[str, Firing] | None = None) -> Situation:
    """A situation of counters, by their values and by the times of start of their worker."""
    own = {
        name: " ".join(str(number) if value == N else value for value in values) for name, number in COUNTERS.items()
    }
    return Situation({**own, series(STARTED): " ".join(starts), **ALL_DAY}, expected or {}, len(values) - 1)


def unchanged(*values: str) -> Situation:
    """A situation in which nothing is counted, whatever is scraped of it."""
    return counted(values, [LONG_AGO if value == N else value for value in values])


BEGAN = str(AT * 60 - 10)
"""When a worker began that is scraped for the first time in the minute AT."""
STOPPED = [N] * (AT - 2) + [OFF, OFF]
RESTARTED = [LONG_AGO] * (AT - 2) + [OFF, OFF] + [BEGAN] * 2 * AT
OF_COUNTERS = {
    "one failed scrape": unchanged(*[N] * AT, OFF, *[N] * AT),
    "every third scrape fails": unchanged(*[N] * AT, *[OFF, N, N] * (AT // 3)),
    "12 minutes without a scrape": unchanged(*[N] * AT, *[NONE] * 12, *[N] * AT),
    "12 minutes of failed scrapes": unchanged(*[N] * AT, *[OFF] * 12, *[N] * AT),
    "90 minutes without a scrape": unchanged(*[N] * AT, *[NONE] * 90, *[N] * AT),
    "90 minutes of failed scrapes": unchanged(*[N] * AT, *[OFF] * 90, *[N] * AT),
    "Prometheus begins without data": unchanged(*[NONE] * AT, *[N] * AT),
    "a restart": counted([*STOPPED, *[NONE] * 2 * AT], RESTARTED),
    "first counts": counted([*[NONE] * AT, *[N] * AT], [LONG_AGO] * 2 * AT, fires()),
    "a new worker": counted([*[NONE] * AT, *[N] * AT], [*[NONE] * AT, *[BEGAN] * AT], fires()),
    "a restart that counts as much again": counted([*STOPPED, *[N] * AT], RESTARTED, fires()),
    "failed scrapes after first counts": counted(
        [*[NONE] * AT, *[N] * 5, OFF, N, N, OFF, OFF, *[N] * AT],
        [*[LONG_AGO] * (AT + 5), OFF, *[LONG_AGO] * 2, OFF, OFF, *[LONG_AGO] * AT],
        fires(),
    ),
}
"""Of what Prometheus misses nothing is counted as new, and what is new is counted all the same."""

GAUGES: Mapping[str, tuple[str, str, Mapping[str, str], Said]] = {
    "ReplanBreakerOpen": (
        *("replan_breaker_state", "2", {"tool": "pay"}),
        Said("pay has been left alone for 5 minutes: its service is down.", BREAKERS),
    ),
    "ReplanQueueTooLong": (
        *("replan_patience_used_ratio", "0.95", {"tool": "ask"}),
        Said("Calls of ask have waited for their turn for 95% of their patience.", BREAKERS),
    ),
    "ReplanRequestOpen": (
        *("replan_oldest_request_seconds", "90000", QUEUE),
        Said("A task of the queue replan has waited for a person for 1d 1h 0m 0s.", f"{LIST} --status waiting"),
    ),
    "ReplanIncidentOpen": (
        *("replan_incidents", "2", QUEUE),
        Said(
            "Tasks of the queue replan wait until somebody repairs what they need. Causes: 2.",
            "python starter.py incidents",
        ),
    ),
}
"""By alert, its gauge, a value that makes it fire, and its labels."""


def gauged(*values: str, other: str, last: int, pauses: bool = False) -> Situation:
    """A situation of gauges, which from minute 20 to the `last` make alerts fire; N stands for the value that does.

    `other` are the values of another worker. With `pauses`, nothing is known for 12 minutes.
    """
    shown, fired = dict[str, str](), dict[str, Firing]()
    for alert, (name, value, labels, said) in GAUGES.items():
        wait = 5 if alert == "ReplanBreakerOpen" else 0
        shown[series(name, "a", **labels)] = " ".join(value if one == N else one for one in values)
        shown[series(name, "b", **labels)] = other.replace(N, value)
        fired[alert] = Firing(20 + wait, last, labels, (10 + wait) if pauses else 0, said)
    return Situation({**shown, series("up"): always("1"), series("up", "b"): always("1")}, fired, len(values) - 1)


ZERO = always("0")
OF_GAUGES = {
    "two workers see the same": gauged(*["0"] * 20, *[N] * 40, *["0"] * 20, other=f"0x19 {N}x39 0x20", last=59),
    "every third scrape fails": gauged(*["0"] * 20, *[N, N, OFF] * 20, *["0"] * 20, other=ZERO, last=79),
    "12 minutes without a scrape": gauged(
        *["0"] * 20, *[N] * 20, *[NONE] * 12, *[N] * 20, other=f"0x39 {NONE}x12 0x30", last=71, pauses=True
    ),
    "a restart": gauged(*["0"] * 20, *[N] * 20, OFF, *[N] * 20, other=ZERO, last=60),
    "a new worker": gauged(*[NONE] * 20, *[N] * 20, other=ZERO, last=39),
    "a worker does not know it any more": gauged(*["0"] * 20, *[N] * 20, *["NaN"] * 30, other=ZERO, last=39),
    "a worker that ends": gauged(*["0"] * 20, *[N] * 20, *[OFF] * 30, other=ZERO, last=41),
}
"""Alerts about gauges are those of the newest values that are known."""

GONE = Said("Fewer workers answer than there were: 1.", DOCTOR)
NOBODY = Said("No worker has answered for 2 minutes: tasks wait.", DOCTOR, "critical")


def answering(fired: Mapping[str, Firing] | None = None, minutes: int = 129, **workers: str) -> Situation:
    """A situation of workers that answer scrapes, 1, or do not, 0."""
    return Situation({series("up", name): values for name, values in workers.items()}, fired or {}, minutes)


WASTED = Firing(
    10,
    80,
    {"tool": "pay", "code": "conflict"},
    said=Said(
        "pay was called again after conflict, which no retry can help.",
        "python starter.py list --query 'ReplanLastFault = \"conflict\"'",
        "critical",
    ),
)
OF_WORKERS = {
    "failed scrapes of the only worker": answering(a="1x70 " + "0 1 1 " * 20),
    "failed scrapes of one of two": answering(a=always("1"), b="1x70 " + "0 1 1 " * 20),
    "one of two does not answer": answering(
        {"ReplanWorkerGone": Firing(75, 129, said=GONE)}, a=always("1"), b="1x69 0x70"
    ),
    "one of two is not found any more": answering(
        {"ReplanWorkerGone": Firing(75, 99, said=GONE)}, a=always("1"), b=f"1x69 {OFF}"
    ),
    "one of two is started again": answering(a=always("1"), b="1x69 0x3 1x60"),
    "a new version takes the place of the old one": answering(
        a=f"1x73 {OFF}", b=f"1x76 {OFF}", c="_x70 1x60", d="_x73 1x60"
    ),
    "one more worker": answering(a=always("1"), b="_x70 1x60"),
    "no worker answers": answering({"ReplanNoWorker": Firing(72, 129, said=NOBODY)}, a="1x69 0x70", b=f"1x69 {OFF}"),
    "a wasted attempt": Situation(
        {
            series("up"): always("1"),
            series("replan_wasted_attempts_total"): always("0"),
            series("replan_wasted_attempts_total", tool="pay", code="conflict"): f"_x10 1x4 {OFF} 1x4 {OFF}",
        },
        {"ReplanWastedAttempts": WASTED},
    ),
}
SITUATIONS = {**OF_COUNTERS, **{f"gauges: {name}": one for name, one in OF_GAUGES.items()}, **OF_WORKERS}
