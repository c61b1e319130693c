"""Agents of others, run for real with planted faults: each fault is found, and in a clean run nothing."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from extras.audit.tests import integrations
from extras.audit.tests.integrations import EFFECTS, EXPECTED

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
async def on_server() -> AsyncIterator[Client]:
    async with integrations.server() as client:
        yield client


@pytest.mark.parametrize("program", EXPECTED)
async def test_each_planted_fault_is_found_and_nothing_else(on_server: Client, program: str) -> None:
    """And the shop did charge twice where the audit says that it may have."""
    python, found, charges = await integrations.python_for(program), dict[str, set[str]](), dict[str, int]()
    for scenario in EXPECTED[program]:
        done = await integrations.run(on_server, python, program, scenario)
        found[scenario] = integrations.found_in(done.history.events)
        charges |= {scenario: done.charges} if done.charges else {}

    assert found == {scenario: set(names) for scenario, names in EXPECTED[program].items()}
    assert charges == EFFECTS
