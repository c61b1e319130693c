"""A scripted model that goes through a house of many doors, and knows nothing but what it is told."""

import re

from tests.providers.heard import Heard
from tests.providers.plates import ROOMS
from tests.providers.script import Call, Move, Says, calls

FOUND = "code of room 1 is C-111"
"""The right answer."""


def codes(text: str) -> set[str]:
    """What can be read of rooms and codes."""
    return set(re.findall(r"code of room \d+ is C-\d+", text))


def visitor(heard: Heard) -> Move:
    """Read room after room, summarise what can be seen, and answer from what can be seen in the end."""
    if not heard.tools:
        return Says(text=". ".join(sorted(codes(heard.told))))
    number = max((int(str(call.args["number"])) for call in heard.calls), default=0) + 1
    if number <= ROOMS:
        return calls(Call("read_plate", {"number": number}))
    return Says(text=next((code for code in codes(heard.told) if "room 1 " in code), "I forgot it."))
