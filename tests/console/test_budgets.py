"""What a task may spend where its command line does not say it: by who waits for it, and from the settings file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer
from tests.console.terminal import Terminal
from tests.gate import sampled
from tests.processes import ROOT, Processes
from workflows.account.task import Task
from workflows.limits.budget import Limits

PROFILE = """
from console.commands.start import profile_name
from console.options import Common
for given in ("", "json", "jsonl", "detach"):
    print(profile_name(Common(json=given == "json"), detach=given == "detach", jsonl=given == "jsonl"))
"""


@pytest.fixture
def console(server: DevServer, tmp_path: Path) -> Processes:
    """The console's commands, without any worker."""
    return Processes(server.address, tmp_path)


USUAL = Limits(tool_calls=100, tokens=500_000, replans=2)
FILE = 'usd = 2.5\ndeadline = 60\ntokens = "unlimited"\nreplans = 1\n'
GIVEN: dict[str, tuple[str, str, Limits]] = {
    "as a task that was started by hand": ("", "", USUAL),
    "with react every refusal is a new plan": ("--strategy react", "", USUAL.model_copy(update={"replans": 20})),
    "react with a number": ("--strategy react --replans 3", "", Limits(replans=3, fruitless=None)),
    "a number of replans that was given rules alone": ("--replans 4", "", Limits(replans=4, fruitless=None)),
    "also one of the settings file": ("--settings {}", "replans = 4\n", Limits(replans=4, fruitless=None)),
    "the command line goes before the file, a word for no limit, and the usual": (
        "--settings {} --usd 0.25 --replans 7",
        FILE,
        Limits(tool_calls=100, tokens=None, usd=0.25, deadline=60, replans=7, fruitless=None),
    ),
    "the environment names the file": ("", "tool_calls = 3\n", USUAL.model_copy(update={"tool_calls": 3})),
}


@pytest.mark.parametrize(("words", "settings", "limits"), GIVEN.values(), ids=GIVEN)
async def test_a_task_has_the_limits_that_somebody_gave_or_the_usual_ones(
    client: Client, console: Processes, words: str, settings: str, limits: Limits
) -> None:
    """100 tool calls, 500,000 tokens, 2 replans of which two in a row may finish no step, no limit of money or time."""
    file = console.folder / "mine.toml"
    file.write_text(f"[budgets.background]\n{settings}")
    if settings and not words:
        console.environment["REPLAN_SETTINGS"] = str(file)
    given = words.format(file).split()
    began = console.starter("start", "--task", "anything", "--detach", "--json", "--queue", "nobody", *given)
    handle = client.get_workflow_handle(json.loads(began.stdout)["task_id"])
    begun = (await handle.fetch_history()).events[0]
    await handle.terminate()
    payload = begun.workflow_execution_started_event_attributes.input.payloads[0]

    assert Task.model_validate_json(payload.data).limits == limits
    assert Task.model_validate_json('{"text": "by hand"}').limits == USUAL


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--settings", "none.toml"], "bad_settings", "There is no settings file 'none.toml'"),
        (["--usd", "nan"], "usage", "--usd must be a finite number"),
        (["--usd", "0"], "usage", "--usd must be more than 0"),
        (["--deadline", "-1"], "usage", "--deadline must be more than 0"),
    ],
)
def test_a_budget_that_cannot_be_used_is_said_before_anything_is_connected(
    console: Processes, options: list[str], code: str, words: str
) -> None:
    """One sentence and exit code 2, without a server."""
    ended = console.starter("start", "--task", "x", "--json", "--address", "localhost:1", *options)
    error: dict[str, Any] = json.loads(ended.stdout)["error"]

    assert (ended.returncode, error["code"]) == (2, code)
    assert error["reason"].startswith(words)


async def test_at_a_terminal_a_task_is_interactive_unless_nobody_waits(tmp_path: Path) -> None:
    """Both ends are a terminal, and what is written is for people."""
    with Terminal([sys.executable, "-c", PROFILE], {"PYTHONPATH": str(ROOT)}, tmp_path) as terminal:
        code = await terminal.ended()

    assert (code, terminal.shown.text) == (0, ["interactive", *["background"] * 3])


CLOSED = {"a pipe": [""], "closed": ["0<&-"], "empty": ["</dev/null"]}


@pytest.mark.parametrize("closed", sampled(CLOSED, "empty"))
def test_without_a_terminal_at_both_ends_nobody_waits(console: Processes, closed: str) -> None:
    """A pipe, an empty input and a closed one are no person."""
    ended = console.run(["sh", "-c", f'exec "$@" {closed} 2>/dev/null', "sh", sys.executable, "-c", PROFILE])

    assert ended.stdout.split() == ["background"] * 4
