"""How the steps of a call are waited for."""

import asyncio
from concurrent.futures import Future

import pytest

from activities.effects.driving import _do_async
from activities.effects.flow import WaitFor


@pytest.mark.parametrize("future", [None, Future[None]()], ids=["a time", "another call"])
async def test_a_wait_that_is_cancelled_leaves_nothing_and_stops_nobody_else(future: "Future[None] | None") -> None:
    """What it waited for may be another call that goes on, for which others wait, too."""
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(_do_async(WaitFor(60, future)))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before and (future is None or not future.cancelled())
