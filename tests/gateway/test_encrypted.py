"""`replan mcp --keys`: what agents say stands in no file of the gateway."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.keys import add_key
from tests.gateway.agents import SHOP, Agent, Place
from tests.gateway.test_gateway import said

pytestmark = pytest.mark.full
COLOUR = "vermilion"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A state folder, whose agents name a keyring beside it."""
    folder = tmp_path / "place"
    folder.mkdir()
    place = Place(folder)
    add_key(tmp_path / "replan.keys")
    place.environment["REPLAN_KEYS"] = str(tmp_path / "replan.keys")
    yield place
    place.close()


def holders(*folders: Path) -> list[str]:
    """The files below the folders in which the secret stands."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if COLOUR.encode() in path.read_bytes()]


def test_a_call_and_its_key_are_found_nowhere_and_a_repetition_is_known(place: Place) -> None:
    """Also after the holder was killed; a holder without the key does not start, and says why."""
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
    blind = Agent(place, "--", sys.executable, str(SHOP), str(place.book))
    blind.send("initialize")
    why = blind.errors()

    assert COLOUR in said(paid) and refused["isError"]
    assert said(again) == said(paid) and place.paid == [COLOUR]
    assert "was written with the key" in why and "(--keys" in why and "Traceback" not in why
    assert holders(place.state) == []
