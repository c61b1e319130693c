"""Traces, as a receiver of OpenTelemetry gets them from real workers and clients."""

import asyncio
import json
import re
import sys
import sysconfig
import venv
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pydantic import BaseModel
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from client.replay import replayer
from evals.fakes.http_server import reply, streaming
from evals.fakes.model_api import KEY
from evals.fakes.script import ModelReply, finishes, proposes, step
from runtime import tracing
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.task_trace import TaskIds, TaskTrace
from tests.crash.test_crash import chain, noted
from tests.gate import sampled
from tests.harness import DONE, outcome, plan, step as step_of
from tests.observability.otlp import Receiver, receiver
from tests.processes import ROOT, Processes
from tests.providers.test_worker import done, environment, prepared
from workflows.account import search_attributes
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor

TOOLS = str(Path(__file__).with_name("tools.py"))
SHOWN = ("replan.attempt", "replan.outcome", "error.type", "http.response.status_code")
PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
[TREE] = re.findall(r"```text\n(StartWorkflow.*?)\n```", PAGE, flags=re.DOTALL)


@pytest.fixture
def received() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


async def test_a_task_is_one_trace(server: DevServer, client: Client, tmp_path: Path, received: Receiver) -> None:
    """From the console over workflow, attempts and the tool's own spans to HTTP, SQL and model calls; nothing else.

    No span has a task's text, an argument, a result, a prompt or a key. A replay on a new worker adds no span.
    """
    queue, heads = ("--queue", "traced"), list[str]()

    async def answer(head: bytes) -> AsyncIterator[bytes]:
        heads.append(head.decode())
        yield reply(503 if len(heads) == 1 else 200, b"planted-page")

    async with streaming(answer) as pages:
        steps = (
            step("page", "get_price", url=f"{pages.url}/planted-path?planted=query"),
            step("letter", "buy", "page", text="planted-letter"),
            step("tone", "describe", "letter", text="planted-question"),
        )
        script = (proposes(*steps), ModelReply(text="planted-verdict"), finishes("planted-answer"))
        async with prepared("anthropic", *script) as api:
            own = {**environment("anthropic", api), **received.environment, "OTEL_SERVICE_NAME": "shop"}
            processes = Processes(server.address, tmp_path, own)
            with processes.worker("--dev", "--tools", TOOLS, *queue):
                ended = await done(processes, "--task", "planted-task", "--id", "traced-1", *queue)
            before = len(received.spans)
            with processes.worker("--dev", "--tools", TOOLS, *queue):
                handle = client.get_workflow_handle_for(AgentWorkflow.run, "traced-1")
                assert (await handle.query(AgentWorkflow.progress)).ending is not None
    spans = received.spans
    chat, page = received.named("chat")[0].attributes, received.named("execute_tool get_price")[0]

    assert received.tree(*SHOWN) == TREE, ended.stdout
    assert {
        (span.trace, span.service, span.conventions, span.schema_url) for span in spans if span.name != "parse"
    } == {(spans[0].trace, "shop", tracing.CONVENTIONS, tracing.SCHEMA_URL)}
    assert len(spans) == before
    assert [str(span.raw) for span in spans if "planted" in str(span.raw) or KEY in str(span.raw)] == []
    assert f"traceparent: 00-{page.trace}-" in heads[0]
    assert {name: value for name, value in chat.items() if "usage" in name or "provider" in name} == {
        "gen_ai.provider.name": "anthropic",
        "gen_ai.usage.input_tokens": 123,  # with those of the cache
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_write.input_tokens": 20,
        "gen_ai.usage.output_tokens": 7,
    }
    assert {name: page.attributes[name] for name in STEP} == STEP


STEP = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "get_price",
    "gen_ai.tool.call.id": "page",
    "gen_ai.conversation.id": "traced-1",
    "replan.effect": "read",
    "replan.quadrant": "transient_infrastructural",
    "replan.fault_effect": "none",
    "replan.replayed": False,
}


@pytest.mark.full
async def test_content_is_in_spans_only_if_it_is_asked_for(
    server: DevServer, tmp_path: Path, received: Receiver
) -> None:
    queue = ("--queue", "content")
    script = (proposes(step("tone", "describe", text="asked")), ModelReply(text="verdict"), finishes("the end"))
    async with prepared("anthropic", *script) as api:
        own = {**environment("anthropic", api), **received.environment, tracing.CONTENT: "span_only"}
        processes = Processes(server.address, tmp_path, own)
        with processes.worker("--dev", "--tools", TOOLS, *queue):
            await done(processes, "--task", "the task", *queue)
    [task], [tool], chats = received.named("invoke"), received.named("execute"), received.named("chat")

    assert _texts(task.attributes["gen_ai.input.messages"]) == ["the task"]
    assert _texts(task.attributes["gen_ai.output.messages"]) == ["the end"]
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"text": "asked"}
    assert "verdict" in tool.attributes["gen_ai.tool.call.result"]
    assert _texts(chats[1].attributes["gen_ai.input.messages"]) == ["asked"]
    assert "planted-system" in chats[1].attributes["gen_ai.system_instructions"]
    assert KEY not in str(received.requests)


def _texts(messages: str) -> list[str]:
    return [part["content"] for message in json.loads(messages) for part in message["parts"]]


@pytest.mark.full
async def test_a_task_of_many_runs_has_one_span(tmp_path: Path, received: Receiver) -> None:
    """All steps of all runs are below it, also where the task was started without a trace, and on other workers."""
    turns = [plan(step_of(f"s{number}", "calculate", expression=f"{number} + 1")) for number in range(8)]
    script = _script(tmp_path, *turns, DONE)
    async with _own_server(tmp_path / "server", {"limit.historyCount.suggestContinueAsNew": "20"}) as early:
        with Processes(early.address, tmp_path, received.environment).worker("--planner", script):
            quiet = Processes(early.address, tmp_path)
            await done(quiet, "--task", "many turns", "--id", "many", "--tool-calls", "50")
        connected = await connect(address=early.address, plain=True)
        described = await connected.get_workflow_handle("many").describe()
    first = described.raw_description.workflow_execution_info.first_run_id
    [task], steps = received.named("invoke"), received.named("execute")

    assert described.run_id != first and len(steps) == 8
    assert {(span.trace, span.parent) for span in steps} == {(first.replace("-", ""), task.id)}
    assert task.parent == "" and task.raw.start_time_unix_nano < steps[0].raw.start_time_unix_nano


@asynccontextmanager
async def _own_server(folder: Path, dynamic: Mapping[str, str] | None = None) -> AsyncIterator[DevServer]:
    spec = ServerSpec(
        folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=dynamic or {}
    )
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


def _script(folder: Path, *proposals: BaseModel) -> str:
    file = folder / "script.json"
    file.write_text(json.dumps([one.model_dump(mode="json") for one in proposals]))
    return f"scripted:{file}"


@pytest.mark.full
async def test_a_killed_worker_breaks_no_trace(
    server: DevServer, client: Client, tmp_path: Path, received: Receiver
) -> None:
    notes = tmp_path / "notes"
    own = {**received.environment, "OTEL_BSP_SCHEDULE_DELAY": "10"}
    processes = Processes(server.address, tmp_path, own)
    options = ["--tools", str(ROOT / "tests" / "crash" / "tools.py"), "--queue", "killed-traces"]
    options += ["--planner", _script(tmp_path, chain(notes, "a", "b", seconds=3), DONE)]
    with processes.worker(*options) as first:
        await done(processes, "--task", "a task", "--id", "killed-1", "--detach", "--queue", "killed-traces")
        await noted(notes, "b", 1)
        first.kill()
    with processes.worker(*options):
        await outcome(client.get_workflow_handle_for(AgentWorkflow.run, "killed-1"))
    [task], steps = received.named("invoke"), received.named("execute")

    assert {span.trace for span in received.spans} == {task.trace}
    assert [(span.parent, span.attributes["gen_ai.tool.call.id"]) for span in steps] == [(task.id, "a"), (task.id, "b")]


@pytest.mark.full
async def test_a_worker_of_a_user_keeps_its_own_traces(tmp_path: Path, received: Receiver) -> None:
    async with _own_server(tmp_path / "server") as server:
        with receiver() as theirs:
            processes = Processes(server.address, tmp_path, received.environment)
            command = [sys.executable, "-m", "tests.observability.own_worker", str(tmp_path / "state"), theirs.url]
            ended = await asyncio.to_thread(processes.run, command)
    order, question = theirs.named("order")[0].trace, theirs.named("question")[0].trace

    assert ended.stdout.endswith("\nconfirmed: completed 40 18% of 2450 = 441. True\n"), ended.stderr
    assert {span.trace for span in theirs.spans} == {order, question} and theirs.named("invoke") == []
    assert "RunWorkflow:OrderWorkflow" in {span.name for span in theirs.spans}
    assert {span.name: span.trace for span in received.spans if span.name.startswith(("invoke", "execute"))} == {
        "invoke_agent replan": question,
        "execute_tool charge": order,
        "execute_tool calculate": question,
    }
    assert {span.trace for span in received.named("invoke")} == {order, question}


async def test_saved_histories_replay_with_traces_and_export_nothing(received: Receiver) -> None:
    provider = TracerProvider(id_generator=TaskIds())
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{received.url}/v1/traces")))
    config = replayer().config()
    config["interceptors"] = [CallInterceptor(), TaskTrace(provider.get_tracer("test"))]
    replaying = Replayer(**config)
    failed = {}
    for file in sorted((ROOT / "tests" / "histories").glob("*.json")):
        history = WorkflowHistory.from_json(file.stem, file.read_text())
        result = await replaying.replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure:
            failed[file.stem] = result.replay_failure

    assert (failed, received.spans) == ({}, [])


OFF = """
import sys
import worker
from runtime import tracing
tracing.install()
with tracing.recorded(lambda *_: 1 / 0) as interceptors:
    assert (interceptors, tracing.traced("client")) == ([], "client")
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


@pytest.mark.parametrize(
    "variables",
    sampled(
        {str(one): [one] for one in ({}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"})},
        "{'OTEL_SDK_DISABLED': 'true'}",
    ),
)
def test_off_costs_nothing(variables: Mapping[str, str], tmp_path: Path) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"} if variables else {}
    processes = Processes("", tmp_path, {**variables, **endpoint})

    assert processes.run([sys.executable, "-c", OFF]).stdout == "[]\n"


def test_without_the_extra_a_worker_says_what_to_install(tmp_path: Path) -> None:
    """In one line, and only where traces are asked for. Its interpreter has all packages but the extra's."""
    home = tmp_path / "without"
    venv.create(home, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    here = Path(sysconfig.get_path("purelib"))
    (packages / "opentelemetry").mkdir()
    for entry in (*here.iterdir(), *(here / "opentelemetry").iterdir()):
        if entry.name not in ("opentelemetry", "sdk", "exporter"):
            (packages / entry.relative_to(here)).symlink_to(entry)
    check = [str(home / "bin" / "python"), str(ROOT / "worker.py"), "--check"]
    refused = Processes("", tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}).run(check)

    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith(
        "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, and the packages that export them are missing: install them"
    )
    assert Processes("", tmp_path).run(check).returncode == 0


async def test_a_receiver_that_does_not_answer_costs_a_command_two_seconds_and_a_line(
    server: DevServer, tmp_path: Path
) -> None:
    processes = Processes(server.address, tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"})
    ended = await done(processes, "--task", "nobody serves this", "--detach", "--queue", "no-worker-traces")

    assert ended.returncode == 0 and "nobody-serves-this" in ended.stdout
    assert ended.stderr == ("The spans of this command were not exported in time: check OTEL_EXPORTER_OTLP_ENDPOINT.\n")


REFUSED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "another protocol": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc', and Replan exports by http/protobuf only: set"
        " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and OTEL_EXPORTER_OTLP_ENDPOINT to that port of the receiver,"
        " which is mostly 4318.\n",
    ),
    **{
        f"{address}, no URL": (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": address},
            f"OTEL_EXPORTER_OTLP_ENDPOINT is {address!r}, which is no URL: write it as in http://localhost:4318.\n",
        )
        for address in ("localhost:4318", "nonsense")
    },
}


@pytest.mark.parametrize(("on", "said"), sampled(REFUSED, "another protocol", "localhost:4318, no URL"))
def test_what_no_receiver_would_get_is_refused(tmp_path: Path, on: Mapping[str, str], said: str) -> None:
    """Before the first spans are lost."""
    refused = Processes("", tmp_path, dict(on)).asked("--check")

    assert (refused.returncode, refused.stderr) == (2, said)
