"""`replan mcp --keys`: what agents say stands in no file of the gateway."""

import pytest

from extras.gateway.tests.agents import Agent, Place, said
from runtime.keys import add_key

pytestmark = pytest.mark.full
COLOUR = "vermilion"


def test_a_call_and_its_key_are_found_nowhere_and_a_repetition_is_known(place: Place) -> None:
    """Also after the holder was killed; a holder without the key does not start, and says why."""
    ring = place.state.parent / "replan.keys"
    add_key(ring)
    place.environment["REPLAN_KEYS"] = str(ring)
    args = {"who": COLOUR, "words": f"in {COLOUR}"}
    first = place.agent("colours")
    paid = first.call("pay", args, key=f"order-{COLOUR}")
    refused = first.call("refuse", args)
    first.leave()
    place.kill_all()
    second = place.agent("colours")
    again = second.call("pay", args, key=f"order-{COLOUR}")
    second.leave()
    place.kill_all()
    del place.environment["REPLAN_KEYS"]
    blind = Agent(place, "--", *place.shop)
    blind.send("initialize")
    why = blind.errors()

    assert COLOUR in said(paid) and refused["isError"]
    assert said(again) == said(paid) and place.paid == [COLOUR]
    assert "was written with the key" in why and "(--keys" in why and "Traceback" not in why
    files = [path for path in place.state.rglob("*") if path.is_file()]
    assert place.state / "store.db" in files
    assert [path for path in files if COLOUR.encode() in path.read_bytes()] == []
