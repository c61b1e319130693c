"""`breakers` as a user runs it: which tools are left alone, since when, and closing one by hand."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.dev_server import DevServer
from tests.processes import Processes

QUEUE = ("--queue", "breakers")
TOOLS = """
from pathlib import Path

from pydantic import BaseModel

from replan import CircuitBreaker, Unreachable, tool


class Where(BaseModel):
    file: Path


class Said(BaseModel):
    word: str


@tool.read(retry="once", breaker=CircuitBreaker(failures=1, calls=1, recovery=1000))
async def weather(args: Where) -> Said:
    \"\"\"Say the weather while a file is there.\"\"\"
    if not args.file.exists():
        raise Unreachable("no file")
    return Said(word="fine")


@tool.read(retry="once", breaker=CircuitBreaker(failures=1, calls=1, recovery=10))
async def tides(args: Where) -> Said:
    \"\"\"Say the tides while a file is there.\"\"\"
    return await weather(args)


@tool.read(breaker=None)
async def news(args: Where) -> Said:
    \"\"\"Say the news.\"\"\"
    return Said(word="none")
"""


@pytest.fixture(scope="module")
def commands(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker with tools whose service is down."""
    folder = tmp_path_factory.mktemp("breakers")
    (tools := folder / "tools.py").write_text(TOOLS)
    processes = Processes(server.address, folder)
    with processes.worker("--tools", str(tools), *QUEUE):
        yield processes


def call(commands: Processes, kind: str, file: str = "missing") -> Any:
    """Call a tool once, and return the task's outcome."""
    args = json.dumps({"file": str(commands.folder / file)})
    return json.loads(commands.starter("call", kind, args, *QUEUE, "--json").stdout)


def test_a_tool_that_is_left_alone_is_listed_until_somebody_closes_it(commands: Processes) -> None:
    """With since when, why, and when it is tried again; `doctor` warns.

    One without a breaker cannot be closed, with the nearest name and the remedy.
    """
    nothing = commands.starter("breakers", *QUEUE)
    call(commands, "weather")
    listed, whole = commands.starter("breakers", *QUEUE), commands.starter("breakers", *QUEUE, "--json")
    checks = json.loads(commands.starter("doctor", *QUEUE, "--json").stdout)["checks"]
    unknown, without, reset = (
        commands.starter("breakers", "--reset", kind, *QUEUE) for kind in ("wether", "news", "weather")
    )
    after = commands.starter("breakers", *QUEUE)

    assert (nothing.returncode, nothing.stdout) == (0, "no tool has failed\n")
    assert listed.stdout.startswith("weather  open, since 20")
    assert ", after 1 failure, the newest unreachable, a trial call in 99" in listed.stdout
    [card] = json.loads(whole.stdout)["breakers"]
    assert (card["kind"], card["state"], card["failures"], card["code"]) == ("weather", "open", 1, "unreachable")
    assert 900 < card["trial_in"] <= 1000
    [found] = [check for check in checks if check["name"] == "breakers"]
    assert (found["status"], found["found"]) == ("warn", "left alone, since they failed: weather (unreachable)")
    assert (unknown.returncode, without.returncode, reset.returncode, after.returncode) == (2, 2, 0, 0)
    assert "No tool 'wether' has a circuit breaker: did you mean weather?" in unknown.stderr
    assert "`python starter.py breakers` lists those of tools that have failed" in without.stderr
    assert reset.stdout.startswith("closed weather, which was open, since 20")
    assert after.stdout.startswith("weather  closed, since 20")


@pytest.mark.full
def test_what_is_not_as_usual_is_shown(commands: Processes) -> None:
    """By `tools KIND` and by `--check`."""
    weather, news = commands.starter("tools", "weather", *QUEUE), commands.starter("tools", "news", *QUEUE)
    checked = commands.asked("--tools", str(commands.folder / "tools.py"), "--check")

    assert "  has a circuit breaker with failures=1, calls=1, recovery=1000\n" in weather.stdout
    assert "  has no circuit breaker\n" in news.stdout
    assert "breaker: failures=1, calls=1, recovery=10; once" in checked.stdout
    assert "file: path, no breaker; standard" in checked.stdout


@pytest.mark.full
def test_a_single_call_waits_for_its_service_and_costs_one_attempt(commands: Processes) -> None:
    """`call` is a task as any other."""
    call(commands, "tides")
    (commands.folder / "there").touch()
    ended = call(commands, "tides", "there")

    assert (ended["status"], ended["steps"][0]["attempts"]) == ("completed", 1)
    assert [(fault["code"], fault["decision"]) for fault in ended["faults"]] == [("circuit_open", "wait")]
