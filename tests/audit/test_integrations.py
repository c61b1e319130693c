"""Agents of others, run for real with planted faults: each fault is found, and in a clean run nothing."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from audit.findings import findings_in
from audit.record import Recording
from evals.frameworks.environments import NoEnvironment, python_of
from tests.audit import integrations
from tests.audit.integrations import EFFECTS, EXPECTED

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
async def on_server() -> AsyncIterator[Client]:
    async with integrations.server() as client:
        yield client


@pytest.mark.parametrize("program", EXPECTED)
async def test_each_planted_fault_is_found_and_nothing_else(on_server: Client, program: str) -> None:
    """And the shop did charge twice where the audit says that it may have."""
    try:
        python = await python_of(integrations.requirements(program), print)
    except NoEnvironment as error:
        pytest.skip(f"The packages of {program} cannot be installed: {error}")
    found = dict[str, set[str]]()
    charges = dict[str, int]()
    for scenario in EXPECTED[program]:
        done = await integrations.run(on_server, python, program, scenario)
        recording = Recording(scenario)
        for event in done.history.events:
            recording.add(event)
        found[scenario] = {finding.name for finding, _ in findings_in(recording.record)}
        charges |= {scenario: done.charges} if done.charges else {}

    assert found == {scenario: set(names) for scenario, names in EXPECTED[program].items()}
    assert charges == EFFECTS
