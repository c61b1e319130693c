"""Serves a worker's metrics to Prometheus, and samples the gauges whose values are in the store or on the server."""

import asyncio
import ipaddress
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import structlog
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.runtime import LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig

from runtime.settings import BadSetting
from workflows.account import search_attributes
from workflows.account.metrics import (
    INCIDENTS,
    METRICS,
    OLDEST_REQUEST,
    STARTED,
    WAITING_TASKS,
    WASTED_ATTEMPTS,
    Sample,
    add,
)
from workflows.account.task import TaskStatus
from workflows.agent import REQUEST_MEMO
from workflows.people.requests import HumanRequest

SAMPLE_SECONDS = 15.0
MAX_WAITING = 1000
"""The most waiting tasks that are counted, the newest: as many as the server sends at once."""
ADDRESS = re.compile(r"(?:(?P<host>[^:]*|\[.*\]):)?(?P<port>\d{1,5})")

log = structlog.get_logger("replan.metrics")

Source = Callable[[], Awaitable[Sequence[Sample]]]
"""Returns the present samples of some gauges; may raise any exception."""


def runtime(logging: LoggingConfig, address: str | None) -> Runtime:
    """The runtime of the SDK; with an `address` it serves the SDK's metrics and Replan's at http://ADDRESS/metrics.

    Raises:
        BadSetting: nothing can be served at the address.
    """
    if address is None:
        return Runtime(telemetry=TelemetryConfig(logging=logging))
    bound = _ip_and_port(address)
    prometheus = PrometheusConfig(
        bound,
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides={metric.name: metric.buckets for metric in METRICS if metric.buckets},
    )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logging, metrics=prometheus, attach_service_name=False))
    except ValueError as error:  # the SDK raises its Rust core's text
        found = re.search(r": (.*?) \(os error", str(error))
        raise BadSetting(
            f"Metrics cannot be served at {bound} ({found[1] if found else error}): give --metrics an address of"
            " this machine, and a port that no worker and no other program has."
        ) from None


def _ip_and_port(address: str) -> str:
    """The address as IP:PORT, with the loopback IP if it has no host; raise BadSetting if it is no address."""
    found = ADDRESS.fullmatch(address.strip())
    host, port = (found["host"], int(found["port"])) if found else ("", 0)
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host in (None, "", "localhost") else host.strip("[]"))
    except ValueError:
        port = 0
    if not 0 < port < 2**16:
        raise BadSetting(
            f"--metrics {address!r} is no address: give a port, as in 9464, or IP:PORT, as in 0.0.0.0:9464 for all of"
            " this machine's addresses."
        )
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


@asynccontextmanager
async def sampled(
    client: Client, queue: str, breakers: Source, is_searchable: bool, every: float = SAMPLE_SECONDS
) -> AsyncIterator[None]:
    """Sample the gauges at intervals of `every` seconds while the block runs, if the client's runtime has metrics.

    `breakers` returns the samples of all circuit breakers. The gauges of waiting tasks are sampled only if the
    namespace has Replan's search attributes (`is_searchable`).
    """
    meter = meter_of(client, queue)
    if meter is MetricMeter.noop:
        yield
        return
    # A counter that stays at zero would not be there at all, as if nothing had been counted.
    _runtime_of(client).metric_meter.create_counter(WASTED_ATTEMPTS.name, WASTED_ATTEMPTS.description).add(0)
    add(meter, [Sample(STARTED, (), time.time())])
    sources: list[Source] = [breakers, *([partial(_waiting, client, queue)] if is_searchable else [])]
    sampling = asyncio.create_task(_sample(meter, sources, every))
    try:
        yield
    finally:
        sampling.cancel()


def meter_of(client: Client, queue: str) -> MetricMeter:
    """The meter for what a worker of `queue` does outside of its activities; `noop` if there are no metrics."""
    own = _runtime_of(client).metric_meter
    if own is MetricMeter.noop:
        return own
    return own.with_additional_attributes({"namespace": client.namespace, "task_queue": queue})


def _runtime_of(client: Client) -> Runtime:
    return client.service_client.config.runtime or Runtime.default()


async def _sample(meter: MetricMeter, sources: Sequence[Source], every: float) -> None:
    """Set the gauges every `every` seconds; set one that has no sample any more to NaN, for which no alert fires."""
    is_known, earlier = True, list[Sample]()
    while True:
        samples, errors = list[Sample](), list[Exception]()
        for source in sources:
            try:
                samples += await source()
            except Exception as error:  # whatever is wrong with the server or the store, the worker goes on
                errors.append(error)
        if errors and is_known:  # once for an outage
            log.warning("gauges_unknown", error=type(errors[0]).__name__, remedy="check the server and the store")
        is_known = not errors
        present = {(sample.metric, sample.labels) for sample in samples}
        gone = [sample for sample in earlier if (sample.metric, sample.labels) not in present]
        # The SDK would go on to serve the last value.
        add(meter, [*samples, *(sample._replace(value=math.nan) for sample in gone)])
        earlier = samples
        await asyncio.sleep(every)


async def _waiting(client: Client, queue: str) -> list[Sample]:
    """The samples of the tasks of a queue that wait for a person."""
    is_waiting = f'{search_attributes.STATUS.name} = "{TaskStatus.WAITING}"'
    query = f'TaskQueue = "{queue}" AND ExecutionStatus = "Running" AND {is_waiting}'
    now = oldest = datetime.now(UTC)
    tasks, causes = 0, set[str]()
    async for row in client.list_workflows(query, page_size=MAX_WAITING, limit=MAX_WAITING):
        request = await row.memo_value(REQUEST_MEMO, None, type_hint=HumanRequest)
        tasks, oldest = tasks + 1, min(oldest, request.since if request else row.start_time)
        causes.update(row.typed_search_attributes.get(search_attributes.INCIDENTS) or ())
    return [
        Sample(WAITING_TASKS, (), tasks),
        Sample(OLDEST_REQUEST, (), (now - oldest).total_seconds()),
        Sample(INCIDENTS, (), len(causes)),
    ]
