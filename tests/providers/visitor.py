"""A scripted model that goes through a house of many doors, and knows nothing but what it is told."""

import re

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls
from tests.providers.plates import ROOMS

FOUND = "code of room 1 is C-111"
"""The right answer."""


def codes(text: str) -> set[str]:
    """What can be read of rooms and codes."""
    return set(re.findall(r"code of room \d+ is C-\d+", text))


def visitor(heard: ReceivedRequest) -> Response:
    """Read room after room, summarise what can be seen, and answer from what can be seen in the end."""
    if not heard.tools:
        return ModelReply(text=". ".join(sorted(codes(heard.all_text))))
    number = max((int(str(call.args["number"])) for call in heard.calls), default=0) + 1
    if number <= ROOMS:
        return calls(ModelCall("read_plate", {"number": number}))
    return ModelReply(text=next((code for code in codes(heard.all_text) if "room 1 " in code), "I forgot it."))
