"""`worker.py --metrics`: where it can be served, and what it counts."""

import asyncio
import math
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.runtime import LoggingConfig, Runtime
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from activities.boundary.breakers.rows import Breakers
from activities.planning.model_planner import ModelPlanner
from activities.storage.store import open_store, sqlite_url
from client.replay import replayer
from evals.fakes.model_api import running
from evals.fakes.script import DROPPED, finishes, proposes, step as written
from replan import CircuitBreaker, Refused, Unreachable, tool
from runtime import prometheus
from runtime.client import connect
from runtime.dev_server import DevServer, free_port
from runtime.settings import BadSetting
from tests.harness import staged
from tests.processes import ROOT, Processes
from tests.providers.desk import Article, Price
from tests.providers.planning import api_of, model_of
from tests.scraping import Scraped, read, scrape
from workflows.account.metrics import BREAKER_STATE, COUNTED, METRICS, OF_ACTIVITIES, Sample
from workflows.account.task import Task
from workflows.plans.catalogue import Price as ModelPrice

BAD_ADDRESSES = {
    "nonsense": "is no address",
    "localhost": "is no address",
    "0": "is no address",
    "127.0.0.1:70000": "is no address",
    "metrics.example:9464": "is no address",
    "::1:9464": "is no address",
    "203.0.113.7:9464": "cannot be served at 203.0.113.7:9464 (Cannot assign requested address)",
}
PRICE = ModelPrice(input=2, output=10, cache_read=2, cache_write=2)
PLAN = [written("price", "get_price", sku="A-17"), written("rare", "get_rare", sku="B-2")]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_an_address_that_cannot_be_used_is_a_sentence(address: str) -> None:
    with pytest.raises(BadSetting) as raised:
        prometheus.runtime(LoggingConfig.default, address)

    assert BAD_ADDRESSES[address] in str(raised.value) and "--metrics" in str(raised.value)


@pytest.mark.parametrize("host", ["", ":", "localhost:", "127.0.0.1:", "[::1]:"])
def test_metrics_are_for_this_machine_unless_an_address_is_given(host: str) -> None:
    port = free_port()
    own = prometheus.runtime(LoggingConfig.default, f"{host}{port}")

    scraped = scrape(f"{'[::1]' if '::' in host else '127.0.0.1'}:{port}")

    assert own.metric_meter and scraped == {}


@pytest.mark.full
def test_a_port_that_is_taken_stops_only_a_worker_that_serves(tmp_path: Path) -> None:
    processes = Processes("localhost:1", tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        processes.environment["REPLAN_METRICS"] = address
        done, check = processes.asked(), processes.asked("--check")

    assert (done.returncode, done.stdout, check.returncode) == (2, "", 0)
    assert done.stderr.startswith(f"Metrics cannot be served at {address} (Address already in use): give --metrics")


def test_the_page_lists_every_metric() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(replan_\w+)` \| (.*?) ?\|", page, flags=re.MULTILINE)
    counters = {one for one in (*COUNTED, *OF_ACTIVITIES) if not one.buckets}

    assert [(name, tuple(re.findall(r"`(\w+)`", labels))) for name, labels in rows] == [
        (f"{one.name}_total" if one in counters else one.name, one.labels) for one in METRICS
    ]


@tool.read(breaker=CircuitBreaker(failures=2, calls=1, recovery=0.05))
async def get_price(args: Article) -> Price:
    """Look up a price; the first two times nobody answers."""
    TRIES.append(args.sku)
    if len(TRIES) < 3:
        raise Unreachable("Nobody answers.")
    return Price(amount=24.5)


@tool.read
async def get_rare(args: Article) -> Price:
    """Look up the price of what is not sold any more."""
    raise Refused("It is not sold.", code="not_found")


TRIES: list[str] = []
BILLED = ("input", "output", "cache_read", "cache_write")
SPENT = {"replan_model_tokens_total", "replan_model_cost_microusd_total", "replan_tokens_total"}
SPENT |= {"replan_cost_microusd_total", "replan_start_time_seconds"}
EXPECTED = {
    ("replan_attempt_duration_seconds_count", ("ok", "catalogue")): 1,
    ("replan_attempt_duration_seconds_count", ("ok", "get_price")): 2,
    ("replan_attempt_duration_seconds_count", ("ok", "plan")): 1,
    ("replan_attempt_duration_seconds_count", ("ok", "replan")): 1,
    ("replan_attempt_duration_seconds_count", ("persistent_fail", "get_rare")): 1,
    ("replan_attempt_duration_seconds_count", ("retried", "plan")): 1,
    ("replan_attempt_duration_seconds_count", ("transient_fail", "get_price")): 2,
    ("replan_attempt_duration_seconds_count", ("transient_fail", "plan")): 1,
    ("replan_breaker_state", ("get_price",)): 0,
    ("replan_breaker_transitions_total", ("closed", "get_price")): 1,
    ("replan_breaker_transitions_total", ("half_open", "get_price")): 1,
    ("replan_breaker_transitions_total", ("open", "get_price")): 1,
    ("replan_budget_left_ratio_count", ("replans",)): 1,
    ("replan_budget_left_ratio_count", ("tokens",)): 1,
    ("replan_budget_left_ratio_count", ("tool_calls",)): 1,
    ("replan_incidents", ()): 0,
    ("replan_oldest_request_seconds", ()): 0,
    ("replan_patience_used_ratio", ("get_price",)): 0,
    ("replan_planner_calls_total", ("plan",)): 3,
    ("replan_planner_calls_total", ("replan",)): 1,
    ("replan_planner_retries_total", ("unreachable", "plan")): 1,
    ("replan_replans_total", ("not_found", "1")): 1,
    ("replan_retries_total", ("unreachable", "get_price")): 2,
    ("replan_helped_retries_total", ("unreachable", "get_price")): 2,
    ("replan_retry_budget_used_count", ("get_price",)): 1,
    ("replan_retry_budget_used_count", ("get_rare",)): 1,
    ("replan_retry_delay_seconds_count", ("unreachable", "get_price")): 1,
    ("replan_task_duration_seconds_count", ("completed",)): 1,
    ("replan_task_steps_count", ()): 1,
    ("replan_task_tool_calls_count", ()): 1,
    ("replan_tasks_total", ("", "completed")): 1,
    ("replan_time_to_replan_seconds_count", ()): 1,
    ("replan_tool_calls_total", ("get_price",)): 4,
    ("replan_tool_calls_total", ("get_rare",)): 1,
    ("replan_waiting_calls", ("get_price",)): 0,
    ("replan_waiting_tasks", ()): 0,
    ("replan_wasted_attempts_total", ()): 0,
}


@pytest.fixture
def place() -> Iterator[tuple[Runtime, str]]:
    """A runtime with metrics, and where they are."""
    address = f"127.0.0.1:{free_port()}"
    yield prometheus.runtime(LoggingConfig.default, address), address


async def test_a_task_is_counted_once(server: DevServer, tmp_path: Path, place: tuple[Runtime, str]) -> None:
    TRIES.clear()
    began, (own, address) = time.time(), place
    client = await connect(address=server.address, plain=True, runtime=own)
    script = [proposes(*PLAN), proposes(written("again", "get_price", sku="A-17")), finishes("It costs 24.50.")]
    async with running(api_of("anthropic", DROPPED, *script)) as api:
        planner = ModelPlanner(model_of("anthropic", api), price=PRICE)
        async with staged(client, tmp_path, [get_price, get_rare], planner, jitter=lambda: 0.1) as stage:
            handle = await stage.start(Task(text="What does it cost?"))
            outcome = await handle.result()
            store = await open_store(sqlite_url(tmp_path))
            async with prometheus.sampled(client, stage.queue, Breakers(store).samples, True):
                found = await _until_sampled(address)
            await store.dispose()
    history = await handle.fetch_history()
    before, model = scrape(address), f"some-model@{api.url.removeprefix('http://')}"
    config: dict[str, Any] = {**replayer().config(), "runtime": own}
    await Replayer(**config).replay_workflow(WorkflowHistory(handle.id, history.events))

    assert scrape(address) == before
    assert 0 < found["replan_start_time_seconds", ()] - began < time.time() - began
    assert {name: number for name, number in found.items() if name[0] not in SPENT} == {
        **EXPECTED,
        ("replan_model_calls_total", (model, "anthropic")): outcome.spent.model_calls,
        ("replan_model_lost_replies_total", (model, "anthropic")): 1,
    }
    assert outcome.spent.tokens == sum(found[name] for name in found if name[0] == "replan_tokens_total")
    assert api.billed == sum(found["replan_model_tokens_total", (model, "anthropic", one)] for one in BILLED)


async def _until_sampled(address: str) -> Scraped:
    while ("replan_incidents", ()) not in (found := scrape(address)):
        await asyncio.sleep(0.05)
    return found


@workflow.defn
class Broken:
    """A workflow whose code has a mistake."""

    @workflow.run
    async def run(self) -> None:
        """Raise what no workflow of Replan raises."""
        raise RuntimeError


async def test_the_sdk_counts_failed_workflow_tasks(server: DevServer, place: tuple[Runtime, str]) -> None:
    client = await connect(address=server.address, plain=True, runtime=place[0])
    async with Worker(client, task_queue="broken", workflows=[Broken], workflow_runner=UnsandboxedWorkflowRunner()):
        handle = await client.start_workflow(Broken.run, id="broken", task_queue="broken")
        while "workflow_task_execution_failed" not in (text := read(place[1])):
            await asyncio.sleep(0.05)
        await handle.terminate()
    [line] = [line for line in text.splitlines() if line.startswith("temporal_workflow_task_execution_failed_total{")]

    assert {'failure_reason="WorkflowError"', 'namespace="default"', 'task_queue="broken"'} <= set(
        re.findall(r'\w+="[^"]*"', line)
    )


async def test_a_store_that_cannot_be_read_leaves_the_worker_alone(
    server: DevServer, place: tuple[Runtime, str]
) -> None:
    """The log says once why, and a gauge that nobody knows any more has no value; the others are sampled on."""
    client, reads = await connect(address=server.address, plain=True, runtime=place[0]), iter(range(100))

    async def breaking() -> list[Sample]:
        if next(reads):
            raise TimeoutError
        return [Sample(BREAKER_STATE, ("pay",), 2)]

    with capture_logs() as lines:
        async with prometheus.sampled(client, "a-queue", breaking, True, every=0.1):
            while not math.isnan((found := scrape(place[1]))["replan_breaker_state", ("pay",)]):
                await asyncio.sleep(0.05)

    assert [(line["event"], line["error"]) for line in lines] == [("gauges_unknown", "TimeoutError")]
    assert found["replan_incidents", ()] == 0
