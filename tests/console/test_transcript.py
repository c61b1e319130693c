"""`transcript`: the conversation of a real task, with a model behind a server that holds its provider's rules."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import Delayed, ModelCall, calls, finishes, proposes, step
from runtime.dev_server import DevServer
from tests import documentation
from tests.console.terminal import Terminal, starter
from tests.processes import ROOT, Processes
from tests.providers.planning import APIS, PROVIDERS, api_of
from tests.providers.test_worker import DEFAULTS, environment

KEYS = documentation.printed()["transcript"]
QUEUE = "transcripts"
ACTS = calls(
    ModelCall("calculate", {"expression": "6 * 7"}), ModelCall("calculate", {"expression": "1 + 1"}), text="Both now."
)
ENDS = calls(ModelCall("finish", {"answer": 42}))
PLANS = proposes(step("sum", "calculate", expression="18% of 2450"))


@pytest.fixture(params=PROVIDERS, scope="module")
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ModelApi]:
    """Each of the APIs."""
    api = api_of(request.param, ACTS)
    api.model = DEFAULTS[request.param]
    async with running(api):
        yield api


@pytest.fixture(scope="module")
def desk(server: DevServer, api: ModelApi, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Any:
    """A worker whose model it is, and commands for it."""
    provider = next(name for name, form in APIS.items() if form is type(api))
    processes = Processes(server.address, tmp_path_factory.mktemp("transcripts"), environment(provider, api))
    with processes.worker("--queue", QUEUE):
        yield processes


async def done(desk: Processes, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the console, while the model's server goes on in this process."""
    return await asyncio.to_thread(desk.starter, *words, "--queue", QUEUE)


async def task(desk: Processes, api: ModelApi, *script: Any, options: tuple[str, ...] = ()) -> str:
    """Run a task that this script answers; its id."""
    api.script = [*script]
    ran = json.loads((await done(desk, "--task", "find the answer", "--json", *options)).stdout)
    assert (ran["status"], api.violations) == ("completed", []), ran["reason"]
    return str(ran["task_id"])


async def test_a_conversation_is_printed_turn_by_turn(desk: Processes, api: ModelApi) -> None:
    """What the model was told, said and called, and what came back: plain lines off a terminal, in their order."""
    schema = desk.folder / "schema.json"
    schema.write_text('{"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}')
    id = await task(desk, api, ACTS, ENDS, options=("--strategy", "react", "--result-schema", str(schema)))
    said = (await done(desk, "transcript", id)).stdout.splitlines()
    told = [line for line in said if line.startswith("  ") and not line.startswith("   ")]

    assert said[0].startswith(f"{id}  2 turns, ") and said[1].startswith("Turn 1  ") and "\x1b" not in "".join(said)
    assert [line[2] for line in told] == [">", "<", "→", "→", "←", "←", ">", "→"]
    assert "      find the answer" in said and "      Both now." in said and "      expression=6 * 7" in said
    assert told[-1] == "  → finish" and said[-1] == "      answer=42"


@pytest.mark.full
async def test_a_proposal_that_was_rejected_did_not_fail(desk: Processes, api: ModelApi) -> None:
    """Nothing of it was run, so nothing can have failed: the call of the model was rejected."""
    id = await task(desk, api, proposes(step("sum", "calculat", expression="1 + 1")), PLANS, finishes("441"))
    said = (await done(desk, "transcript", id)).stdout.splitlines()

    assert [line for line in said if "✗" in line] == ["  ✗ could not be used", "  ✗ propose_plan was rejected"]


async def test_a_conversation_that_is_carried_on_begins_with_the_earlier_task(desk: Processes, api: ModelApi) -> None:
    """`start --continue`: the turns of both, and which is whose; the model was told the earlier ones, too.

    As one document: with the plan as the model wrote it, whole, and the keys that docs/console.md names.
    """
    earlier = await task(desk, api, PLANS, finishes("441"))
    document = json.loads((await done(desk, "transcript", earlier, "--json")).stdout)
    later = await task(desk, api, finishes("still 441"), options=("--continue", earlier))
    said = (await done(desk, "transcript", later)).stdout.splitlines()
    [first, second] = document["turns"]

    assert [set(document), set(first)] == [{"schema", *KEYS}, {*KEYS["turns"]}]
    assert (document["task_id"], document["tasks"]) == (earlier, {document["run"]: earlier})
    assert first["calls"][0]["args"] == {"steps": [step("sum", "calculate", expression="18% of 2450")]}
    assert "441" in second["results"][0]["text"] and second["calls"][0]["name"] == "finish"
    assert said[0].startswith(f"{later}  3 turns, ") and said[0].endswith(f"; it continues {earlier}")
    assert said.index(f"Continued by {later}") > said.index("      result=441")
    assert "18% of 2450" in json.dumps(api.bodies[-1])


@pytest.mark.full
async def test_what_a_cancelled_task_had_done_is_told_to_the_next(desk: Processes, api: ModelApi) -> None:
    """The model had called for it, and died before it was told what came of it."""
    api.script = [PLANS, Delayed(60)]
    id = f"cut-short-by-{type(api).__name__.lower()}"
    await done(desk, "--task", "find the answer", "--id", id, "--detach")
    async with asyncio.timeout(60):
        while json.loads((await done(desk, "show", id, "--json")).stdout)["spent"]["tool_calls"] == 0:
            await asyncio.sleep(0.1)
    await done(desk, "cancel", id)
    await done(desk, "show", id, "--follow")
    await task(desk, api, finishes("441"), options=("--continue", id))

    assert "sum is finished" in json.dumps(api.bodies[-1])


@pytest.mark.full
async def test_a_terminal_shows_it_in_colours(desk: Processes, api: ModelApi) -> None:
    """In its width: signs and words have colours, what was said has none."""
    id = await task(desk, api, PLANS, finishes("word " * 40))
    shown = {"TEMPORAL_ADDRESS": desk.address}
    with Terminal(starter(ROOT, "transcript", id), shown, ROOT, (60, 40)) as terminal:
        assert await terminal.ended() == 0

    assert "\x1b[32m→ propose_plan\x1b[0m" in terminal.raw and "\x1b[36m> told\x1b[0m" in terminal.raw
    assert max(map(len, terminal.shown.text)) <= 60


async def test_a_task_that_no_model_planned_has_none(desk: Processes) -> None:
    """One sentence and exit code 0: nothing is wrong with it."""
    ran = json.loads((await done(desk, "--task", "calculate 1 + 1", "--planner", "offline", "--json")).stdout)
    said = await done(desk, "transcript", ran["task_id"])

    assert (said.returncode, said.stderr, said.stdout.count("\n")) == (0, "", 1)
    assert said.stdout.startswith(f"{ran['task_id']} has no conversation in the store of its worker: no model")


@pytest.mark.full
async def test_without_a_worker_it_says_so(server: DevServer, tmp_path: Path) -> None:
    """A console never opens the store."""
    processes = Processes(server.address, tmp_path)
    await asyncio.to_thread(processes.starter, "--task", "x", "--id", "nobody-s", "--queue", "nobody-there", "--detach")
    said = await asyncio.to_thread(processes.starter, "transcript", "nobody-s")

    assert (said.returncode, said.stdout) == (6, "")
    assert said.stderr.startswith("No worker answers on queue nobody-there: start one with")
