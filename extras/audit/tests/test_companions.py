"""`FaultsPlugin` beside the integrations of others: the agents of extras/audit/tests/programs, each with one line more.

What the audit finds in the histories without the line (`extras/audit/tests/integrations.py`) is gone in those with it.
"""

import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client

from extras.audit.tests import integrations
from extras.audit.tests.integrations import AGAIN, EXPECTED, NO_PLAN, NOTHING, PROGRAMS

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

PLUGINS: Mapping[str, tuple[str, str]] = {
    "pydantic_ai": ("plugins=[AgentPlugin(agent)]", "plugins=[{first}AgentPlugin(agent){last}]"),
    "openai_agents": ("activities=[get_price, charge]", "activities=[get_price, charge], plugins=[{only}]"),
    "mcp": ('plugins = [MCPPlugin({"shop": shop})]', 'plugins = [{first}MCPPlugin({{"shop": shop}}){last}]'),
    "home_made": ("activities=[call_llm, tool]", "activities=[call_llm, tool], plugins=[{only}]"),
}
"""By agent, the words of its program that the line changes."""
CHARGES = {
    "pydantic_ai": "agent__clerk__toolset__<agent>__call_tool",
    "openai_agents": "charge",
    "mcp": "temporalio.mcp.shop.call-tool",
    "home_made": "charge",
}
"""By agent, the activity that charges."""
SAY_THEMSELVES = {("openai_agents", "model_quota")}
"""Where an integration makes an ApplicationError of a failure, one that may be retried: it passes untouched."""


@pytest.fixture(scope="module")
async def on_server() -> AsyncIterator[Client]:
    async with integrations.server() as client:
        yield client


def with_the_line(program: str, folder: Path, options: str, place: str = "last") -> Path:
    """The agent's file with the line in it, beside the files that it starts."""
    shutil.copytree(PROGRAMS, folder)
    file = folder / f"{program}_agent.py"
    words, line = PLUGINS[program]
    made = f"FaultsPlugin({options})"
    new = line.format(
        only=made, first=f"{made}, " if place == "first" else "", last=f", {made}" if place == "last" else ""
    )
    text = file.read_text()
    assert words in text
    text = text.replace("\nfrom temporalio import", "\nfrom replan import FaultsPlugin\nfrom temporalio import", 1)
    file.write_text(text.replace(words, new))
    return file


async def found(client: Client, file: Path, program: str, scenarios: list[str]) -> dict[str, tuple[set[str], int]]:
    """By scenario, what the audit finds, and how often the shop charged."""
    python, seen = await integrations.python_for(program), {}
    for scenario in scenarios:
        done = await integrations.run(client, python, program, scenario, file)
        seen[scenario] = (integrations.found_in(done.history.events), done.charges)
    return seen


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("program", EXPECTED)
async def test_no_retry_is_left_that_cannot_help(on_server: Client, tmp_path: Path, program: str, place: str) -> None:
    """In either order of plugins; a clean run stays one, and so does what the agent makes of an error."""
    if place == "first" and "first" not in PLUGINS[program][1]:
        pytest.skip("the agent has no other plugin")
    file = with_the_line(program, tmp_path / "programs", "", place)
    scenarios = [name for name in EXPECTED[program] if name not in ("lost", "killed", "limited")]
    seen = await found(on_server, file, program, scenarios)

    left = {
        name: set(EXPECTED[program][name]) - {NO_PLAN} - ({NOTHING} if (program, name) not in SAY_THEMSELVES else set())
        for name in scenarios
    }
    assert {name: findings - {NO_PLAN} for name, (findings, _) in seen.items()} == left
    assert seen["clean"][1] == 1


@pytest.mark.parametrize("program", EXPECTED)
async def test_a_charge_is_not_made_twice(on_server: Client, tmp_path: Path, program: str) -> None:
    """Its answer was lost, or its worker was killed, and the activity is declared `unkeyed`.

    Also where the integration raises an ApplicationError for a lost answer, one that may be retried.
    """
    file = with_the_line(program, tmp_path / "programs", f"effects={{{CHARGES[program]!r}: 'unkeyed'}}")
    seen = await found(on_server, file, program, ["clean", "lost", "killed"])

    assert {name: charges for name, (_, charges) in seen.items()} == {"clean": 1, "lost": 1, "killed": 1}
    assert AGAIN not in seen["lost"][0]
