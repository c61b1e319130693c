"""The calls that end a task, whatever the strategy is: finish, ask, give up."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from activities import prompts
from activities.borders import validation
from activities.llm.language_model import Offer
from activities.llm.turns import ToolCall
from activities.toolbox.json_schema import JsonSchema
from workflows.plan import Answer, GiveUp, Question

PROPOSE, FINISH, ASK, GIVE_UP = "propose_plan", "finish", "ask", "give_up"
ENDS: Mapping[str, tuple[type[Answer] | type[Question] | type[GiveUp], str, str]] = {
    FINISH: (Answer, "result", "result"),
    ASK: (Question, "question", "text"),
    GIVE_UP: (GiveUp, "reason", "reason"),
}
"""What each of them proposes, and how its argument is called there and here."""

Schema = dict[str, Any]
Form = TypeVar("Form", bound=BaseModel)


class Unusable(Exception):
    """A reply is no proposal; the message tells the model exactly why."""


def finish(wanted: Mapping[str, JsonValue] | None) -> Offer:
    """The call that ends the task with its answer: text, or what the user's schema says."""
    if wanted is None:
        return Offer(FINISH, prompts.FINISH, text("result", "The answer for the user."))
    return Offer(FINISH, prompts.FINISH, JsonSchema(wanted).arguments)


def others() -> list[Offer]:
    """Asking, and giving up."""
    return [
        Offer(ASK, prompts.ASK, text("question", "One question, which the user can answer in a sentence.")),
        Offer(GIVE_UP, prompts.GIVE_UP, text("reason", "Why, in one sentence.")),
    ]


def text(name: str, description: str) -> Schema:
    """The schema of arguments that are one text."""
    return only({name: {"type": "string", "description": description}}, required=[name])


def only(properties: Schema, required: list[str]) -> Schema:
    """The schema of an object that has these properties and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def ended(call: ToolCall, wanted: Mapping[str, JsonValue] | None) -> Answer | Question | GiveUp:
    """The proposal that a call of one of the ends is.

    Raises:
        Unusable: it is none.
    """
    form, theirs, ours = ENDS[call.name]
    if call.broken:
        raise Unusable(prompts.broken(call.name, call.broken))
    if form is Answer and wanted is not None:
        return Answer(result=_fitting(call.args, wanted))
    if not call.args.get(theirs):
        raise Unusable(prompts.missing(call.name, theirs))
    found: Answer | Question | GiveUp = parsed(form, call.name, {ours: call.args[theirs]})
    return found


def parsed(form: type[Form], name: str, args: Mapping[str, JsonValue]) -> Form:
    """The proposal that the arguments of a call are.

    Raises:
        Unusable: they are none.
    """
    try:
        return form.model_validate(args)
    except ValidationError as error:
        found = validation.fields(error.errors(include_url=False, include_context=False, include_input=False))
        raise Unusable(prompts.misfit(name, found)) from None


def _fitting(args: dict[str, JsonValue], wanted: Mapping[str, JsonValue]) -> JsonValue:
    schema = JsonSchema(wanted)
    answer = schema.value(args)
    if misfits := schema.misfits(answer):
        raise Unusable(prompts.unlike("; ".join(misfits)))
    return answer
