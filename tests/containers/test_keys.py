"""A key that a worker has from a mounted file."""

import asyncio

import pytest

from tests.containers.composed import Composed

pytestmark = pytest.mark.timeout(600)
CHECK = ("--check", "--planner", "anthropic")
PATIENCE = 60


async def test_a_file_that_the_worker_may_read(composed: Composed) -> None:
    """The key is there: without it, this check of a worker fails."""
    composed.key.write_text("sk-of-nobody")
    composed.key.chmod(0o444)
    run = ("run", "--detach", "--no-deps", "--env", "REPLAN_STAY=", "worker", *CHECK)
    without = await composed.ended((await composed.compose(*run)).split()[-1])
    given = await composed.ended((await composed.with_key(*run)).split()[-1])

    assert without == (
        2,
        "The planner 'anthropic' needs ANTHROPIC_API_KEY in the environment of the worker: set it, or choose another"
        " planner, e.g. offline.\n",
    )
    assert given[0] == 0, given


async def test_a_file_that_the_worker_may_not_read(composed: Composed) -> None:
    """It says so in one sentence with its user, and stays without a restart until it is stopped."""
    composed.key.unlink(missing_ok=True)
    composed.key.write_text("sk-of-nobody")
    composed.key.chmod(0o600)
    name = (await composed.with_key("run", "--detach", "--no-deps", "worker")).split()[-1]
    try:
        for _ in range(PATIENCE):
            if "REPLAN_STAY" in (said := await composed.said(name)):
                break
            await asyncio.sleep(1)
        container = await composed.container(name)
    finally:
        await composed.remove(name)

    assert (
        said.count("ANTHROPIC_API_KEY_FILE names '/run/secrets/anthropic_api_key', which user 10001 may not read") == 1
    )
    assert container["State"]["Running"] and container["RestartCount"] == 0
    assert "sk-of-nobody" not in said
