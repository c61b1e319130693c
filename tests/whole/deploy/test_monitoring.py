"""Dashboards and alerts: each query is asked a real Prometheus that scraped a real worker after a real workload."""

import asyncio
from pathlib import Path

import pytest
import yaml
from temporalio.client import Client

from evals.fakes.model_api import running as model_running
from evals.fakes.script import finishes, proposes, step as written
from maintenance import dashboards
from runtime.dev_server import DevServer, free_port
from tests.harness import outcome, step
from tests.processes import ROOT, Processes
from tests.providers.planning import MAKER, api_of
from tests.providers.test_worker import DEFAULTS, environment
from tests.whole.deploy import monitoring
from tests.whole.deploy.composition import on_host, services
from tests.whole.deploy.monitoring import Prometheus, document, promtool
from tests.whole.deploy.test_alerts import QUERIES
from workflows.account.metrics import BREAKER_STATE, INCIDENTS, OLDEST_REQUEST, WAITING_TASKS
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Answer, NewSteps, Step

QUEUE = "watched"
PROVOKED = {"ReplanBreakerOpen", "ReplanIncidentOpen", "ReplanSpendRate", "ReplanUnknownOutcome"}
"""Alerts whose conditions the workload meets; those with a `for:` are pending."""
GAUGES = {WAITING_TASKS.name: 2, INCIDENTS.name: 1, f'{BREAKER_STATE.name}{{tool="knock"}}': 2}
"""What the workload leaves behind."""
TRIES = 120
"""How often Prometheus is asked, twice a second: it scrapes once a second, and a worker samples its gauges every 15."""


def test_the_dashboards_are_those_of_the_table() -> None:
    """After a change: `python -m maintenance.dashboards`."""
    there = {file: file.read_text(encoding="utf-8") for file in [*dashboards.FOLDER.iterdir(), dashboards.COUNTS]}

    assert there == dashboards.files()


def test_prometheus_takes_the_files() -> None:
    """Its own tool accepts the configuration and the rules."""
    done = promtool("check", "config", "prometheus.yml")

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_services_find_each_other() -> None:
    """Prometheus scrapes the port of the workers, Grafana asks Prometheus and shows the dashboards."""
    worker, prometheus, grafana = (services()[name] for name in ("worker", "prometheus", "grafana"))
    [job] = document("prometheus.yml")["scrape_configs"]
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "replan.yml").read_text())["providers"]
    home = grafana.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    config = next(word.partition("=")[2] for word in prometheus.runs if word.startswith("--config.file="))

    assert job["dns_sd_configs"][0]["names"] == [worker.name]
    assert worker.environment["REPLAN_METRICS"].endswith(f":{job['dns_sd_configs'][0]['port']}")
    assert on_host(config, prometheus) == monitoring.FOLDER / "prometheus.yml"
    assert (source["url"], source["uid"]) == ("http://prometheus:9090", dashboards.DATASOURCE["uid"])
    assert on_host(provider["options"]["path"], grafana) == dashboards.FOLDER
    assert on_host(home, grafana) in dashboards.files()


def plan(*kinds: str) -> tuple[Step, ...]:
    """Steps without arguments."""
    return tuple(step(f"s{number}", kind) for number, kind in enumerate(kinds))


BY_HAND = [
    Task(text="pay", plan=plan("pay"), plan_only=True),
    Task(text="wait", plan=plan("blink", "queue_up"), plan_only=True),
    Task(
        text="replan",
        plan=plan("look_up", "blink"),
        revisions=(NewSteps(steps=(step("n", "queue_up"),)), Answer(result="done")),
    ),
]
LEFT_OPEN = [
    Task(text="send", plan=plan("send"), plan_only=True, on_escalation="wait"),
    Task(text="unlock", plan=plan("unlock"), plan_only=True, on_escalation="wait"),
    Task(text="knock", plan=plan("knock"), plan_only=True),
]


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_no_query_comes_back_empty(server: DevServer, client: Client, tmp_path: Path) -> None:
    """Each panel has data, each rule can be evaluated, and the alerts whose conditions are met say so."""
    port = free_port()
    api = api_of("anthropic", proposes(written("a", "blink")), finishes("Done."))
    api.model = DEFAULTS["anthropic"]
    async with model_running(api), monitoring.running(tmp_path, f"127.0.0.1:{port}") as prometheus:
        settings = tmp_path / "replan.toml"
        name = f"{MAKER['anthropic']}:{api.model}@{api.url.removeprefix('http://')}"
        settings.write_text(f'[models.prices."{name}"]\ninput = 90000\noutput = 90000\n')
        processes = Processes(server.address, tmp_path, {**environment("anthropic", api), "REPLAN_METRICS": str(port)})
        tools = ["--tools", str(ROOT / "tests" / "deploy" / "workload.py"), "--settings", str(settings)]
        with processes.worker("--queue", QUEUE, *tools):
            tasks = [Task(text="by a model"), *BY_HAND, *LEFT_OPEN]
            handles = [
                await client.start_workflow(AgentWorkflow.run, task, id=f"watched-{number}", task_queue=QUEUE)
                for number, task in enumerate(tasks)
            ]
            ended = [await outcome(handle) for handle in handles[: 1 + len(BY_HAND)]]
            empty, provoked = await _asked(prometheus)
            assert (empty, PROVOKED - provoked) == ([], set()), [one.reason for one in ended]
            assert [prometheus.values(gauge)[0][1] for gauge in GAUGES] == list(GAUGES.values())
            assert prometheus.values(f"{OLDEST_REQUEST.name} > 0")
        while prometheus.states()["ReplanNoWorker"] == "inactive":
            await asyncio.sleep(0.5)
    for handle in handles[1 + len(BY_HAND) :]:
        await handle.terminate()


async def _asked(prometheus: Prometheus) -> tuple[list[str], set[str]]:
    """The queries without data, and the alerts that are not inactive, as soon as all is as it should be."""
    for _ in range(TRIES):
        empty = [title for title, query in QUERIES.items() if not prometheus.values(query)]
        provoked = {name for name, state in prometheus.states().items() if state != "inactive"}
        if not empty and provoked >= PROVOKED:
            break
        await asyncio.sleep(0.5)
    return empty, provoked
