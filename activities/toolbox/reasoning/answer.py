"""One question of a step to the worker's model, and what the answer has to be."""

import sys
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import to_json

from activities.borders import classify
from activities.llm.fence import fenced, visible
from activities.llm.language_model import LanguageModel, Offer, Request
from activities.llm.reply import Reply, Stop
from activities.llm.turns import UserTurn
from activities.toolbox.errors import Refused
from workflows.faults import Code
from workflows.spending import BYTES_PER_TOKEN

MAX_ASKED = 75_000
"""Bytes of what a model is given to read in one step, with the form that its answer is to have."""
AROUND = 1_000
"""Tokens of the instructions, and of what a provider adds."""
MAX_SAID = 500
"""Characters of words in place of a call that the planner is shown."""


def most(max_output: int) -> int:
    """Tokens that one question may use, for the decorator's `tokens=`."""
    return MAX_ASKED // BYTES_PER_TOKEN + beside(max_output)


def beside(max_output: int) -> int:
    """Tokens of these that are not for reading the arguments."""
    return AROUND + max_output


def whole(label: str, value: JsonValue) -> str:
    """A value as a model is told it, fenced and not cut: whether it is too long is seen when it is asked."""
    return fenced(label, value, sys.maxsize)


async def text(model: LanguageModel, system: str, told: str, max_output: int) -> str:
    """What the model writes.

    Raises:
        Refused: it declined, wrote nothing, or was cut off; or what it was told is too long for it.
    """
    reply = await _ask(model, system, told, [], max_output)
    written = visible(reply.turn.text).strip()
    if not written:
        raise Refused("The model wrote nothing: ask for something else.", code="unexpected_result")
    return written


async def arguments(
    model: LanguageModel, system: str, told: str, offer: Offer, max_output: int
) -> dict[str, JsonValue]:
    """What the model calls the one tool with that it is offered.

    Raises:
        Refused: it declined, was cut off, called nothing or something else; or what it was told is too long for it.
    """
    reply = await _ask(model, system, told, [offer], max_output)
    calls = [call for call in reply.turn.calls if call.name == offer.name]
    if not calls:
        said = visible(reply.turn.text).strip()[:MAX_SAID]
        reason = "The model gave no values: what it says in their place is what was seen."
        raise Refused(reason, code="unexpected_result", observed={"said": said})
    if len(calls) > 1:
        raise Refused(f"The model gave {len(calls)} answers at once.", code="unexpected_result")
    if calls[0].broken:
        raise Refused("The model's values cannot be read: they are no JSON object.", code="unexpected_result")
    return calls[0].args


async def _ask(model: LanguageModel, system: str, told: str, offers: Sequence[Offer], max_output: int) -> Reply:
    size = len(told.encode()) + sum(len(to_json(dict(offer.schema))) for offer in offers)
    if size > MAX_ASKED:
        reason = f"What the model is to read has {size} bytes, more than {MAX_ASKED}: give it a part."
        raise Refused(reason, code="invalid_input")
    try:
        reply = await model.reply(Request(system, offers, [UserTurn(told)], max_output, is_once=True))
    except Exception as error:  # total: whatever the borders call too long
        if classify(error).code is not Code.TOO_LARGE:
            raise
        reason = "What the model is to read is longer than it can hold at once: give it a part."
        raise Refused(reason, code="invalid_input") from error
    if reply.stop is Stop.REFUSED:
        raise Refused("The model declined to answer: ask for something else, or use another kind.")
    if reply.stop is Stop.CUT:
        reason = f"The model's answer was cut off at {max_output} tokens: ask for less at once."
        raise Refused(reason, code="unexpected_result")
    return reply
