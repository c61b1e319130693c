"""Tables, numbers and lines of the pages on budgets, on MCP servers and on frameworks are those of the code."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from activities.toolbox.schemas.reading import MAX_FOREIGN, MAX_FOREIGN_PARTS
from evals.clients.programs import CLIENTS
from evals.frameworks.__main__ import NAMES
from evals.frameworks.environments import requirements
from extras.mcp.answers import MAX_EFFECT, MAX_READ
from extras.mcp.schema import MAX_PARTS
from extras.mcp.tools_file import ErrorRow, ServerTable, ToolsFile, ToolTable, read
from extras.mcp.transports import LINES_PER_MINUTE, MAX_MESSAGE
from runtime.settings_file import Budget, SettingsFile
from tests.documentation import sections, tables
from tests.processes import ROOT
from workflows.account.task import REPLANS
from workflows.limits.budget import Limits
from workflows.limits.spending import MAX_OUTPUT

README, MCP, MODELS, CONSOLE = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/mcp.md", "docs/models.md", "docs/console.md")
)
BUDGETS = MODELS.partition("\n## Budgets\n")[2].partition("\n## ")[0]
FRAMEWORKS = MCP.partition("### In your framework\n")[2].partition("\n### ")[0]
BLOCKS = dict(re.findall(r"^\*\*([^*]+)\*\*.*?^```\w+\n(.*?)^```", FRAMEWORKS, flags=re.DOTALL | re.MULTILINE))
HEADINGS = {"pydantic_ai": "pydantic-ai", "openai_agents": "OpenAI Agents SDK", "langgraph": "LangGraph"}
TOLD = {
    r'"replan", \["mcp".*?\]': "COMMAND, ARGS",
    r'"replan", "args": \["mcp".*?\]': 'COMMAND, "args": ARGS',
    r'"http://127[^"]*"': "COMMAND",
}
"""What a program of the eval has in place of what the page says."""
CHOSEN = re.compile(r" if KEYS else None|STDIO if ARGS else ")
"""What a program of the eval chooses by its arguments."""
TOOLS_FILES = [
    block
    for page in (MCP, README)
    for block in re.findall(r"^```toml\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    if "servers." in block
]


def test_the_settings_file_shows_everything_that_can_be_set_and_means_what_it_says(tmp_path: Path) -> None:
    """Whoever copies it and changes a number has a file that works."""
    file = tmp_path / "replan.toml"
    file.write_text(BUDGETS.partition("```toml\n")[2].partition("```")[0])
    example = SettingsFile.read(file)
    budgets, models = example.budgets, example.models

    assert budgets.interactive.model_fields_set | budgets.background.model_fields_set == set(Budget.model_fields)
    assert models.model_fields_set == set(type(models).model_fields)
    assert example.limits("background", {})["tokens"] is None
    assert set(models.known_prices) == {"openai:qwen3@localhost:11434", "anthropic:claude-opus-5-5"}


def test_the_usual_limits_of_the_pages_are_those_of_a_task() -> None:
    """One vocabulary for limits; how many replans may be fruitless follows from whether `replans` is given."""
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|$", BUDGETS, re.MULTILINE))
    options = dict(tables(sections(CONSOLE)["start"])["option"])
    usual = {name: one for name, one in Limits().model_dump().items() if name not in ("fruitless", "replans")}

    assert rows == {
        **{name: "no limit" if one is None else f"{one:,}" for name, one in usual.items()},
        "replans": f"{REPLANS['plan']}, with `--strategy react` {REPLANS['react']}",
    }
    for name in ("tool_calls", "tokens"):
        assert options[f"--{name.replace('_', '-')} N"].endswith(f"; else {usual[name]}.")
    assert options["--replans N"].endswith(f": {REPLANS['plan']}, with `react` {REPLANS['react']}.")
    assert f"from {MAX_OUTPUT:,} tokens down" in BUDGETS


@pytest.mark.parametrize("block", TOOLS_FILES)
def test_an_example_is_a_tools_file(block: str) -> None:
    """But for the command, where an example is only about something else."""
    values = tomllib.loads(block)
    for server in values["servers"].values():
        if not {"command", "url"} & {*server}:
            server["command"] = ["server"]

    assert ToolsFile.model_validate(values)


def test_the_page_has_every_word_of_a_tools_file_and_the_numbers_of_the_code() -> None:
    """What needs git's server is in extras/mcp/tests/test_real_servers.py."""
    words = {}
    for model, heading in {ServerTable: "of a server, in `[servers.NAME]`", ToolTable: "of a tool, in"}.items():
        [rows] = [rows for name, rows in tables(MCP).items() if name.startswith(heading)]
        cells = [re.sub(r"[={].*?(`|$)", "", row[0]) for row in rows]
        words[model] = {match for cell in cells for match in re.findall(r"[a-z_]+", cell)}

    assert words == {
        ServerTable: {*ServerTable.model_fields} - {"tools", "errors"},
        ToolTable: {*ToolTable.model_fields},
    }
    assert f"more than {MAX_FOREIGN // 1024**2} MB or more than {MAX_FOREIGN_PARTS:,} parts" in MCP
    assert f"more than {MAX_MESSAGE // 1024**2} MB" in MCP and f"more than {MAX_PARTS:,} parts" in MCP
    assert f"at {MAX_READ // 1000} kB" in MCP and f"at {MAX_EFFECT // 1000} kB" in MCP
    assert f"at most {LINES_PER_MINUTE} lines" in MCP
    assert all(f"`{word}`" in MCP or f"`{word} =" in MCP for word in ErrorRow.model_fields)
    assert "git" in read(ROOT / "examples" / "git.toml").servers


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_a_framework_are_those_of_its_program(name: str) -> None:
    """Each line, but for the command or address and what the eval varies."""
    block = BLOCKS[HEADINGS[name]]
    for shown, run in TOLD.items():
        block = re.sub(shown, run, block)
    program = (ROOT / "lab" / "evals" / "frameworks" / f"{name}_agent.py").read_text(encoding="utf-8")

    assert {*block.splitlines()} - {*CHOSEN.sub("", program).splitlines()} == set()
    assert "Replan-Key" in block or "replan/key" in block


def test_the_tables_have_every_framework_and_client_with_what_was_tried() -> None:
    """What the evals measured, with the versions of their environments; the sums of `evals.clients` for both ways."""
    pinned = dict(line.split("==") for name in NAMES for line in requirements(name).read_text().splitlines()[1:])
    rows, clients = tables(FRAMEWORKS)["framework"], tables(MCP)["client"]

    for name in ("pydantic-ai", "openai-agents", "langgraph", "langchain-mcp-adapters"):
        version = pinned.get(name) or pinned[f"{name}-slim[openai,mcp]"]
        assert f"{name} {version}" in " ".join(FRAMEWORKS.split())
    assert {row[0] for row in rows} == {*NAMES}
    assert {row[3] for row in rows if row[2] == "yes"} == {"1 paid, answer"}
    assert [row[0] for row in clients] == [client.title for client in CLIENTS]
    assert "half over stdio, half over HTTP" in " ".join(MCP.split())
    assert {cell for row in clients for cell in row[1:4]} == {"0"}


def test_the_json_of_claude_code_is_a_command_of_replan() -> None:
    (server,) = json.loads(BLOCKS["Claude Code"])["mcpServers"].values()

    assert server["command"] == "replan"
    assert server["args"][:2] == ["mcp", "--session"]
