"""Steps that ask a model, in a worker as a user starts it, with a key and without."""

import json
import re
from pathlib import Path

import pytest

from activities.toolbox.find_tools import MAX_SHOWN
from activities.toolbox.json_schema import MAX_SCHEMA
from activities.toolbox.reasoning.model_tools import CALL, MAX_ASKED
from evals.fakes.script import ModelCall, ModelReply, finishes
from runtime.dev_server import DevServer
from tests.documentation import files
from tests.processes import ROOT, Processes
from tests.providers.planning import PROVIDERS
from tests.providers.test_worker import done, environment, prepared

MODELS, TOOLS = ((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("models", "tools"))
[PLAN] = [
    block for block in re.findall(r"^```json\n(.*?)^```", MODELS, flags=re.DOTALL | re.MULTILINE) if '"steps"' in block
]
TEXT = "planted-document-77ab. The lamp costs 24.50 euros."
SCRIPT = (
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
    (tmp_path / "plan.json").write_text(PLAN)
    queue = ("--queue", f"steps-{provider}")
    async with prepared(provider, *SCRIPT) as api:
        processes = Processes(server.address, tmp_path, environment(provider, api))
        with processes.worker("--dev", *queue, "--log", "json", "--tools", mine):
            plan = await done(processes, "--plan", str(tmp_path / "plan.json"), *queue, "--json")
            tone = await done(processes, "call", "judge", json.dumps({"text": TEXT}), *queue, "--json")
            short = await done(processes, "call", "summarise", json.dumps({"text": TEXT}), *queue, "--json")
            tools = await done(processes, "tools", *queue)
            one = await done(processes, "tools", "judge", *queue)
    results = [step["result"] for run in (plan, tone, short) for step in json.loads(run.stdout)["steps"]]
    log = (tmp_path / "worker.log").read_text()

    assert results[1:4] == [{"days": 30}, {"text": SCRIPT[1].text, "method": "model"}, {"friendly": True}]
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
    """In the same line."""
    processes = Processes("localhost:1", tmp_path)
    checked = processes.asked("--check", "--tools", mine)

    assert is_without_model(checked.stdout), checked.stdout


def is_without_model(said: str) -> bool:
    """Whether a list of tools has those that need no model, and names the one that is left out."""
    left_out = "Not offered, since this worker has no model: judge\n" in said
    return left_out and "summarise" in said and "compose" in said and "extract" not in said


def test_the_page_says_what_is_so() -> None:
    """Numbers that a reader relies on."""
    assert f"{MAX_ASKED:,} bytes" in MODELS and f"{MAX_SCHEMA // 1024} KB" in MODELS
    assert f"more than {MAX_SHOWN} kinds a model sees {MAX_SHOWN}" in MODELS
