"""`FaultsPlugin` in company: other forms of activities, codecs, converters, interceptors, plugins, the sandbox."""

import asyncio
import logging
import multiprocessing
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from temporalio import activity, client
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.converter import (
    BinaryPlainPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    JSONPlainPayloadConverter,
)
from temporalio.plugin import SimplePlugin
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, SharedStateManager, Worker

from evals.fakes.http_server import reply, serving
from replan import FaultsPlugin
from runtime.dev_server import DevServer
from tests.faults.company import ACTIVITIES, IN_PROCESS, Caller, Patient, attempt, refuse_it
from tests.own_worker import CONVERTER
from tests.processes import ROOT

FINAL = ["PermissionError", "no entry", True, "forbidden"]


class Place:
    """A server, a folder, a client of its own, and the calls that were made there."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.folder, self.queue = client, folder, f"company-{uuid4().hex[:8]}"

    @asynccontextmanager
    async def worker(self, *plugins: Any, **options: Any) -> AsyncIterator[Worker]:
        """A worker with these plugins, and the SDK's sandbox."""
        ours: dict[str, Any] = {"workflows": [Caller, Patient], "activities": ACTIVITIES}
        with ThreadPoolExecutor(2) as threads:
            ours["activity_executor"] = threads
            async with Worker(self.client, task_queue=self.queue, plugins=plugins, **ours | options) as worker:
                yield worker

    async def call(self, name: str) -> tuple[list[Any], int, WorkflowHistory]:
        """How a call ended, how many attempts were made, and the history."""
        id = f"{self.queue}-{uuid4().hex[:8]}"
        file = self.folder / id
        handle = await self.client.start_workflow(Caller.run, args=[name, str(file)], id=id, task_queue=self.queue)
        ended = await asyncio.wait_for(handle.result(), 60)
        return ended, attempts(file), await handle.fetch_history()


def attempts(file: Path) -> int:
    """How many attempts noted themselves in a file."""
    return len(file.read_text().splitlines()) if file.exists() else 0


async def connected(server: DevServer, folder: Path, **options: Any) -> Place:
    """A place whose client has these options."""
    return Place(await Client.connect(server.address, **options), folder)


@pytest.fixture
async def place(server: DevServer, tmp_path: Path) -> Place:
    """A place whose client is the SDK's usual one."""
    return await connected(server, tmp_path)


# --- forms of activities


async def test_each_form_of_an_activity_is_looked_after(place: Place) -> None:
    """Methods of classes, objects, and one function for all names; a transient error is retried, as before."""
    once, again = ("method", "method_in_thread", "object", "any_name"), ("method_again", "other_name")
    async with place.worker(FaultsPlugin()):
        found = {name: (await place.call(name))[:2] for name in (*once, *again)}

    assert found == dict.fromkeys(once, (FINAL, 1)) | dict.fromkeys(again, (["done"], 2))


@contextmanager
def processes() -> Iterator[dict[str, Any]]:
    """The options of a worker whose activities run in another process."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(1, mp_context=context) as executor:
        shared = SharedStateManager.create_from_multiprocessing(manager)
        yield {"activities": IN_PROCESS, "activity_executor": executor, "shared_state_manager": shared}


@pytest.fixture(scope="module")
def pool() -> Iterator[dict[str, Any]]:
    """Those of a pool that lasts."""
    with processes() as options:
        yield options


@pytest.mark.full
@pytest.mark.parametrize("plugin", [{}, {"effects": {"in_process": "unkeyed"}}], ids=["plain", "unkeyed"])
async def test_an_activity_in_another_process_is_looked_after(
    place: Place, pool: dict[str, Any], plugin: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """There the SDK has no meter, and what is sent is not counted."""
    with caplog.at_level(logging.WARNING, "replan.faults"):
        async with place.worker(FaultsPlugin(**plugin), disable_eager_activity_execution=True, **pool):
            final, again = await place.call("in_process"), await place.call("in_process_again")

    assert (final[:2], again[:2]) == ((FINAL, 1), (["done"], 2))
    assert [vars(record)["saved_attempts"] for record in caplog.records if record.name == "replan.faults"] == [2]


@pytest.mark.full
@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ([], ("done", 2)),
        ([FaultsPlugin()], ("done", 2)),
        ([FaultsPlugin(strict=True)], ("done", 2)),
        ([FaultsPlugin(effects={"end_the_pool": "unkeyed"})], ("UnknownOutcome", 1)),
    ],
    ids=["without", "plain", "strict", "unkeyed"],
)
async def test_a_pool_that_broke_ends_its_worker_as_before(
    place: Place, plugins: list[Any], expected: tuple[str, int]
) -> None:
    """The next worker, with a pool that works, makes the next attempt, if the call may be repeated."""
    fatal = list[BaseException]()

    async def note(error: BaseException) -> None:
        fatal.append(error)

    with processes() as options:
        worker = Worker(
            place.client,
            task_queue=place.queue,
            workflows=[Caller],
            plugins=plugins,
            on_fatal_error=note,
            **options,
        )
        running = asyncio.create_task(worker.run())
        call = asyncio.create_task(place.call("end_the_pool"))
        done, _ = await asyncio.wait([running], timeout=40)
        if not done:
            await worker.shutdown()
        await asyncio.gather(running, return_exceptions=True)
    with processes() as options:
        async with place.worker(*plugins, on_fatal_error=note, **options):
            ended, tried, _ = await call

    assert [type(error.__cause__).__name__ for error in fatal] == ["BrokenProcessPool"]
    assert (ended[0], tried) == expected


async def test_nothing_is_proven_of_an_activity_of_a_framework(place: Place) -> None:
    """It stands in an installed package, and calls a tool of the program: nobody sees which libraries that uses.

    So a charge that may have had its effect is not repeated.
    """

    @activity.defn(name="of_a_framework")
    async def call_tool(file: str) -> str:
        attempt(file)
        return (await http.post(url)).raise_for_status().text

    call_tool.__module__ = "pydantic.functional_tools"
    plugin = FaultsPlugin(effects={"of_a_framework": "unkeyed"})
    async with (
        serving(reply(429, retry_after="0.05"), reply(200)) as url,
        httpx2.AsyncClient() as http,
        place.worker(plugin, activities=[call_tool]),
    ):
        ended, tried, _ = await place.call("of_a_framework")

    assert (ended[0], ended[2:], tried) == ("HTTPStatusError", [True, "rate_limited"], 1)


@pytest.mark.parametrize("name", ["method", pytest.param("in_process", marks=pytest.mark.full)])
async def test_a_skipped_retry_is_counted(
    server: DevServer, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    """By the meter of the worker's runtime, also of an activity in another process."""
    metrics = MetricBuffer(10_000)
    place = await connected(
        server, tmp_path, runtime=Runtime(telemetry=TelemetryConfig(metrics=metrics), worker_heartbeat_interval=None)
    )
    options = request.getfixturevalue("pool") if name == "in_process" else {}
    async with place.worker(FaultsPlugin(), disable_eager_activity_execution=True, **options):
        await place.call(name)
    counted = {
        update.metric.name: (update.value, {key: update.attributes[key] for key in ("tool", "code", "activity_type")})
        for update in metrics.retrieve_updates()
        if update.metric.name.startswith("replan_")
    }

    labels = {"tool": name, "code": "forbidden", "activity_type": name}
    assert counted == {"replan_retries_skipped": (1, labels), "replan_attempts_saved": (2, labels)}


# --- codecs, converters, interceptors and plugins


class OnlyTexts(JSONPlainPayloadConverter):
    """Converts what workflows here give, and no dict."""

    def to_payload(self, value: Any) -> Payload | None:
        if isinstance(value, dict):
            raise TypeError("no dict is converted here")
        return super().to_payload(value)


class Texts(CompositePayloadConverter):
    """A payload converter that takes no dict."""

    def __init__(self) -> None:
        super().__init__(BinaryPlainPayloadConverter(), OnlyTexts())


class Spy(client.Interceptor, Interceptor):
    """An interceptor of the program's own, which notes what it sees raised, and what was raised before."""

    def __init__(self, *expected: tuple[str, str]) -> None:
        self.seen, self.expected = list[tuple[str, str]](), [*expected]

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Look at each exception."""
        spy = self

        class Looking(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                try:
                    return await self.next.execute_activity(input)
                except Exception as error:
                    spy.seen.append((type(error).__name__, type(error.__context__).__name__))
                    raise

        return Looking(next)


class Failing(Interceptor):
    """An interceptor that raises an error of its own before the activity."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        class Raising(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                raise PermissionError("no entry")

        return Raising(next)


AS_IT_IS = ("PermissionError", "NoneType")
COMPANY: dict[str, tuple[dict[str, Any], list[FaultsPlugin], dict[str, Any], tuple[list[Any], int]]] = {
    # `Client.connect(..., plugins=[FaultsPlugin()])` is the line, too; with the worker's it is one.
    "a client with the plugin": ({"plugins": [FaultsPlugin()]}, [], {}, (FINAL, 1)),
    "the plugin twice": ({"plugins": [FaultsPlugin()]}, [FaultsPlugin()], {}, (FINAL, 1)),
    # The failure has no detail then, and is final all the same.
    "a converter that takes no dict": (
        {"data_converter": DataConverter(payload_converter_class=Texts)},
        [FaultsPlugin()],
        {},
        ([*FINAL[:3], ""], 1),
    ),
    # The SDK takes it for an error of the activity.
    "an interceptor that fails": ({}, [FaultsPlugin()], {"interceptors": [Failing()]}, (FINAL, 0)),
    # The SDK puts those of the client around all others.
    "interceptors of both": (
        {"interceptors": [Spy(("ApplicationError", "PermissionError"))]},
        [FaultsPlugin()],
        {"interceptors": [Spy(AS_IT_IS)]},
        (FINAL, 1),
    ),
}
"""By name, the options of the client, the plugins and options of the worker, the end and the attempts."""


@pytest.mark.filterwarnings("ignore:The same plugin type")
@pytest.mark.parametrize("name", COMPANY)
async def test_the_line_is_the_line_in_any_company(
    server: DevServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Converters, interceptors and the plugin itself: a client has its own, which its workers get."""
    of_client, plugins, of_worker, expected = COMPANY[name]
    place = await connected(server, tmp_path, **of_client)
    with caplog.at_level(logging.WARNING, "replan.faults"):
        async with place.worker(*plugins, **of_worker):
            ended, tried, _ = await place.call("method")
    interceptors = [one for options in (of_client, of_worker) for one in options.get("interceptors", ())]

    assert (ended, tried) == expected
    assert [one.seen for one in interceptors if isinstance(one, Spy) and one.seen != one.expected] == []
    assert len([record for record in caplog.records if record.name == "replan.faults"]) == 1


async def test_a_codec_encrypts_the_fault_too(server: DevServer, tmp_path: Path) -> None:
    """With encoded attributes nothing of the message or of the Fault is readable at the server."""
    converter = replace(CONVERTER, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    place = await connected(server, tmp_path, data_converter=converter)
    async with place.worker(FaultsPlugin()):
        ended, tried, history = await place.call("method")
    text = history.to_json()

    assert (ended, tried) == (FINAL, 1)
    assert "Encoded failure" in text and "no entry" not in text and "forbidden" not in text


@pytest.mark.parametrize("is_first", [True, False])
async def test_the_order_of_plugins_does_not_matter(place: Place, is_first: bool) -> None:
    """The other one brings activities, and interceptors that see exceptions as they are."""
    spy = Spy()
    other = SimplePlugin("mine", activities=[refuse_it], interceptors=[spy])
    plugins = [FaultsPlugin(), other] if is_first else [other, FaultsPlugin()]
    async with place.worker(*plugins, activities=ACTIVITIES[:1]):
        ended, tried, _ = await place.call("refuse_it")

    assert (ended, tried, spy.seen) == (FINAL, 1, [AS_IT_IS])


# --- open workflows


@asynccontextmanager
async def process(place: Place, *line: str) -> AsyncIterator[None]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "tests.faults.company", place.client.service_client.config.target_host]
    started = await asyncio.create_subprocess_exec(
        *command, place.queue, *line, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout
    try:
        assert await started.stdout.readline() == b"ready\n"
        yield
    finally:
        started.kill()
        await started.wait()


async def first_call_over(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until the first call of an open workflow has failed, and its workflow task is done."""
    async with asyncio.timeout(30):
        while True:
            names = [event.WhichOneof("attributes") for event in (await handle.fetch_history()).events]
            failed = "activity_task_failed_event_attributes"
            if failed in names and "workflow_task_completed_event_attributes" in names[names.index(failed) :]:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("lines", [["line", ""], ["", "line"]], ids=["removed", "added"])
async def test_an_open_workflow_goes_on_when_the_line_comes_or_goes(place: Place, lines: list[str]) -> None:
    """A process with the line begins it and one without ends it, and the other way round; each replays."""
    first, second = [[line] if line else [] for line in lines]
    id, file = f"{place.queue}-open", place.folder / "open"
    async with process(place, *first):
        handle = await place.client.start_workflow(Patient.run, str(file), id=id, task_queue=place.queue)
        await first_call_over(handle)
    async with process(place, *second):
        await handle.signal(Patient.go_on)
        ended = await asyncio.wait_for(handle.result(), 60)

    tried = [attempts(file), attempts(Path(f"{file}-2"))]
    assert (ended, tried) == ([bool(first), bool(second)], [1 if first else 3, 1 if second else 3])
    history = await handle.fetch_history()
    assert not [event for event in history.events if event.HasField("workflow_task_failed_event_attributes")]
