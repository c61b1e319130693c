"""What docs/effects.md shows is what happens: each recipe runs with the real package, is killed, and resumes."""

import asyncio
import inspect
import os
import re
import signal
import sqlite3
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client as McpClient, StdioServerParameters, stdio_client
from temporalio.client import Client

from activities.effects.errors import EffectError
from activities.effects.function import EffectOptions
from evals.fakes.model_api import running
from evals.frameworks.__main__ import NAMES
from evals.frameworks.environments import NoEnvironment, python_of, requirements
from evals.frameworks.function_tools import Agents, BankModel, End, Kill
from replan import effects as face
from runtime.dev_server import DevServer
from tests import documentation
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "effects.md").read_text(encoding="utf-8")
FILES = documentation.files(PAGE)
TABLES = documentation.tables(PAGE)
COMPANIONS = ROOT / "tests" / "effects" / "companions"
SECONDS = 300.0
MAILS = ["ann", "bob", "cid"]
BLOCKS = dict(re.findall(r"^### ([^\n]+)\n(?:(?!^#).)*?^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE))
HEADINGS = {"pydantic_ai": "pydantic-ai", "openai_agents": "OpenAI Agents", "langgraph": "LangGraph"}
MOMENTS = ["2/before", "2/after", "2/answered", "3/after"]
MOST_LINES = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for file in COMPANIONS.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def mails(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "book") as book:
        return [str(row[0]) for row in book.execute("SELECT too FROM mails ORDER BY rowid")]


def environment(folder: Path, kill: str = "") -> Mapping[str, str]:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "BOOK": str(folder / "book"), "KILL": kill}


@asynccontextmanager
async def started(
    folder: Path, program: str, *arguments: str, kill: str = "", python: Path | str = sys.executable
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        str(python), str(folder / program), *arguments, cwd=folder, env=environment(folder, kill), stdout=-1, stderr=-1
    )
    try:
        async with asyncio.timeout(SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def killed_and_ended(folder: Path, program: str, kill: str, python: Path | str = sys.executable) -> list[str]:
    async with started(folder, program, kill=kill, python=python) as process:
        _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()[-2000:]
    async with started(folder, program, python=python) as process:
        said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    return said.decode().splitlines()


async def python_with(wanted: Path) -> Path:
    """The Python of an environment with these packages; skips where it cannot be made."""
    try:
        return await python_of(wanted, print)
    except NoEnvironment as error:
        pytest.skip(f"{wanted} cannot be installed: {error}")


@pytest.mark.parametrize(
    "kill", [MOMENTS[0], *(pytest.param(moment, marks=pytest.mark.full) for moment in MOMENTS[1:])]
)
async def test_a_loop_that_begins_from_its_start_mails_once(folder: Path, kill: str) -> None:
    said = await killed_and_ended(folder, "with_loop.py", kill)

    assert mails(folder) == MAILS
    assert said == ["mail 1 to ann", "mail 2 to bob", "mail 3 to cid"]


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kill", MOMENTS)
async def test_a_recovered_workflow_of_dbos_mails_once(folder: Path, kill: str) -> None:
    python = await python_with(COMPANIONS / "dbos-requirements.txt")
    said = await killed_and_ended(folder, "dbos_program.py", kill, python)

    assert mails(folder) == ["ann", "bob", "ann"]
    assert said[-3:] == ["mail 1 to ann", "mail 2 to bob", "mail 3 to ann"]


@pytest.mark.parametrize("kill", ["1/after", pytest.param("1/answered", marks=pytest.mark.full)])
async def test_a_killed_mcp_server_mails_once(folder: Path, kill: str) -> None:
    arguments = {"to": "ann", "subject": "receipt"}

    async def call(environment: Mapping[str, str]) -> str:
        server = StdioServerParameters(
            command=sys.executable, args=[str(folder / "with_mcp.py")], env=dict(environment), cwd=folder
        )
        async with asyncio.timeout(SECONDS), McpClient(stdio_client(server)) as client:
            (tool,) = (await client.list_tools()).tools
            assert [*tool.input_schema["properties"]] == ["to", "subject"]
            return str(await client.call_tool(tool.name, arguments))

    try:
        await call(environment(folder, kill))
    except Exception:  # the server is gone
        assert kill == "1/after"
    assert "mail 1 to ann" in await call(environment(folder))
    assert mails(folder) == ["ann"]


@pytest.mark.full
@pytest.mark.parametrize("kill", ["2/after", "2/before"])
async def test_an_activity_of_a_killed_worker_mails_once(
    folder: Path, kill: str, client: Client, server: DevServer
) -> None:
    queue = f"mails-{uuid.uuid4().hex[:8]}"
    order = await client.start_workflow("Order", id=queue, task_queue=queue)
    async with started(folder, "temporal_program.py", server.address, queue, kill=kill) as process:
        _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()[-2000:]
    async with started(folder, "temporal_program.py", server.address, queue):
        done = await asyncio.wait_for(order.result(), SECONDS)

    assert done == ["mail 1 to ann", "mail 2 to bob", "mail 3 to cid"]
    assert mails(folder) == MAILS


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "has_equal_ids"),
    [*((name, False) for name in NAMES), ("openai_agents_session", False), ("pydantic_ai", True), ("langgraph", True)],
)
async def test_a_killed_agent_of_a_framework_pays_and_mails_once(
    name: str, has_equal_ids: bool, tmp_path: Path
) -> None:
    """Also if each turn's calls have the ids of the turn before, but for OpenAI Agents, which takes no such calls."""
    python = await python_with(requirements(name.removesuffix("_session")))
    kills = [Kill(name, 3, "called", 0.0), Kill(name, 2, "committed", 0.0)]
    model = BankModel([], repeats_ids=has_equal_ids)
    async with running(model), Agents(tmp_path, {name: python}, model) as agents:
        for number, kill in enumerate(kills):
            await agents.play(kill, str(number))

    assert {str(kill): kill.end for kill in kills} == {str(kill): End.ONCE for kill in kills}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("program", "wanted", "said"),
    [
        ("cut_pydantic_ai.py", requirements("pydantic_ai"), "mail 1 to ann"),
        ("cut_openai_agents.py", requirements("openai_agents"), "mail 1 to ann"),
        ("cut_langgraph.py", requirements("langgraph"), "mail 1 to ann"),
        ("cut_dbos.py", COMPANIONS / "dbos-requirements.txt", "mail 1 to ann"),
        ("cut_tenacity.py", requirements("langgraph"), "OutcomeUnknown"),
    ],
)
async def test_a_limit_or_retry_of_a_framework_repeats_no_effect(
    program: str, wanted: Path, said: str, folder: Path
) -> None:
    """The next call joins the one that was cut off, or gets its result; if nobody can find out, the error stays."""
    python = await python_with(wanted)
    async with started(folder, program, python=python) as process:
        output, errors = await process.communicate()

    assert output.decode().splitlines()[-1:] == [said], errors.decode()[-2000:]
    assert mails(folder) == ["ann"]


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_a_framework_are_those_of_its_program(name: str) -> None:
    program = (ROOT / "lab" / "evals" / "frameworks" / f"{name}_functions_agent.py").read_text(encoding="utf-8")
    block = BLOCKS[HEADINGS[name]]

    assert {*block.splitlines()} - {*program.splitlines()} == set()
    version = re.search(r"(?:pydantic-ai-slim\[.*\]|openai-agents|langgraph)==(\S+)", requirements(name).read_text())
    assert version is not None
    assert f"### {HEADINGS[name]}\n\nTried with {version[1]}" in PAGE


def test_the_page_has_short_recipes_and_each_option_and_error() -> None:
    """A recipe has at most eight lines, without those that are empty."""
    lengths = {heading: len([line for line in block.splitlines() if line]) for heading, block in BLOCKS.items()}
    options = {row[0].partition("=")[0].strip("`") for row in TABLES["option"]}
    classes = {name: one for name in face.__all__ if isinstance(one := getattr(face, name), type)}
    errors = {name for name, one in classes.items() if issubclass(one, EffectError | face.StoreUnavailable)}

    assert {heading: length for heading, length in lengths.items() if length > MOST_LINES + 2} == {}
    assert options == {*inspect.signature(EffectOptions).parameters}
    assert {row[0] for row in TABLES["error"]} == errors - {"EffectError"}
    assert 1 < len(TABLES["what is known"]) <= 9


async def test_the_transactional_example_writes_with_its_record(folder: Path) -> None:
    (folder / "run.py").write_text(
        "import os, sys\nimport booking\nfrom sqlalchemy import text\n"
        "with booking.shop.begin() as tx: tx.execute(text('CREATE TABLE IF NOT EXISTS bookings (room INTEGER)'))\n"
        "print(booking.book(7), flush=True)\n"
        "os._exit(1) if sys.argv[1:] else None\n"
        "with booking.shop.begin() as tx: print(tx.execute(text('SELECT count(*) FROM bookings')).scalar_one())\n"
    )
    async with started(folder, "run.py", "die") as process:
        await process.communicate()
    async with started(folder, "run.py") as process:
        said, errors = await process.communicate()

    assert said.decode().splitlines() == ["room 7 is booked", "1"], errors.decode()[-1000:]
