"""`python -m maintenance.dashboards` writes the dashboards, and the counts that alerts are about, into deploy/."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.account import metrics
from workflows.account.metrics import MICRO, UNREPORTED, Metric
from workflows.faults.fault import QUADRANT, Quadrant
from workflows.faults.retries import RETRIES_PER_KIND

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
COUNTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "counts.yml"
COUNTS_HEAD = """\
# How much counters grew: what alerts.yml is about. `python -m maintenance.dashboards` writes this file.
# docs/observability.md says why it is not just `increase`.

groups:
  - name: replan-counts
    rules:
"""
WINDOW = "${window}"
"""The variable of a dashboard with how many seconds each point of a panel looks back."""
WINDOW_TEXT = "${window:text}"
WINDOWS = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21600, "1d": 86400}
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
"""That of deploy/grafana/provisioning."""
WIDTH, HEIGHT = 24, 8
"""Columns of a dashboard, and lines of a panel."""


@dataclass(frozen=True)
class Panel:
    title: str
    about: str
    queries: Mapping[str, str]
    """Legend, with labels as in `{{tool}}`, to an expression of PromQL."""
    unit: str = "short"
    kind: str = "timeseries"
    is_stacked: bool = False
    mappings: Sequence[tuple[int, str, str]] = ()
    """Values that are shown as a text in a colour."""


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    about: str
    rows: Mapping[str, Sequence[Panel]]


def grown(series: str, seconds: str = WINDOW) -> str:
    """An expression for how much each counter of `series` grew in the last `seconds`: a lower bound."""
    # `increase` sees neither the first count of a series nor that a worker which was started again has counted as much
    # as before. What looks as if it had not been there before may have been there without being scraped. So the largest
    # of three bounds is taken: what was seen to grow; all that a worker counted that was started since; and the first
    # count of a series whose worker was scraped before without it.
    started, worker = metrics.STARTED.name, "on (job, instance)"
    bounds = {
        "seen": f"increase({series}[{seconds}s])",
        "started": f"{series} and {worker} {started} > time() - {seconds}",
        "first": f"{series} unless last_over_time({series}[5m] offset {seconds}s)"
        f" and {worker} last_over_time({started}[5m] offset {seconds}s)",
    }
    each = " or ".join(f'label_replace({bound}, "bound", "{name}", "", "")' for name, bound in bounds.items())
    return f"max without (bound) ({each})"


def increase(metric: Metric, *by: str, having: str = "", part: str = "") -> str:
    """An expression for the growth of a counter, or of a histogram's `part`, in the window, summed by labels."""
    series = f"{metric.name}{part or '_total'}{having and '{' + having + '}'}"
    return f"sum by ({', '.join(by)}) ({grown(series)})" if by else f"sum({grown(series)})"


@dataclass(frozen=True)
class Count:
    """How much counters grew, as a rule that records it."""

    name: str
    series: str
    seconds: int
    by: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        by = f"by ({', '.join(self.by)}) " if self.by else ""
        return f"sum {by}({grown(self.series, str(self.seconds))})"


RECORDED = (
    Count("replan:unknown_outcomes:increase15m", f"{metrics.UNKNOWN_OUTCOMES.name}_total", 900, ("tool", "verdict")),
    Count("replan:cost_microusd:increase1h", f"{metrics.COST.name}_total", 3600),
    Count("replan:tasks:increase1h", f"{metrics.TASKS.name}_total", 3600, ("status",)),
    Count("replan:replans:increase1h", f"{metrics.REPLANS.name}_total", 3600),
    Count(
        "replan:failed_workflow_tasks:increase1h",
        'temporal_workflow_task_execution_failed_total{job="replan"}',  # of the SDK
        3600,
        ("namespace", "task_queue"),
    ),
)
"""What alerts are about."""


def quantile(share: float, metric: Metric, *by: str) -> str:
    """An expression for the quantile `share`, such as 0.99, of a histogram's values in the window."""
    return f"histogram_quantile({share:g}, {increase(metric, 'le', *by, part='_bucket')})"


def quantiles(metric: Metric) -> Mapping[str, str]:
    """Expressions for the median and the 99th percentile of a histogram, by legend."""
    return {"median": quantile(0.5, metric), "p99": quantile(0.99, metric)}


def per_task(counter: str) -> str:
    """A counter of `increase` for each task that ended in the window."""
    return f"{counter} / scalar({increase(metrics.TASKS)})"


def recovered(quadrant: Quadrant) -> str:
    """The part of the faults of a quadrant after which a task went on by itself, with a retry or with a new plan."""
    codes = [code.value for code, cell in QUADRANT.items() if cell is quadrant]
    codes += [UNREPORTED] if quadrant is Quadrant.TRANSIENT_INFRASTRUCTURAL else []
    having = f'code=~"{"|".join(codes)}"'
    counters = (metrics.RETRIES, metrics.REPLANS, metrics.ESCALATIONS)
    retries, replans, escalations = (f"({increase(counter, having=having)} or vector(0))" for counter in counters)
    return f"({retries} + {replans}) / ({retries} + {replans} + {escalations})"


def dollars(metric: Metric, *by: str) -> str:
    """An expression for the growth of a counter of micro-dollars in the window, in US dollars."""
    return f"{increase(metric, *by)} / {MICRO}"


OVERVIEW = Dashboard(
    "replan-overview",
    "Replan: overview",
    "What tasks need, how they end, and what becomes of faults.",
    {
        "Tool calls per task": [
            Panel("Tool calls of a task", "Of tasks that ended.", quantiles(metrics.TASK_TOOL_CALLS)),
            Panel("Steps of a task", "Of tasks that ended.", quantiles(metrics.TASK_STEPS)),
        ],
        "Recovery from faults": [
            Panel(
                "Faults that needed no person, by quadrant",
                "After these a task went on with a retry or a new plan. A persistent infrastructural fault always needs"
                " a person, so its part is 0.",
                {quadrant.value.replace("_", " "): recovered(quadrant) for quadrant in Quadrant},
                "percentunit",
            )
        ],
        "Replayed calls": [
            Panel(
                "Tool calls whose recorded result was returned again",
                "Each is a second effect that was prevented: by the ledger, or by a read that found the first one.",
                {"{{how}}": f"{increase(metrics.REPLAYED_RESULTS, 'how')} / scalar({increase(metrics.TOOL_CALLS)})"},
                "percentunit",
            )
        ],
        "Exit reasons": [
            Panel(
                "How tasks ended",
                f"Tasks in the last {WINDOW_TEXT}, by status and code.",
                {"{{status}} {{code}}": increase(metrics.TASKS, "status", "code")},
                is_stacked=True,
            )
        ],
    },
)

FAULTS = Dashboard(
    "replan-faults",
    "Replan: faults",
    "What goes wrong, what it costs, and who waits.",
    {
        "New plans": [
            Panel(
                "Replans per task, by code",
                "The code is that of the fault.",
                {"{{code}}": per_task(increase(metrics.REPLANS, "code"))},
                is_stacked=True,
            ),
            Panel(
                "Time to replan",
                "From a fault to the first step of the new plan.",
                quantiles(metrics.TIME_TO_REPLAN),
                "s",
            ),
        ],
        "Retries": [
            Panel(
                "Retries that 99% of the tasks stay below, by tool",
                f"A task may use {RETRIES_PER_KIND} retries of one tool.",
                {"{{tool}}": quantile(0.99, metrics.RETRY_BUDGET_USED, "tool")},
            ),
            Panel(
                "Wasted attempts",
                "Attempts after a fault that no retry can help. The promise is 0.",
                {"wasted": f"sum({metrics.WASTED_ATTEMPTS.name}_total)"},
                kind="stat",
            ),
        ],
        "People": [
            Panel(
                "Escalations, by code",
                f"Faults that needed a person in the last {WINDOW_TEXT}.",
                {"{{code}}": increase(metrics.ESCALATIONS, "code")},
                is_stacked=True,
            ),
            Panel(
                "Waiting tasks",
                "Tasks that wait for a person, and the causes that several of them share.",
                {
                    "waiting tasks": f"sum(max by (namespace, task_queue) ({metrics.WAITING_TASKS.name}))",
                    "incidents": f"sum(max by (namespace, task_queue) ({metrics.INCIDENTS.name}))",
                },
            ),
            Panel(
                "Age of the oldest request",
                "0 if none is open.",
                {"oldest": f"max({metrics.OLDEST_REQUEST.name})"},
                "s",
            ),
        ],
        "Services": [
            Panel(
                "Circuit breakers",
                "The state of each tool that ever failed. An open one is left alone.",
                {"{{tool}}": f"max by (tool) ({metrics.BREAKER_STATE.name})"},
                kind="state-timeline",
                mappings=((0, "closed", "green"), (1, "half-open", "yellow"), (2, "open", "red")),
            ),
            Panel(
                "Calls that wait for their turn",
                "At a tool or service that is down, limits its callers, or has a limit of your own.",
                {"{{tool}}": f"max by (tool) ({metrics.WAITING_CALLS.name})"},
            ),
            Panel(
                "Patience of waiting calls that is used",
                "The longest wait for a turn, as a part of the time that a call may wait without a success.",
                {"{{tool}}": f"max by (tool) ({metrics.PATIENCE_USED.name})"},
                "percentunit",
            ),
            Panel(
                "Unknown outcomes, by verdict",
                "Calls of which nobody knew whether they were applied, and what was found out.",
                {"{{tool}} {{verdict}}": increase(metrics.UNKNOWN_OUTCOMES, "tool", "verdict")},
            ),
        ],
        "Money": [
            Panel(
                "US dollars, by model",
                f"What requests of the last {WINDOW_TEXT} cost, where the price is known.",
                {"{{provider}} {{model}}": dollars(metrics.MODEL_COST, "provider", "model")},
                "currencyUSD",
                is_stacked=True,
            ),
            Panel(
                "US dollars, by purpose",
                "What tasks paid; a lost reply counts as the most that it may cost.",
                {"{{purpose}}": dollars(metrics.COST, "purpose")},
                "currencyUSD",
                is_stacked=True,
            ),
            Panel(
                "Tokens, by purpose",
                f"Tokens that tasks paid for in the last {WINDOW_TEXT}.",
                {"{{purpose}}": increase(metrics.TOKENS, "purpose")},
                is_stacked=True,
            ),
        ],
    },
)
DASHBOARDS = (OVERVIEW, FAULTS)


def document(dashboard: Dashboard) -> Mapping[str, Any]:
    """A dashboard as Grafana reads it."""
    panels = list[Mapping[str, Any]]()
    for number, (title, row) in enumerate(dashboard.rows.items()):
        top = number * (HEIGHT + 1)
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        # An open row has no panels itself: they stand behind it in the list.
        opened = {"type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}
        panels.append({"id": len(panels) + 1, **opened})
        for column, panel in enumerate(row):
            width = WIDTH // len(row)
            place = {"h": HEIGHT, "w": width, "x": column * width, "y": top + 1}
            panels.append({"id": len(panels) + 1, **_panel(panel), "gridPos": place})
    window = {
        "name": WINDOW.strip("${}"),
        "label": "Look back",
        "type": "custom",
        "query": ", ".join(f"{text} : {seconds}" for text, seconds in WINDOWS.items()),
        "current": {"text": "1h", "value": str(WINDOWS["1h"])},
    }
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["replan"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [window]},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "tags": ["replan"],
                "title": "Replan",
                "icon": "dashboard",
                "tooltip": "",
                "keepTime": True,
                "includeVars": False,
                "asDropdown": False,
                "targetBlank": False,
            }
        ],
        "panels": panels,
    }


def _panel(panel: Panel) -> Mapping[str, Any]:
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.is_stacked else "none"}
        custom = {"fillOpacity": 20 if panel.is_stacked else 0, "stacking": stacking, "showPoints": "auto"}
    shown = {str(value): {"text": text, "color": color} for value, text, color in panel.mappings}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "custom": custom}
    if shown:
        defaults["mappings"] = [{"type": "value", "options": shown}]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": query, "legendFormat": legend}
            for number, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def counts() -> str:
    """The YAML of COUNTS: a recording rule of Prometheus for each of RECORDED."""
    text = COUNTS_HEAD
    for count in RECORDED:
        lines = textwrap.wrap(count.expression, 110, break_on_hyphens=False)
        text += f"      - record: {count.name}\n        expr: >-\n" + textwrap.indent("\n".join(lines), " " * 10) + "\n"
    return text


def files() -> Mapping[Path, str]:
    """The text of each file of FOLDER, and of COUNTS."""
    boards = {FOLDER / f"{board.uid}.json": json.dumps(document(board), indent=1) + "\n" for board in DASHBOARDS}
    return {**boards, COUNTS: counts()}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
