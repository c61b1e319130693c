"""`ollama:MODEL` and `lmstudio:MODEL`: their addresses, what their servers say of a model, and slow beginnings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.selection import PlannerSelection
from activities.providers.adapter import Endpoint
from activities.providers.local import LOCAL_SERVERS
from activities.providers.openai import OpenAIModel
from activities.providers.registry import UnknownPlanner
from evals.fakes.local_servers import LmStudioServer, LocalServer, OllamaServer
from evals.fakes.model_api import KEY, MODEL, running
from evals.fakes.script import Delayed, ModelReply, Response, Streamed
from tests.harness import Stage, staged
from tests.providers.asking import ASKED, request
from tests.providers.desk import TOOLS
from tests.providers.plates import GOAL, read_plate
from tests.providers.test_textual import planner, shopper, task
from tests.providers.visitor import FOUND, visitor
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits

VARIABLES = {"ollama": "OLLAMA_HOST", "lmstudio": "LMSTUDIO_BASE_URL"}


@asynccontextmanager
async def local(
    client: Client, folder: Path, program: str, server: LocalServer, tools: Any = TOOLS
) -> AsyncIterator[Stage]:
    """A worker whose planner is a model of this program."""
    async with running(server):
        environment = {VARIABLES[program]: server.url}
        chosen = PlannerSelection(f"{program}:{MODEL}", environment).planner
        async with staged(client, folder, tools, chosen) as stage:
            yield stage


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "http://localhost:11434/v1"),
        ({"OLLAMA_HOST": "gpu"}, "http://gpu:11434/v1"),
        ({"OLLAMA_HOST": "gpu:80"}, "http://gpu:80/v1"),
        ({"OLLAMA_HOST": "0.0.0.0:11500"}, "http://127.0.0.1:11500/v1"),
        ({"OLLAMA_HOST": "https://gpu.example:443/v1/"}, "https://gpu.example:443/v1"),
    ],
)
def test_the_address_is_the_usual_one_or_the_variable_s(environment: Mapping[str, str], url: str) -> None:
    """As Ollama's own programs read it."""
    assert LOCAL_SERVERS["ollama"].address(environment) == url


def test_a_model_has_the_name_of_its_program() -> None:
    """With the host only where it is not the usual one."""
    usual, other = dict[str, str](), {"OLLAMA_HOST": "gpu"}

    assert PlannerSelection("ollama:qwen3:8b", usual).planner.name == "ollama:qwen3:8b"
    assert PlannerSelection("ollama:qwen3", other).planner.name == "ollama:qwen3@gpu:11434"
    assert PlannerSelection("lmstudio:qwen/qwen3", usual).described == "lmstudio:qwen/qwen3 (Chat Completions)"


def test_a_program_without_a_model_is_no_planner() -> None:
    """There is no usual model."""
    with pytest.raises(UnknownPlanner, match="ollama:MODEL"):
        PlannerSelection("ollama", {})


@pytest.mark.parametrize(
    ("program", "api"),
    [
        ("ollama", OllamaServer([planner])),
        ("lmstudio", LmStudioServer([planner])),
    ],
)
async def test_a_task_is_planned(client: Client, tmp_path: Path, program: str, api: LocalServer) -> None:
    """With native calls, and without a key."""
    async with local(client, tmp_path, program, api) as stage:
        ended = await stage.run(task("plan"))

    assert (ended.status, ended.result, api.violations) == (TaskStatus.COMPLETED, "26.50", [])
    assert ended.planner == f"{program}:{MODEL}@{api.url.removeprefix('http://')}"


@pytest.mark.parametrize(
    ("program", "api"),
    [
        ("ollama", OllamaServer([shopper], form="ReAct", capabilities=("completion",))),
        ("ollama", OllamaServer([shopper], form="Hermes", capabilities=None)),
        ("lmstudio", LmStudioServer([shopper], form="JSON", capabilities=())),
    ],
)
async def test_a_model_without_calls_is_asked_for_text(
    client: Client, tmp_path: Path, program: str, api: LocalServer
) -> None:
    """Its server says so before the first request."""
    async with local(client, tmp_path, program, api) as stage:
        ended = await stage.run(task("react"))

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50"), ended.reason
    assert not any("tools" in body for body in api.bodies) and ended.spent.tool_calls == 3


@pytest.mark.parametrize(
    ("program", "api", "command"),
    [
        ("ollama", OllamaServer([shopper], pulled=False), f"ollama pull {MODEL}"),
        ("lmstudio", LmStudioServer([shopper], pulled=False), f"lms get {MODEL}"),
    ],
)
async def test_the_command_that_pulls_a_missing_model_is_said(
    client: Client, tmp_path: Path, program: str, api: LocalServer, command: str
) -> None:
    """Once, and nothing is generated."""
    async with local(client, tmp_path, program, api) as stage:
        ended = await stage.run(task("react"))

    assert ended.status is TaskStatus.ESCALATED and f"`{command}`" in ended.reason
    assert not any("messages" in body for body in api.bodies)


async def test_a_window_that_the_tools_alone_fill_is_said(client: Client, tmp_path: Path) -> None:
    """Ollama would cut the request without a word; a person is told, and nothing is generated."""
    server = OllamaServer([planner], context=512, is_loaded=True)
    async with local(client, tmp_path, "ollama", server) as stage:
        ended = await stage.run(task("plan"))

    assert ended.status is TaskStatus.ESCALATED and "has 512 tokens" in ended.reason
    assert not any("messages" in body for body in server.bodies)


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_the_window_of_the_server_is_respected(client: Client, tmp_path: Path) -> None:
    """A long conversation is summarised before the server would cut it; no request is longer than the window."""
    server = OllamaServer([visitor], context=12_000, is_loaded=True)
    async with local(client, tmp_path, "ollama", server, (read_plate,)) as stage:
        limits = Limits(tool_calls=200, tokens=None, replans=20)
        ended = await stage.run(Task(text=GOAL, strategy="react", limits=limits))
    asked = [body for body in server.bodies if "messages" in body]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, FOUND), ended.reason
    assert ended.compactions and max(map(server.tokens, asked)) < 12_000
    assert {body["max_completion_tokens"] for body in asked} <= {3_000, 1_500}


IDLE = 0.4


SLOW: list[Response] = [
    Delayed(3 * IDLE, ModelReply(text="Rome.")),
    Streamed(ModelReply(text="Rome."), pause_before_words=3 * IDLE),
]


@pytest.mark.parametrize("reply", SLOW)
async def test_slow_first_words_are_no_stall(reply: Response) -> None:
    """While a server loads a model or reads a long prompt, before it answers or after."""
    async with running(LocalServer([reply])) as server:
        model = OpenAIModel(MODEL, Endpoint(KEY, f"{server.url}/v1", IDLE))
        assert (await model.reply(request(ASKED))).turn.text == "Rome."
