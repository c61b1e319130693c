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


async def limits_of(client: Client, console: Processes, *words: str) -> Limits:
    """With which limits a task is started by these words."""
    began = console.starter("start", "--task", "anything", "--detach", "--json", "--queue", "nobody", *words)
    task_id = json.loads(began.stdout)["task_id"]
    handle = client.get_workflow_handle(task_id)
    try:
        begun = (await handle.fetch_history()).events[0]
        payload = begun.workflow_execution_started_event_attributes.input.payloads[0]
        return Task.model_validate_json(payload.data).limits
    finally:
        await handle.terminate()


async def test_a_task_of_the_console_has_the_limits_of_one_that_was_started_by_hand(
    client: Client, console: Processes
) -> None:
    """100 tool calls, 500,000 tokens, 2 replans, and no limit of money or time."""
    assert await limits_of(client, console) == Task.model_validate_json('{"text": "by hand"}').limits
    assert await limits_of(client, console) == Limits(tool_calls=100, tokens=500_000, replans=2)


async def test_one_move_at_a_time_may_replan_more_often(client: Client, console: Processes) -> None:
    """With react every refusal is a new plan, so a task may have twenty, unless somebody says how many."""
    assert (await limits_of(client, console, "--strategy", "react")).replans == 20
    assert (await limits_of(client, console, "--strategy", "react", "--replans", "3")).replans == 3


async def test_only_a_number_of_replans_that_was_given_rules_alone(client: Client, console: Processes) -> None:
    """Else a task ends after two new plans in a row that finish no step. The settings file gives one, too."""
    file = console.folder / "mine.toml"
    file.write_text("[budgets.background]\nreplans = 4\n")

    given = [await limits_of(client, console, *words) for words in ([], ["--replans", "4"], ["--settings", str(file)])]

    assert [(one.replans, one.fruitless) for one in given] == [(2, 2), (4, None), (4, None)]


async def test_the_command_line_goes_before_the_settings_file(client: Client, console: Processes) -> None:
    """Of five limits two are the file's, one is its word for no limit, one the command line's, one the usual."""
    file = console.folder / "mine.toml"
    file.write_text('[budgets.background]\nusd = 2.5\ndeadline = 60\ntokens = "unlimited"\nreplans = 1\n')

    limits = await limits_of(client, console, "--settings", str(file), "--usd", "0.25", "--replans", "7")

    assert limits == Limits(tool_calls=100, tokens=None, usd=0.25, deadline=60, replans=7, fruitless=None)


async def test_the_environment_may_name_the_settings_file(client: Client, console: Processes) -> None:
    """REPLAN_SETTINGS is what --settings is."""
    (console.folder / "mine.toml").write_text("[budgets.background]\ntool_calls = 3\n")
    console.environment["REPLAN_SETTINGS"] = str(console.folder / "mine.toml")

    assert (await limits_of(client, console)).tool_calls == 3


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
