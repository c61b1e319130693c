"""The kind `extract`: values out of a text, in the form of a JSON schema that stands in the arguments."""

import asyncio

from pydantic import BaseModel, Field, JsonValue

from activities.llm.language_model import LanguageModel, Offer
from activities.toolbox.errors import Refused
from activities.toolbox.json_schema import BadSchema, JsonSchema
from activities.toolbox.reasoning import answer
from activities.toolbox.reasoning.words import EXTRACT, EXTRACTED
from activities.toolbox.tool import tool

MAX_OUTPUT = 8_000
"""Tokens."""
CALL = "extracted"


class Wanted(BaseModel):
    """What to take out of what."""

    text: str = Field(description="The text itself, e.g. the text of a document or page", max_length=answer.MAX_ASKED)
    json_schema: dict[str, JsonValue] = Field(
        description='The JSON schema of what is wanted, e.g. {"type": "object", "properties": {"total": {"type":'
        ' "number", "description": "In euros"}}, "required": ["total"]}'
    )


@tool.read(timeout=120, tokens=answer.most(MAX_OUTPUT), tokens_beside=answer.beside(MAX_OUTPUT))
async def extract(args: Wanted, model: LanguageModel) -> JsonValue:
    """Take values out of a text, in the form of a JSON schema; its result is such a value, e.g. {"total": 24.5}.

    A value that does not keep the schema is `unexpected_result`, with what is wrong, and not asked for again here: the
    same question gets the same kind of answer, and a planner can change it. A schema that cannot be used is
    `invalid_input`.
    """
    if not args.text.strip():
        raise Refused("There is nothing to take values out of: give the text itself.", code="invalid_input")
    try:
        schema = JsonSchema(args.json_schema)
        told = answer.whole("text", args.text)
        given = await answer.arguments(model, EXTRACT, told, Offer(CALL, EXTRACTED, schema.arguments), MAX_OUTPUT)
        value = schema.value(given)
        misfits = await asyncio.to_thread(schema.misfits, value)  # many alternatives of many items take seconds
    except BadSchema as wrong:
        raise Refused(f"The JSON schema cannot be used: {wrong}.", code="invalid_input") from wrong
    if misfits:
        reason = "The model's values do not keep the schema: see what is wrong, and change the schema or the text."
        raise Refused(reason, code="unexpected_result", observed={"wrong": misfits, "values": value})
    return value
