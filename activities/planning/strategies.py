"""The strategy `plan`: a model answers with a whole plan, or with the end of the task."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from activities.borders import validation
from activities.planning import prompts
from activities.providers.messages import Offer, Reply, ToolCall
from activities.toolbox.declare.kind import Kind
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from activities.toolbox.json_schema import JsonSchema
from workflows.plan import MAX_STEPS, Answer, GiveUp, NewSteps, Question, Step, nearest
from workflows.situation import Situation

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


def finish_call(wanted: Mapping[str, JsonValue] | None) -> Offer:
    """The call that ends the task with its answer: text, or what the user's schema says."""
    if wanted is None:
        return Offer(FINISH, prompts.FINISH, text("result", "The answer for the user."))
    return Offer(FINISH, prompts.FINISH, JsonSchema(wanted).arguments)


def other_ends() -> list[Offer]:
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


REFERENCE = "reference"
DEFINITIONS = "#/$defs/"

DESCRIBING = ("description", "title", "default")

SHARED: Mapping[str, Schema] = {
    "id": {"type": "string", "description": "A letter, then letters, digits, - or _; new in this task."},
    "title": {"type": "string", "description": "What it does, in a few words, for people."},
    "needs": {"type": "array", "items": {"type": "string"}, "description": "Ids of steps to be finished before."},
    # `$from` cannot be named as a property: Anthropic takes letters, digits, `_`, `.` and `-` alone there
    REFERENCE: {
        "type": "object",
        "description": 'The result of another step: {"$from": "<step id>"}, or a part of it, with "path": "a.0".',
        "additionalProperties": {"type": "string"},
        "required": ["$from"],
    },
}
"""What steps of all kinds have."""


def propose_plan(kinds: Mapping[str, Kind]) -> Offer:
    """The call that carries a plan of steps of these kinds."""
    return Offer(PROPOSE, prompts.PROPOSE, _plan(kinds))


def _plan(kinds: Mapping[str, Kind]) -> Schema:
    definitions: Schema = dict(SHARED)
    for name, kind in kinds.items():
        parts = kind.args_schema.get("$defs", {})
        definitions |= {f"{name}.{part}": _opened(schema, name) for part, schema in parts.items()}
        definitions[f"{name}.arguments"] = _arguments(kind)
    steps = {"type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": {"anyOf": [_step(name) for name in kinds]}}
    because = {"type": "string", "description": "Why these steps, in one sentence, for the people who watch."}
    return {**only({"because": because, "steps": steps}, required=["steps"]), "$defs": definitions}


def _step(kind: str) -> Schema:
    """A step of one kind, whole in itself: servers that hold a model to a schema read each choice alone."""
    shared = {name: {"$ref": f"{DEFINITIONS}{name}"} for name in ("id", "title", "needs")}
    own = {"kind": {"type": "string", "enum": [kind]}, "args": {"$ref": f"{DEFINITIONS}{kind}.arguments"}}
    return only({**shared, **own}, required=["id", "kind", "args"])


def _arguments(kind: Kind) -> Schema:
    plain = {name: part for name, part in kind.args_schema.items() if name != "$defs"}
    opened: Schema = _opened(plain, kind.spec.kind)
    return opened


def _opened(schema: Any, kind: str) -> Any:
    """The schema with a reference allowed wherever a value is, and its definitions found under the kind's name."""
    if isinstance(schema, list):
        return [_opened(item, kind) for item in schema]
    if not isinstance(schema, dict):
        return schema
    opened: Schema = {}
    for name, part in schema.items():
        if name == "properties":
            opened[name] = {field: _or_reference(_opened(inner, kind)) for field, inner in part.items()}
        elif name in ("items", "additionalProperties") and isinstance(part, dict):
            opened[name] = _or_reference(_opened(part, kind))
        elif name == "$ref":
            opened[name] = f"{DEFINITIONS}{kind}.{str(part).removeprefix(DEFINITIONS)}"
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            opened["anyOf" if name == "oneOf" else name] = _opened(part, kind)
        elif name != "discriminator":
            opened[name] = part
    return opened


def _or_reference(schema: Schema) -> Schema:
    """The schema or a reference, described as before."""
    about: Schema = {name: schema[name] for name in DESCRIBING if name in schema}
    plain = {name: part for name, part in schema.items() if name not in about}
    return {**about, "anyOf": [plain, {"$ref": f"{DEFINITIONS}{REFERENCE}"}]}


class Horizon(Protocol):
    """A strategy, as a model is told it."""

    @property
    def cut(self) -> str:
        """What a model is told whose reply was cut off."""

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """What the model is, and what it may do."""

    def offers(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[Offer]:
        """What it may call, in an order that stays the same."""

    def read(
        self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
    ) -> NewSteps | Answer | Question | GiveUp:
        """The proposal that a reply is.

        Raises:
            Unusable: it is none.
        """


MAX_ID = 200
"""Characters of a provider's id that a step keeps."""
MAX_BECAUSE = 200
"""Characters of what a model says beside its calls that people are shown as their reason."""


class TurnByTurn:
    """The tools as they are, and text for the end."""

    cut = prompts.CUT_TURN

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """What a model is that calls tools."""
        return prompts.turns(kinds, by_finish=situation.result_schema is not None)

    def offers(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[Offer]:
        """All kinds, and the ends; `finish` only where the answer is no text."""
        finish = [finish_call(situation.result_schema)] if situation.result_schema is not None else []
        return [*map(_offer, kinds.values()), *finish, *other_ends()]

    def read(
        self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
    ) -> NewSteps | Answer | Question | GiveUp:
        """The steps that the calls are, or the answer that a text is."""
        calls = reply.turn.calls
        if not calls:
            return _text(reply, situation)
        if any(_ends(call, situation) for call in calls):
            if len(calls) > 1:
                raise Unusable(prompts.alone(next(call.name for call in calls if _ends(call, situation))))
            return ended(calls[0], situation.result_schema)
        return searched(calls, situation, branch, because=reply.turn.text)


def search(kinds: Mapping[str, Kind]) -> list[Offer]:
    """`find_tools`, where there are more kinds than a model is shown."""
    return [_offer(kinds[FIND_TOOLS])] if FIND_TOOLS in kinds else []


def searched(calls: Sequence[ToolCall], situation: Situation, branch: int, because: str = "") -> NewSteps:
    """The steps that calls of kinds are.

    Raises:
        Unusable: there are too many, or the arguments of one cannot be read.
    """
    broken = [prompts.broken(call.name, call.broken) for call in calls if call.broken]
    if broken:
        raise Unusable("; ".join(broken))
    if len(calls) > MAX_STEPS:
        raise Unusable(prompts.too_many(len(calls), MAX_STEPS))
    steps = (
        Step(id=step_id(situation.turn, index, branch), kind=call.name, args=call.args, provider_call=call.id[:MAX_ID])
        for index, call in enumerate(calls)
    )
    return NewSteps(steps=tuple(steps), because=" ".join(because.split())[:MAX_BECAUSE])


def step_id(turn: int, index: int, branch: int) -> str:
    """The id of a call as a step: unique in the task, also after a reset that led to another turn."""
    return f"t{turn}.c{index}" + (f".b{branch}" if branch else "")


def _offer(kind: Kind) -> Offer:
    return Offer(kind.spec.kind, " ".join(kind.description.split()), kind.args_schema)


def _ends(call: ToolCall, situation: Situation) -> bool:
    return call.name in ENDS and (call.name != FINISH or situation.result_schema is not None)


def _text(reply: Reply, situation: Situation) -> Answer:
    words = reply.turn.text.strip()
    if not words:
        raise Unusable(prompts.NOTHING)
    if situation.result_schema is not None:
        raise Unusable(prompts.UNFINISHED)
    return Answer(result=words)


class WholePlans:
    """One call of `propose_plan` at a time."""

    cut = prompts.CUT

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """What a planner is."""
        return prompts.plans(kinds, searchable=bool(search(kinds)))

    def offers(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[Offer]:
        """`propose_plan`, whose schema is made from the kinds, and the ends."""
        return [propose_plan(kinds), *search(kinds), finish_call(situation.result_schema), *other_ends()]

    def read(
        self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
    ) -> NewSteps | Answer | Question | GiveUp:
        """The proposal that one call is."""
        calls = reply.turn.calls
        if not calls:
            raise Unusable(prompts.TEXT if reply.turn.text.strip() else prompts.EMPTY)
        if len(calls) > 1:
            raise Unusable(prompts.many(len(calls)))
        return _called(calls[0], situation, kinds, branch)


def _called(
    call: ToolCall, situation: Situation, kinds: Mapping[str, Kind], branch: int
) -> NewSteps | Answer | Question | GiveUp:
    if call.name in ENDS:
        return ended(call, situation.result_schema)
    if any(offer.name == call.name for offer in search(kinds)):
        return searched([call], situation, branch)
    if call.name != PROPOSE:
        raise Unusable(prompts.unknown(call.name, nearest(call.name, [PROPOSE, *ENDS]), kinds))
    if call.broken:
        raise Unusable(prompts.broken(call.name, call.broken))
    plan = parsed(NewSteps, PROPOSE, call.args)
    if not plan.steps:
        raise Unusable(prompts.NO_STEPS)
    return plan
