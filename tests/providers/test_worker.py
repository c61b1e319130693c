"""A worker with a key in its environment, as a user starts it, and the task that its model plans."""

import asyncio
import json
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
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import ModelCall, ModelError, ModelReply, ScriptedResponse, calls, finishes, proposes, step
from runtime import serve
from runtime.dev_server import DevServer
from runtime.settings import Settings
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
    assert KEY not in (tmp_path / "history.json").read_text() + run.stdout + run.stderr


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
    """A default that a provider takes out of service fails here with the SDK that says so."""
    known = {*get_args(get_args(anthropic.types.model.Model)[0]), *get_args(openai.types.shared.chat_model.ChatModel)}

    assert set(DEFAULTS.values()) <= known


def test_the_sdk_does_not_warn_of_the_default_model() -> None:
    """Its DeprecationWarning would come before the request, and a warning is an error here."""
    client = anthropic.Anthropic(api_key=KEY, base_url="http://127.0.0.1:1", max_retries=0)

    with client, pytest.raises(anthropic.APIConnectionError):
        client.messages.create(
            model=DEFAULTS["anthropic"], max_tokens=1, messages=[{"role": "user", "content": "1 + 1"}]
        )


def test_the_page_says_what_is_so() -> None:
    """Names and numbers that a reader relies on."""
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    request = own_activities.PLAN

    assert all(f"`{model}`" in page for model in DEFAULTS.values())
    assert f"{MAX_OUTPUT:,} tokens" in page and f"{MAX_SHOWN:,} characters" in page
    assert (retries.PROFILES[request.retry].attempts, request.timeout) == (8, 300)
    assert "eight attempts" in page and "take five minutes" in page
