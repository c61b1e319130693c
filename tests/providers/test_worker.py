"""A worker with a key in its environment, as a user starts it, and the task that its model plans."""

import asyncio
import base64
import json
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import anthropic
import anthropic.types.model
import openai.types.shared.chat_model
import pytest
from temporalio.client import Client

from activities.providers import anthropic as anthropic_adapter, openai as openai_adapter
from activities.toolbox.find_tools import MAX_SHOWN as MOST_KINDS
from activities.toolbox.json_schema import MAX_SCHEMA
from activities.toolbox.reasoning.model_tools import CALL, MAX_ASKED
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import (
    ModelCall,
    ModelError,
    ModelReply,
    ScriptedResponse,
    calls,
    finishes,
    proposes,
    step,
)
from runtime import serve
from runtime.dev_server import DevServer
from runtime.settings import Settings
from tests.documentation import files
from tests.gate import sampled
from tests.log_lines import lines_of, wrong
from tests.processes import ROOT, Processes
from tests.providers.planning import MAKER, PROVIDERS, api_of
from workflows.faults import retries
from workflows.limits.spending import MAX_OUTPUT
from workflows.planning.situation import MAX_SHOWN
from workflows.plans import own_activities

PROMPT = "planted-prompt-1f0e"
DEFAULTS = {
    "anthropic": anthropic_adapter.DEFAULT_MODEL,
    "openai": openai_adapter.DEFAULT_MODEL,
    "responses": openai_adapter.DEFAULT_MODEL,
}
SUM = proposes(step("sum", "calculate", expression="18% of 2450"), step("page", "calculate", expression="1 + 1"))


def environment(provider: str, api: ModelApi) -> dict[str, str]:
    """What a user sets."""
    names = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL")}
    key, url = names[MAKER[provider]]
    file = {"REPLAN_SETTINGS": str(Path(__file__).with_name("responses.toml"))} if provider == "responses" else {}
    return {key: api.key, url: api.url if provider == "anthropic" else f"{api.url}/v1", **file}


@asynccontextmanager
async def prepared(provider: str, *script: ScriptedResponse) -> AsyncIterator[ModelApi]:
    """A server for the provider's default model."""
    api = api_of(provider, *script)
    api.model = DEFAULTS[provider]
    async with running(api):
        yield api


async def done(processes: Processes, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the console, while the servers of this process go on."""
    return await asyncio.to_thread(processes.starter, *words)


def held(history: Path) -> str:
    """An exported history, and the values of its payloads as text."""
    exported = history.read_text()
    return exported + "".join(
        base64.b64decode(data).decode(errors="replace") for data in re.findall(r'"data": ?"([^"]*)"', exported)
    )


BOTH = calls(ModelCall("calculate", {"expression": "18% of 2450"}), ModelCall("calculate", {"expression": "1 + 1"}))
SCRIPTS: dict[str, tuple[ModelReply, ModelReply]] = {
    "plan": (SUM, finishes("It is 441.")),
    "react": (BOTH, ModelReply(text="It is 441.")),
}
PLANNED = {f"{provider}-{strategy}": (provider, strategy) for provider in PROVIDERS for strategy in SCRIPTS}


@pytest.mark.parametrize(("provider", "strategy"), sampled(PLANNED, "responses-plan"))
async def test_with_a_key_a_model_plans(server: DevServer, tmp_path: Path, provider: str, strategy: str) -> None:
    """Without any option: `worker.py --dev`, then `starter.py --task`; no rule of the protocol is broken.

    Neither the key nor what was asked stands in a log line, and the key in no history.
    """
    quoting = ModelError(529, "overloaded_error", f"no room for {PROMPT} of {KEY}")
    name = f"by-{provider}-{strategy}"
    async with prepared(provider, quoting, *SCRIPTS[strategy]) as api:
        processes = Processes(server.address, tmp_path, environment(provider, api))
        with processes.worker("--dev", "--queue", name, "--log", "json"):
            more = ["--strategy", strategy] if strategy != "plan" else []  # plan is the default
            run = await done(processes, "--task", PROMPT, "--id", name, "--queue", name, "--json", *more)
            await done(processes, "export", name, str(tmp_path / "history.json"))
    document, log = json.loads(run.stdout), (tmp_path / "worker.log").read_text()
    lines = lines_of(tmp_path / "worker.log")
    asked = [line["task"] for line in lines if line["event"] in ("model", "model_failed")]

    assert (document["status"], document["result"], api.violations) == ("completed", "It is 441.", [])
    assert document["planner"].startswith(f"{MAKER[provider]}:{DEFAULTS[provider]}@127.0.0.1")
    assert document["spent"]["model_calls"] == 2 and PROMPT in json.dumps(api.bodies)
    assert (document["strategy"], document["spent"]["tool_calls"]) == (strategy, 2)
    assert asked == [name] * 3 and [problem for problem in map(wrong, lines) if problem] == []
    assert not any(secret in log for secret in (KEY, PROMPT, "It is 441"))
    history = held(tmp_path / "history.json")
    assert PROMPT in history and KEY not in history + run.stdout + run.stderr


@pytest.mark.full
async def test_a_wrong_key_is_a_person_s_and_shown_nowhere(server: DevServer, tmp_path: Path) -> None:
    """The provider quotes the key in its refusal; the task says which variable of the environment to mend."""
    async with prepared("openai", finishes()) as api:
        given = {**environment("openai", api), "OPENAI_API_KEY": "sk-wrong-0123456789abcdef"}
        processes = Processes(server.address, tmp_path, given)
        with processes.worker("--dev", "--queue", "wrong-key"):
            run = await done(processes, "--task", "calculate 1 + 1", "--id", "wrong-key", "--queue", "wrong-key")
            why = await done(processes, "explain", "wrong-key")
    said = run.stdout + run.stderr + why.stdout + (tmp_path / "worker.log").read_text()

    assert (run.returncode, len(api.bodies)) == (3, 1)
    assert "does not accept the worker's key" in said and "sk-wrong" not in said


async def test_the_ready_line_says_who_plans(client: Client, tmp_path: Path) -> None:
    """The model and, in a list, all of them in their order."""
    settings = Settings(state=tmp_path, queue="whose")
    server = serve.Server(client, None, "id", is_searchable=True)
    line = serve.ready_line(server, settings, "openai:qwen3@localhost:11434, offline", tools=3)

    assert line.endswith("  3 tools  planner openai:qwen3@localhost:11434, offline")


@pytest.mark.full
async def test_doctor_says_who_plans(server: DevServer, tmp_path: Path) -> None:
    """With the order of the list, the API, and the address of one's own server, which needs no key."""
    async with prepared("openai", finishes()) as api:
        processes = Processes(server.address, tmp_path, {"OPENAI_BASE_URL": f"{api.url}/v1"})
        command = ["--queue", "whose", "--planner", "openai:qwen3,offline"]
        with processes.worker("--dev", *command):
            found = await done(processes, "doctor", "--queue", "whose", "--json")
    checks = {check["name"]: check for check in json.loads(found.stdout)["checks"]}
    host = api.url.removeprefix("http://")

    assert checks["planner"]["found"].startswith(f"openai:qwen3@{host} (Chat Completions), offline")
    assert checks["keys"]["status"] == "ok"


WRONG: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no key": (
        ["--planner", "anthropic"],
        {},
        "needs ANTHROPIC_API_KEY in the environment of the worker: set it, or choose another planner, e.g. offline.",
    ),
    "blank key": (["--planner", "openai:x"], {"OPENAI_API_KEY": " "}, "needs OPENAI_API_KEY"),
    "odd key": (["--planner", "openai:x"], {"OPENAI_API_KEY": "sk-\u2026"}, "OPENAI_API_KEY holds characters"),
    "second of a list": (["--planner", "offline,anthropic:x"], {}, "'anthropic:x' needs ANTHROPIC_API_KEY"),
    "no model": (["--planner", "openai:"], {"OPENAI_API_KEY": "x"}, "There is no planner 'openai:'"),
    "empty place": (["--planner", "offline,"], {}, "There is no planner ''"),
    "address": (["--planner", "openai"], {"OPENAI_BASE_URL": "here:1"}, "OPENAI_BASE_URL is no address"),
}


@pytest.mark.parametrize(("options", "given", "words"), sampled(WRONG, "blank key", "address"))
def test_a_planner_that_cannot_be_used_is_a_sentence(
    tmp_path: Path, options: list[str], given: Mapping[str, str], words: str
) -> None:
    """Before anything is started; a key is never repeated."""
    processes = Processes("localhost:1", tmp_path, dict(given))
    run = processes.asked(*options)

    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert words in run.stderr and "sk-" not in run.stderr


def test_the_default_models_are_known_to_the_sdks() -> None:
    """A default that a provider takes out of service fails here with the SDK that says so, or that warns of it.

    The DeprecationWarning would come before the request, and a warning is an error here.
    """
    known = {*get_args(get_args(anthropic.types.model.Model)[0]), *get_args(openai.types.shared.chat_model.ChatModel)}

    assert set(DEFAULTS.values()) <= known
    client, words = anthropic.Anthropic(api_key=KEY, base_url="http://127.0.0.1:1", max_retries=0), "1 + 1"
    with client, pytest.raises(anthropic.APIConnectionError):
        client.messages.create(model=DEFAULTS["anthropic"], max_tokens=1, messages=[{"role": "user", "content": words}])


def test_the_page_says_what_is_so() -> None:
    request = own_activities.PLAN

    assert all(f"`{model}`" in MODELS for model in DEFAULTS.values())
    assert f"{MAX_OUTPUT:,} tokens" in MODELS and f"{MAX_SHOWN:,} characters" in MODELS
    assert (retries.PROFILES[request.retry].attempts, request.timeout) == (8, 300)
    assert "eight attempts" in MODELS and "take five minutes" in MODELS
    assert f"{MAX_ASKED:,} bytes" in MODELS and f"{MAX_SCHEMA // 1024} KB" in MODELS
    assert f"more than {MOST_KINDS} kinds a model sees {MOST_KINDS}" in MODELS


# Steps that ask a model, with a key and without


MODELS, TOOLS = ((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("models", "tools"))
[PAGE_PLAN] = [
    block for block in re.findall(r"^```json\n(.*?)^```", MODELS, flags=re.DOTALL | re.MULTILINE) if '"steps"' in block
]
TEXT = "planted-document-77ab. The lamp costs 24.50 euros."
ASKED_OF_STEPS = (
    ModelReply((ModelCall(CALL, {"days": 30}),)),
    ModelReply(text="planted-letter: Dear Ada, 30 days."),
    finishes("planted-answer"),
    ModelReply(text="Friendly"),
    ModelReply(text="planted-summary."),
)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """The page's tool that asks a model, as a file."""
    file = tmp_path / "my_judge.py"
    file.write_text(files(TOOLS)["my_judge.py"])
    return str(file)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.full
async def test_with_a_key_steps_ask_the_planner_s_model(
    server: DevServer, tmp_path: Path, provider: str, mine: str
) -> None:
    """The plan and the tool of the pages; what they read and what the model says stands in no log line."""
    (tmp_path / "plan.json").write_text(PAGE_PLAN)
    queue = ("--queue", f"steps-{provider}")
    async with prepared(provider, *ASKED_OF_STEPS) as api:
        processes = Processes(server.address, tmp_path, environment(provider, api))
        with processes.worker("--dev", *queue, "--log", "json", "--tools", mine):
            plan = await done(processes, "--plan", str(tmp_path / "plan.json"), *queue, "--json")
            tone = await done(processes, "call", "judge", json.dumps({"text": TEXT}), *queue, "--json")
            short = await done(processes, "call", "summarise", json.dumps({"text": TEXT}), *queue, "--json")
            tools = await done(processes, "tools", *queue)
            one = await done(processes, "tools", "judge", *queue)
    results = [step["result"] for run in (plan, tone, short) for step in json.loads(run.stdout)["steps"]]
    log = (tmp_path / "worker.log").read_text()

    assert results[1:4] == [{"days": 30}, {"text": ASKED_OF_STEPS[1].text, "method": "model"}, {"friendly": True}]
    assert (results[4]["method"], json.loads(plan.stdout)["spent"]["tokens"], api.violations) == ("model", 390, [])
    assert "asks a model: 5,000 tokens at the most" in one.stdout
    assert "planted" not in log and "extract " in tools.stdout and "Not offered" not in tools.stdout


@pytest.mark.full
async def test_without_a_model_what_asks_one_is_not_offered(server: DevServer, tmp_path: Path, mine: str) -> None:
    """It is said in one line, and the kinds that have a plain twin are there."""
    processes = Processes(server.address, tmp_path)
    with processes.worker("--dev", "--queue", "no-model", "--tools", mine):
        tools = await done(processes, "tools", "--queue", "no-model")

    assert is_without_model(tools.stdout), tools.stdout


def test_a_check_without_a_model_says_what_is_not_offered(tmp_path: Path, mine: str) -> None:
    processes = Processes("localhost:1", tmp_path)
    checked = processes.asked("--check", "--tools", mine)

    assert is_without_model(checked.stdout), checked.stdout


def is_without_model(said: str) -> bool:
    """Whether a list of tools has those that need no model, and names the one that is left out."""
    left_out = "Not offered, since this worker has no model: judge\n" in said
    return left_out and "summarise" in said and "compose" in said and "extract" not in said
