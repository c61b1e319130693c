"""The two strategies of asking a model for what comes next.

With `plan`, one call of the model carries a whole plan. With `react`, the model calls the kinds directly, as its tools.
A strategy says what the model is told, which tools it may call, and how its reply is read as a proposal.
"""

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError

from activities.borders import validation
from activities.planning import demonstrations, prompts
from activities.planning.text_calls import called_in
from activities.providers.arguments import parse_call
from activities.providers.messages import Reply, Request, ToolCall, ToolDefinition
from activities.providers.untrusted import cleaned
from activities.toolbox.declare.kind import Kind
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.schemas.drafts import BadSchema
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Effect
from workflows.plans.contract import MAX_ARGUMENTS, MAX_COUNT, MAX_VALUES, AllowedEffect, Term
from workflows.plans.proposal import (
    MAX_OPTION,
    MAX_OPTIONS,
    MAX_QUESTION,
    MAX_STEPS,
    Answer,
    GiveUp,
    NewSteps,
    Proposal,
    Question,
    Step,
)
from workflows.text import nearest

PROPOSE, FINISH, ASK, GIVE_UP = "propose_plan", "finish", "ask", "give_up"
EFFECTS = "plan_effects"
"""The call with which a model of the strategy `react` says which effects it will need after it has read content."""
ENDINGS: Mapping[str, tuple[type[Answer] | type[Question] | type[GiveUp], Mapping[str, str]]] = {
    FINISH: (Answer, {"result": "result"}),
    ASK: (Question, {"question": "text", "options": "options", "free_text": "free_text"}),
    GIVE_UP: (GiveUp, {"reason": "reason"}),
}
"""For each call of a model that ends the task or asks the user a question: the type of the proposal, and for each
argument of the call the field of the proposal that gets its value. Only the first argument is needed."""
MAX_PROVIDER_ID = 200
"""How many characters of a provider's call id a step keeps."""
MAX_CALL_NAME = 64
"""The most characters of a tool's name that every provider accepts."""
MAX_MISFIT = 500
"""How many characters of the reason why a last answer does not fit its schema are kept."""
MAX_REASON = 200
"""How many characters of the text beside a model's calls are kept as the reason of the steps."""

Schema = dict[str, Any]
Arguments = TypeVar("Arguments", bound=BaseModel)


class UnusableReply(Exception):
    """A reply cannot be read as a proposal; the message tells the model why."""


class Strategy(ABC):
    """How a model is asked for what comes next, and how its reply is read; by default, for calls by the API."""

    cut_off: ClassVar[str]
    """What a model is told if its reply was cut off."""
    is_textual = False
    """Whether the model writes its calls as text."""

    @abstractmethod
    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """The system prompt for the model."""

    @abstractmethod
    def tools(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[ToolDefinition]:
        """The tools that the model may call, always in the same order, so that the provider can cache them."""

    def written(self, request: Request, situation: Situation, kinds: Mapping[str, Kind]) -> Request:
        """Return the request as it is sent to the model, e.g. with demonstrations, or with calls written as text."""
        if not situation.demonstrations or situation.strategy != "react":
            return request
        shown = demonstrations.turns(situation.demonstrations, call_names(kinds))
        return replace(request, turns=[*shown, *request.turns])

    def understood(self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind]) -> Reply:
        """Return the reply, with calls written as text moved to `turn.calls`; raises UnusableReply for a wrong form."""
        return reply

    @abstractmethod
    def read(self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int) -> Proposal:
        """Read a reply as a proposal, or raise UnusableReply; its step ids contain `branch` (see `RecordedTurn`)."""


class ReactStrategy(Strategy):
    """The model calls the kinds directly. It ends with text, or with `finish` if the answer must fit a schema."""

    cut_off = prompts.TURN_CUT_OFF

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        by_finish = situation.result_schema is not None
        return prompts.react_system(kinds, by_finish=by_finish, plans_effects=needs_contract(kinds))

    def tools(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[ToolDefinition]:
        finish = [_finish(situation.result_schema)] if situation.result_schema is not None else []
        effects = [_plan_effects(kinds)] if needs_contract(kinds) else []
        names = call_names(kinds)
        return [
            *(_kind_tool(kind, names[name]) for name, kind in kinds.items()),
            *effects,
            *finish,
            *_ask_and_give_up(),
        ]

    def read(self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int) -> Proposal:
        calls = reply.turn.calls
        if not calls:
            if not (words := reply.turn.text.strip()):
                raise UnusableReply(prompts.EMPTY_TURN)
            require_no_call(words, self.tools(situation, kinds))
            return _text_answer(words, situation.result_schema)
        has_finish = situation.result_schema is not None
        endings = [call for call in calls if call.name in ENDINGS and (call.name != FINISH or has_finish)]
        if endings and len(calls) > 1:
            raise UnusableReply(prompts.ENDING_NOT_ALONE.format(name=endings[0].name))
        if endings:
            return _ending(calls[0], situation.result_schema)
        planned = [call for call in calls if call.name == EFFECTS and needs_contract(kinds)]
        kind_of = {name: kind for kind, name in call_names(kinds).items()}
        made = [replace(call, name=kind_of.get(call.name, call.name)) for call in calls if call not in planned]
        if planned and not made:
            raise UnusableReply(prompts.EFFECTS_ALONE)
        steps = _called_steps(made, situation, branch, because=reply.turn.text)
        return steps.model_copy(update={"effects": tuple(effect for call in planned for effect in _effects(call))})


class PlanStrategy(Strategy):
    """The model makes one call per turn: `propose_plan` with a list of steps, `find_tools`, or a call in `ENDINGS`."""

    cut_off = prompts.PLAN_CUT_OFF

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        return prompts.plan_system(kinds, searchable=FIND_TOOLS in kinds, plans_effects=needs_contract(kinds))

    def tools(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[ToolDefinition]:
        search = [_kind_tool(kinds[FIND_TOOLS])] if FIND_TOOLS in kinds else []
        return [propose_plan(kinds), *search, _finish(situation.result_schema), *_ask_and_give_up()]

    def read(self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int) -> Proposal:
        calls = reply.turn.calls
        if not calls:
            raise UnusableReply(prompts.TEXT_WITHOUT_CALL if reply.turn.text.strip() else prompts.EMPTY_REPLY)
        if len(calls) > 1:
            raise UnusableReply(prompts.SEVERAL_CALLS.format(number=len(calls)))
        call = calls[0]
        if call.name in ENDINGS:
            return _ending(call, situation.result_schema)
        if call.name == FIND_TOOLS and FIND_TOOLS in kinds:
            return _called_steps([call], situation, branch)
        if call.name != PROPOSE:
            raise UnusableReply(prompts.unknown_tool(call.name, nearest(call.name, [PROPOSE, *ENDINGS]), kinds))
        return _plan(call)


def require_no_call(words: str, tools: Iterable[ToolDefinition]) -> None:
    """Raise UnusableReply if a text contains a call of one of these tools: such a text is neither call nor answer."""
    if name := called_in(words, {*(tool.name for tool in tools), *ENDINGS, PROPOSE}):
        raise UnusableReply(prompts.CALL_AS_TEXT.format(name=name))


def last_answer_tool(situation: Situation) -> ToolDefinition | None:
    """The tool whose arguments, as JSON, answer the last request; None before it, or if the answer is any text."""
    is_by_schema = situation.is_last and situation.result_schema is not None
    return _finish(situation.result_schema) if is_by_schema else None


def last_answer(words: str, result_schema: Mapping[str, JsonValue] | None) -> Answer:
    """Read the text of a last reply as an answer; a text that does not fit the schema is kept, with `misfit`."""
    try:
        return _text_answer(words, result_schema)
    except (UnusableReply, BadSchema) as misfit:
        call = parse_call("", FINISH, words)
        return Answer(result=words if call.broken else call.args, misfit=f"{misfit}"[:MAX_MISFIT])


def _text_answer(words: str, result_schema: Mapping[str, JsonValue] | None) -> Answer:
    if result_schema is None:
        return Answer(result=words)
    call = parse_call("", FINISH, words)
    if call.broken:
        raise UnusableReply(prompts.TEXT_WITHOUT_FINISH)
    return Answer(result=_fitting_answer(call.args, result_schema))


def _called_steps(calls: Sequence[ToolCall], situation: Situation, branch: int, because: str = "") -> NewSteps:
    # One unreadable call makes the whole turn unusable: its calls are made together or not at all.
    _require_readable(*calls)
    if len(calls) > MAX_STEPS:
        raise UnusableReply(prompts.TOO_MANY_CALLS.format(number=len(calls), most=MAX_STEPS))
    suffix = f".b{branch}" if branch else ""  # a step id is never used twice, although a reset repeats turn numbers
    steps = (
        Step(
            id=f"t{situation.turn}.c{index}{suffix}",
            kind=call.name,
            args=call.args,
            provider_call=call.id[:MAX_PROVIDER_ID],
        )
        for index, call in enumerate(calls)
    )
    return NewSteps(steps=tuple(steps), because=" ".join(because.split())[:MAX_REASON])


def needs_contract(kinds: Mapping[str, Kind]) -> bool:
    """Whether a task with these kinds may read untrusted content, and may change something."""
    specs = [kind.spec for kind in kinds.values()]
    return any(spec.untrusted for spec in specs) and any(spec.effect is not Effect.READ for spec in specs)


def _require_readable(*calls: ToolCall) -> None:
    broken = [prompts.UNREADABLE_ARGS.format(name=call.name, why=call.broken) for call in calls if call.broken]
    if broken:
        raise UnusableReply("; ".join(broken))


def _effects(call: ToolCall) -> list[AllowedEffect]:
    _require_readable(call)
    return _planned_effects(call.name, call.args)


def _planned_effects(name: str, args: Mapping[str, JsonValue]) -> list[AllowedEffect]:
    """Read the effects that a model plans; an argument with neither `values` nor `at_most` needs a trusted source."""
    planned = _parsed(_PlannedEffects, name, args)
    return [
        AllowedEffect(
            kind=effect.kind,
            count=effect.count or 1,
            args={
                argument.name: Term(
                    values=tuple(argument.values or ()), at_most=None if argument.values else argument.at_most
                )
                for argument in effect.arguments
            },
        )
        for effect in planned.effects
    ]


class _PlannedArgument(BaseModel):
    name: str
    values: list[str | int | float | bool] | None = Field(default=None, max_length=MAX_VALUES)
    at_most: float | None = None


class _PlannedEffect(BaseModel):
    kind: str = Field(min_length=1, max_length=200)
    count: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    arguments: list[_PlannedArgument] = Field(default=[], max_length=MAX_ARGUMENTS)


class _PlannedEffects(BaseModel):
    effects: list[_PlannedEffect] = Field(max_length=MAX_STEPS)


def _plan(call: ToolCall) -> NewSteps:
    _require_readable(call)
    effects = _planned_effects(PROPOSE, {"effects": call.args.get("effects") or []})
    plan = _parsed(NewSteps, PROPOSE, {name: value for name, value in call.args.items() if name != "effects"})
    if not plan.steps:
        raise UnusableReply(prompts.NO_STEPS)
    return plan.model_copy(update={"effects": tuple(effects)})


def _ending(call: ToolCall, result_schema: Mapping[str, JsonValue] | None) -> Answer | Question | GiveUp:
    proposal, fields = ENDINGS[call.name]
    _require_readable(call)
    if proposal is Answer and result_schema is not None:
        return Answer(result=_fitting_answer(call.args, result_schema))
    needed = next(iter(fields))
    if not call.args.get(needed):
        raise UnusableReply(prompts.MISSING_ARG.format(name=call.name, field=needed))
    # Models also write null for what they leave out.
    values = {field: call.args[name] for name, field in fields.items() if call.args.get(name) is not None}
    if proposal is Question:  # people read it, so it has nothing that they cannot see
        values = {field: cleaned(value) for field, value in values.items()}
    found: Answer | Question | GiveUp = _parsed(proposal, call.name, values)
    return found


def _fitting_answer(args: dict[str, JsonValue], result_schema: Mapping[str, JsonValue]) -> JsonValue:
    schema = JsonSchema(result_schema)
    answer = schema.value(args)
    if misfits := schema.misfits(answer):
        raise UnusableReply(prompts.WRONG_ANSWER.format(found="; ".join(misfits)))
    return answer


def _parsed(model: type[Arguments], name: str, args: Mapping[str, JsonValue]) -> Arguments:
    try:
        return model.model_validate(args)
    except ValidationError as error:
        found = validation.fields(error.errors(include_url=False, include_context=False, include_input=False))
        raise UnusableReply(prompts.WRONG_ARGS.format(name=name, found=found)) from None


def _finish(result_schema: Mapping[str, JsonValue] | None) -> ToolDefinition:
    if result_schema is None:
        answer = _text_argument_schema("result", "The answer for the user.")
        return ToolDefinition(FINISH, prompts.FINISH, answer, words=("result",))
    return ToolDefinition(FINISH, prompts.FINISH, JsonSchema(result_schema).arguments)


def _ask_and_give_up() -> list[ToolDefinition]:
    reason = _text_argument_schema("reason", "Why, in one sentence.")
    return [
        ToolDefinition(ASK, prompts.ASK, QUESTION, words=("question",)),
        ToolDefinition(GIVE_UP, prompts.GIVE_UP, reason, words=("reason",)),
    ]


def _plan_effects(kinds: Mapping[str, Kind]) -> ToolDefinition:
    schema = _closed_object({"effects": _effects_schema(kinds)}, required=["effects"])
    return ToolDefinition(EFFECTS, f"{prompts.PLAN_EFFECTS} {prompts.EFFECTS_ONCE}", schema)


def _effects_schema(kinds: Mapping[str, Kind]) -> Schema:
    names = [kind.spec.kind for kind in kinds.values() if kind.spec.effect is not Effect.READ]
    value = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
    argument = _closed_object(
        {
            "name": {"type": "string", "description": "The name of an argument of the kind."},
            "values": {
                "type": "array",
                "items": value,
                "description": "The values that it may have, as the task says them; empty if only content shows it.",
            },
            "at_most": {
                "anyOf": [{"type": "number"}, {"type": "null"}],
                "description": "For an amount without a fixed value: the most that it may be; else null.",
            },
        },
        required=["name", "values", "at_most"],
    )
    effect = _closed_object(
        {
            "kind": {"type": "string", "enum": names},
            "count": {"type": "integer", "description": "How many such calls."},
            "arguments": {"type": "array", "items": argument},
        },
        required=["kind", "count", "arguments"],
    )
    return {"type": "array", "items": effect}


def _kind_tool(kind: Kind, name: str = "") -> ToolDefinition:
    return ToolDefinition(name or kind.spec.kind, " ".join(kind.description.split()), kind.args_schema)


def call_names(kinds: Iterable[str]) -> dict[str, str]:
    """For each kind, the name by which a model calls it: at most MAX_CALL_NAME letters, digits, `_` and `-`."""
    names, all_kinds = dict[str, str](), [*kinds]
    for kind in all_kinds:
        plain = re.sub("[^A-Za-z0-9_-]", "_", kind)
        taken = {*names.values(), *all_kinds, *ENDINGS, EFFECTS, PROPOSE}
        numbers = itertools.count(2)
        name = plain[:MAX_CALL_NAME]
        while name in taken and name != kind:
            name = f"{plain[: MAX_CALL_NAME - 5]}_{next(numbers)}"
        names[kind] = name
    return names


def _text_argument_schema(name: str, description: str) -> Schema:
    return _closed_object({name: {"type": "string", "description": description}}, required=[name])


def _closed_object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# All are required, because OpenAI's strict schemas know no optional arguments; `_ending` does not insist on them.
QUESTION = _closed_object(
    {
        "question": {
            "type": "string",
            "maxLength": MAX_QUESTION,
            "description": "One question, which the user can answer in a sentence.",
        },
        "options": {
            "type": "array",
            "items": {"type": "string", "maxLength": MAX_OPTION},
            "maxItems": MAX_OPTIONS,
            "description": "The answers to choose from, a few words each; empty if there is nothing to choose from.",
        },
        "free_text": {"type": "boolean", "description": "Whether the user may answer in other words than an option."},
    },
    required=["question", "options", "free_text"],
)

REFERENCE = "reference"
DEFINITIONS = "#/$defs/"
DESCRIBING = ("description", "title", "default")
SHARED: Mapping[str, Schema] = {
    "id": {"type": "string", "description": "A letter, then letters, digits, - or _; new in this task."},
    "title": {"type": "string", "description": "What it does, in a few words, for people."},
    "needs": {"type": "array", "items": {"type": "string"}, "description": "Ids of steps to be finished before."},
    # `$from` cannot be a property: Anthropic allows only letters, digits, `_`, `.` and `-` in their names.
    REFERENCE: {
        "type": "object",
        "description": 'The result of another step: {"$from": "<step id>"}, or a part of it, with "path": "a.0".',
        "additionalProperties": {"type": "string"},
        "required": ["$from"],
    },
}
"""Schema definitions that the steps of all kinds share."""


def propose_plan(kinds: Mapping[str, Kind]) -> ToolDefinition:
    """The definition of the tool that a model calls with a plan; its schema is made from the kinds."""
    definitions: Schema = dict(SHARED)
    for name, kind in kinds.items():
        args = dict(kind.args_schema)
        parts = args.pop("$defs", {})
        # Definitions get their kind's name as a prefix, because two kinds may use the same name.
        definitions |= {f"{name}.{part}": _with_references(schema, name) for part, schema in parts.items()}
        definitions[f"{name}.arguments"] = _with_references(args, name)
    any_step = {"anyOf": [_step_schema(name) for name in kinds]}
    steps = {"type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": any_step}
    because = {"type": "string", "description": "Why these steps, in one sentence, for the people who watch."}
    ahead = (
        {"effects": {**_effects_schema(kinds), "description": prompts.PLAN_EFFECTS}} if needs_contract(kinds) else {}
    )
    schema = _closed_object({"because": because, "steps": steps, **ahead}, required=["steps"])
    return ToolDefinition(PROPOSE, prompts.PROPOSE, {**schema, "$defs": definitions}, words=("because", "steps.title"))


def _step_schema(kind: str) -> Schema:
    # Each kind's schema is complete: servers that force a model to follow a schema read each choice alone.
    shared = {name: {"$ref": f"{DEFINITIONS}{name}"} for name in ("id", "title", "needs")}
    own = {"kind": {"type": "string", "enum": [kind]}, "args": {"$ref": f"{DEFINITIONS}{kind}.arguments"}}
    return _closed_object({**shared, **own}, required=["id", "kind", "args"])


def _with_references(schema: Any, kind: str) -> Any:
    """A kind's schema, changed: each value may also be a reference, and each `$ref` points into the plan's schema."""
    if isinstance(schema, list):
        return [_with_references(item, kind) for item in schema]
    if not isinstance(schema, dict):
        return schema
    allowed: Schema = {}
    for name, part in schema.items():
        if name == "properties":
            allowed[name] = {field: _or_reference(_with_references(inner, kind)) for field, inner in part.items()}
        elif name in ("items", "additionalProperties") and isinstance(part, dict):
            allowed[name] = _or_reference(_with_references(part, kind))
        elif name == "$ref":
            allowed[name] = f"{DEFINITIONS}{kind}.{str(part).removeprefix(DEFINITIONS)}"
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            allowed["anyOf" if name == "oneOf" else name] = _with_references(part, kind)
        elif name != "discriminator":
            allowed[name] = part
    return allowed


def _or_reference(schema: Schema) -> Schema:
    about: Schema = {name: schema[name] for name in DESCRIBING if name in schema}
    plain = {name: part for name, part in schema.items() if name not in about}
    return {**about, "anyOf": [plain, {"$ref": f"{DEFINITIONS}{REFERENCE}"}]}
