"""Many agents and many calls in one folder, and everything killed at once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from extras.gateway.tests.agents import Agent, Place, said

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
AGENTS, CALLS = 24, 40
LONG = 600.0
RECONCILED = """[servers.shop.tools.pay]
effect = "unkeyed"
timeout = 20
settle = 0.5
reconcile = { kind = "shop.book", applied_if = "args.who in result.text" }
"""


def test_24_agents_make_960_calls_at_once(place: Place) -> None:
    """All of one folder, and so of one store: each is done once, and each has its own answer."""
    place.agent("first").tools()
    with ThreadPoolExecutor(8) as threads:
        agents = list(threads.map(lambda number: place.agent(f"agent-{number}"), range(AGENTS)))
    begun = [
        [(f"a{number}c{call}", agent.begin("pay", {"who": f"a{number}c{call}"})) for call in range(CALLS)]
        for number, agent in enumerate(agents)
    ]
    for agent, calls in zip(agents, begun, strict=True):
        for who, number in calls:
            assert said(agent.answer(number, LONG)["result"]).startswith(f"paid {who}")

    assert len(place.paid) == len({*place.paid}) == AGENTS * CALLS


def test_everything_is_killed_at_once(place: Place) -> None:
    """Agents, holders, servers of tools, in the midst of 48 payments: the agents start and call again."""
    file = place.tools_file(RECONCILED)
    place.of_tools(file, "--session", "first").tools()

    def agents() -> list[Agent]:
        return [place.of_tools(file, "--session", f"agent-{number}") for number in range(6)]

    first = agents()
    for number, agent in enumerate(first):
        for call in range(8):
            agent.begin("pay", {"who": f"a{number}c{call}."})
    place.until_paid(5)
    killing = [threading.Thread(target=agent.kill) for agent in first]
    for thread in killing:
        thread.start()
    place.kill_all()
    for thread in killing:
        thread.join()
    for number, agent in enumerate(agents()):
        again = [agent.begin("pay", {"who": f"a{number}c{call}."}) for call in range(8)]
        for call in again:
            result = agent.answer(call, LONG)["result"]
            assert not result.get("isError"), result

    assert {*Counter(place.paid).values()} == {1}
    assert len(place.paid) == 48
