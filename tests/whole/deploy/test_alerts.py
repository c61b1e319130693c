"""Alerts: when they fire and when they do not, by Prometheus' own tool, and what they and the dashboards name."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from maintenance import dashboards
from maintenance.dashboards import DASHBOARDS, WINDOW
from tests.gate import sampled
from tests.processes import ROOT
from tests.whole.deploy.monitoring import FOLDER, document, promtool
from tests.whole.deploy.situations import SITUATIONS, Situation
from workflows.account.metrics import COUNTED, METRICS, OF_ACTIVITIES

RULES = document("alerts.yml")["groups"][0]["rules"]
QUERIES = {
    f"{dashboard.uid}: {panel.title}: {legend}": query.replace(WINDOW, "3600")
    for dashboard in DASHBOARDS
    for row in dashboard.rows.values()
    for panel in row
    for legend, query in panel.queries.items()
}
"""What the panels of the dashboards ask."""
RECORDS = document("counts.yml")["groups"][0]["rules"]
OF_SDK = {"temporal_workflow_task_execution_failed_total"}
"""Metrics of the SDK that are asked for; `test_the_sdk_counts_failed_workflow_tasks` has a worker count them."""
QUICK = ("one failed scrape", "first counts", "gauges: two workers see the same", "one of two is not found any more")


@pytest.mark.parametrize("situation", sampled({name: [one] for name, one in SITUATIONS.items()}, *QUICK))
def test_exactly_these_alerts_fire(situation: Situation, tmp_path: Path) -> None:
    """In these minutes, whatever scrapes fail and whichever workers start again."""
    rules = [str(FOLDER / name) for name in document("prometheus.yml")["rule_files"]]
    (file := tmp_path / "situation.yml").write_text(yaml.safe_dump(situation.as_promtool(rules), sort_keys=False))

    done = promtool("test", "rules", file)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_in_a_situation_and_what_it_says_is_compared() -> None:
    """So no rule is without a test."""
    compared = {name for one in SITUATIONS.values() for name, firing in one.fires.items() if firing.said}

    assert compared == {rule["alert"] for rule in RULES}


def test_each_alert_has_a_runbook_with_its_command() -> None:
    """A section of the page with the three parts that somebody needs at night; its own tests run the command."""
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    parts = [part for part in re.split(r"^#+ ", page, flags=re.MULTILINE) if part]
    found = {part.splitlines()[0].lower(): " ".join(part.split()) for part in parts}
    wrong = list[tuple[str, str]]()
    for rule in RULES:
        name, said = rule["alert"], rule["annotations"]
        command = said["command"].replace("{{ $labels.code }}", "conflict")
        words = ("**Meaning.**", "**Look.**", "**Do.**", command)
        wrong += [(name, word) for word in words if word not in found.get(name.lower(), "")]
        wrong += [] if said["runbook"] == f"docs/observability.md#{name.lower()}" else [(name, said["runbook"])]

    assert wrong == []


def test_each_expression_parses(tmp_path: Path) -> None:
    """Of the dashboards, as rules, since Prometheus' tool reads no others."""
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(QUERIES.values())]
    (file := tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    done = promtool("check", "rules", file)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_expression_names_only_metrics_that_exist() -> None:
    """Those of the dashboards, of the alerts and of the rules that these are about."""
    records = {rule["record"] for rule in RECORDS}
    expressions = [*QUERIES.values(), *(rule["expr"] for rule in [*RULES, *RECORDS])]

    assert {name for expression in expressions for name in _names(expression)} <= {
        *_exported(),
        *records,
        *OF_SDK,
        "up",
    }
    assert records == {name for rule in RULES for name in _names(rule["expr"]) if ":" in name}


def _names(expression: str) -> set[str]:
    """The names of metrics in an expression of PromQL."""
    text = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|(by|on|without|ignoring) \([^)]*\)', " ", expression)
    return set(re.findall(r"\b(?:replan_\w+|replan:[\w:]+|temporal_\w+|up)\b", text))


def _exported() -> Iterator[str]:
    """The names of Replan's metrics as Prometheus has them."""
    for metric in METRICS:
        if metric.buckets:
            yield from (f"{metric.name}{part}" for part in ("_bucket", "_sum", "_count"))
        else:
            yield f"{metric.name}_total" if metric in (*COUNTED, *OF_ACTIVITIES) else metric.name


@pytest.mark.full
def test_grafana_s_own_types_take_the_dashboards(tmp_path: Path) -> None:
    """Strictly: an unknown field, a missing one or a value of another type is an error. Go builds it, once."""
    if (go := shutil.which("go")) is None:
        pytest.skip("Go is not installed, which builds what reads dashboards: https://go.dev/dl.")
    files = list(dashboards.FOLDER.iterdir())
    (wrong := tmp_path / "wrong.json").write_text(files[0].read_text().replace('"expr":', '"query":', 1))
    command = [go, "run", ".", *map(str, [*files, wrong])]
    done = subprocess.run(command, cwd=Path(__file__).parent / "grafana", capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{wrong} panels[1].targets[0]")
    assert len(done.stdout.split(str(wrong))) == 2
