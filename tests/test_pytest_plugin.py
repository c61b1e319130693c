"""The plugin for pytest, in a project of a user: tests of tools on a real worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

SETTINGS = """
[pytest]
pythonpath = .
replan_tools = shop.tools
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
TOOLS = '''
from pydantic import BaseModel, Field
from replan import Key, Refused, tool

PRICES = {"A-17": 24.5}

class Article(BaseModel):
    sku: str = Field(pattern=r"^[A-Z]-\\d+$")

class Price(BaseModel):
    amount: float

class Pages(BaseModel):
    text: str

@tool.read
async def get_price(args: Article) -> Price:
    """Look up a price."""
    if args.sku not in PRICES:
        raise Refused("there is no such article", code="not_found", observed=list(PRICES))
    return Price(amount=PRICES[args.sku])

@tool.keyed(approve="args.amount > 500")
def charge(args: Price, key: Key) -> Price:
    """Charge a card."""
    return args

@tool.read
def get_pages(args: Article) -> Pages:
    """Return more than a history takes."""
    return Pages(text="x" * 100_000)
'''
TESTS = """
import asyncio
import pytest
from replan import TaskEscalated, TaskFailed, TaskNotCompleted
from shop import tools
from shop.tools import Article, Price, charge, get_pages, get_price

A17 = Article(sku="A-17")

def test_a_call_returns_what_the_tool_declares(call_tool, monkeypatch):
    monkeypatch.setitem(tools.PRICES, "A-1", 2)
    assert call_tool(get_price, Article(sku="A-1")) == call_tool("get_price", {"sku": "A-1"}) == Price(amount=2)
    assert len(call_tool(get_pages, A17).text) == 100_000

def test_a_fault_is_data(call_tool):
    with pytest.raises(TaskFailed, match="no such article") as failed:
        call_tool(get_price, Article(sku="B-1"))
    fault = failed.value.fault
    assert (fault.quadrant, fault.code, fault.observed) == ("persistent_semantic", "not_found", ["A-17"])

@pytest.mark.parametrize("again", range(2))
def test_no_breaker_stays_open(call_tool, again):
    with pytest.raises(TaskNotCompleted) as failed:
        call_tool(get_price, A17, break_="unreachable")
    assert failed.value.fault.code == "unreachable"
    assert len(failed.value.outcome.faults) == 4 == failed.value.outcome.steps[0].attempts
    assert call_tool(get_price, A17) == Price(amount=24.5)

def test_an_effect_whose_answer_is_lost_is_not_repeated(call_tool):
    assert call_tool(charge, Price(amount=5), break_="lost:1") == Price(amount=5)

def test_a_person_is_needed(call_tool):
    with pytest.raises(TaskEscalated) as failed:
        call_tool(charge, Price(amount=501))
    assert failed.value.fault.code == "needs_approval"

@pytest.mark.parametrize(("break_", "says"), [
    ("conflct", "did you mean conflict"), ("die@after_claim:1", "would stop the process"), ("503:0", "no number"),
])
def test_a_fault_that_cannot_be_injected(call_tool, break_, says):
    with pytest.raises(ValueError, match=says):
        call_tool(get_price, A17, break_=break_)

def test_an_unknown_tool(call_tool):
    with pytest.raises(LookupError, match="did you mean get_price"):
        call_tool("get_prise")

def test_a_plain_test_awaits(call_tool, async_call_tool):
    async def call():
        with pytest.raises(RuntimeError, match="await async_call_tool"):
            call_tool(get_price, A17)
        return await asyncio.gather(async_call_tool(get_price, A17), async_call_tool(charge, Price(amount=5)))
    assert asyncio.run(call()) == [Price(amount=24.5), Price(amount=5)]

async def test_a_whole_task(async_call_tool, replan_worker):
    assert await async_call_tool(get_price, A17) == Price(amount=24.5)
    outcome = await (await replan_worker.connect()).run("calculate 18% of 2450")
    assert outcome.result == "18% of 2450 = 441."
    assert replan_worker.store.startswith("sqlite")
"""
OVERRIDE = """
import pytest
from shop.tools import Price, charge

@pytest.fixture(scope="module")
def replan_tools():
    return [charge]

@pytest.fixture(scope="module")
def replan_settings(tmp_path_factory):
    return {"workspace": tmp_path_factory.mktemp("files")}

def test_other_tools_and_settings(call_tool, replan_settings):
    assert call_tool(charge, Price(amount=5)) == Price(amount=5)
    with pytest.raises(LookupError):
        call_tool("get_price")
    assert call_tool("write_file", {"name": "a.txt", "content": "b"})
    assert [file.name for file in replan_settings["workspace"].rglob("*.txt")] == ["a.txt"]
"""
SHOWN = """
def test_shown(call_tool):
    call_tool("get_price", {"sku": "B-1"})
"""
UNUSED = """
import sys

def test_nothing_is_imported():
    assert "replan.pytest_plugin" in sys.modules
    assert {"temporalio", "sqlalchemy", "pydantic"}.isdisjoint(sys.modules)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tools.py").write_text(TOOLS)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    return tmp_path


def run(project: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a project in a process of their own, where the plugin is loaded by its name."""
    plugins = ["-p", "replan.pytest_plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, *options]
    chosen = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **environment}
    bad = {"TEMPORAL_ADDRESS": "localhost:1", "REPLAN_STORE": "postgresql+psycopg://nowhere/none"}  # of a deployment
    ours = {**os.environ, **bad, **chosen}
    return subprocess.run(command, cwd=project, env=ours, capture_output=True, text=True, check=False, timeout=100)


def test_a_user_tests_tools(project: Path) -> None:
    (project / "test_tools.py").write_text(TESTS)
    (project / "test_override.py").write_text(OVERRIDE)
    done = run(project)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 passed" in done.stdout


@pytest.mark.full
def test_a_failure_says_what_the_fault_is(project: Path) -> None:
    (project / "test_shown.py").write_text(SHOWN)
    done = run(project)

    assert done.returncode == 1
    assert "is failed: call: there is no such article\nE       fault: persistent_semantic, not_found" in done.stdout
    assert "concurrent/futures" not in done.stdout + done.stderr


@pytest.mark.full
def test_what_is_missing_is_said_with_a_remedy(project: Path) -> None:
    (project / "test_shown.py").write_text(SHOWN)
    no_program, no_tools = run(project, TEMPORAL_CLI="/nowhere"), run(project, "-o", "replan_tools=shop.tolls")

    assert (no_program.returncode, no_tools.returncode) == (1, 1)
    assert "TEMPORAL_CLI names '/nowhere', where no program is: correct it" in no_program.stdout
    assert "override the fixture replan_address" in no_program.stdout
    assert "There is no module shop.tolls in shop" in no_tools.stdout
    assert "During handling of the above exception" not in no_program.stdout + no_tools.stdout


def test_without_its_fixtures_it_does_nothing(project: Path) -> None:
    """Neither a server is started, nor a package imported that a test suite would wait for."""
    (project / "test_unused.py").write_text(UNUSED)
    done = run(project, TEMPORAL_CLI="/nowhere")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_each_process_of_xdist_has_a_server(project: Path) -> None:
    for number in range(4):
        (project / f"test_tools_{number}.py").write_text(TESTS)
    done = run(project, "-p", "xdist", "-n", "2", "--dist", "loadfile")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "48 passed" in done.stdout
