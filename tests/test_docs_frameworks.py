"""docs/mcp.md shows the lines that `evals.frameworks` runs, and each client of `evals.clients` is in its table."""

import json
import re

import pytest

from evals.clients.programs import CLIENTS
from evals.frameworks.__main__ import NAMES
from evals.frameworks.environments import requirements
from tests import documentation
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### In your framework\n")[2].partition("\n### ")[0]
BLOCKS = dict(re.findall(r"^\*\*([^*]+)\*\*.*?^```\w+\n(.*?)^```", SECTION, flags=re.DOTALL | re.MULTILINE))
HEADINGS = {"pydantic_ai": "pydantic-ai", "openai_agents": "OpenAI Agents SDK", "langgraph": "LangGraph"}
TOLD = {
    r'"replan", \["mcp".*?\]': "COMMAND, ARGS",
    r'"replan", "args": \["mcp".*?\]': 'COMMAND, "args": ARGS',
    r'"http://127[^"]*"': "COMMAND",
}
"""What a program of the eval has in place of what the page says."""
CHOSEN = re.compile(r" if KEYS else None|STDIO if ARGS else ")
"""What a program of the eval chooses by its arguments."""


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_a_framework_are_those_of_its_program(name: str) -> None:
    block = BLOCKS[HEADINGS[name]]
    for shown, run in TOLD.items():
        block = re.sub(shown, run, block)
    program = (ROOT / "evals" / "frameworks" / f"{name}_agent.py").read_text(encoding="utf-8")

    assert {*block.splitlines()} - {*CHOSEN.sub("", program).splitlines()} == set()
    assert "Replan-Key" in block or "replan/key" in block


def test_the_page_names_the_versions_that_were_tried() -> None:
    pinned = dict(line.split("==") for name in NAMES for line in requirements(name).read_text().splitlines()[1:])

    for name in ("pydantic-ai", "openai-agents", "langgraph", "langchain-mcp-adapters"):
        version = pinned.get(name) or pinned[f"{name}-slim[openai,mcp]"]
        assert f"{name} {version}" in " ".join(SECTION.split())


def test_the_table_has_every_framework() -> None:
    """What the eval measured, with and without the gateway."""
    rows = documentation.tables(SECTION)["framework"]

    assert {row[0] for row in rows} == {*NAMES}
    assert {row[3] for row in rows if row[2] == "yes"} == {"1 paid, answer"}


def test_the_json_of_claude_code_is_a_command_of_replan() -> None:
    (server,) = json.loads(BLOCKS["Claude Code"])["mcpServers"].values()

    assert server["command"] == "replan"
    assert server["args"][:2] == ["mcp", "--session"]


def test_the_table_of_clients_has_each_client_and_nothing_twice() -> None:
    rows = documentation.tables(PAGE)["client"]

    assert [row[0] for row in rows] == [client.title for client in CLIENTS]
    assert "half over stdio, half over HTTP" in " ".join(PAGE.split())
    assert {row[1] for row in rows} == {row[2] for row in rows} == {row[3] for row in rows} == {"0"}
