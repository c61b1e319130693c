"""The contracts that the scripted model proposes with `react`, and those that the starter of a task writes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from activities.planning.strategies import EFFECTS as PLAN_EFFECTS, PROPOSE
from evals.fakes.script import ModelCall, ModelReply
from evals.injection.declared import DECLARED, EFFECTS
from evals.injection.model import is_known
from evals.injection.suites import Call, Case
from workflows.plans.contract import AllowedEffect, Term

WIDE_COUNT = 10


class Group(NamedTuple):
    """Effects of a user task that have the same kind and the same values of authority, as far as these are known."""

    kind: str
    times: int
    args: Mapping[str, JsonValue]
    """The values that the user's words have; None for any value with a trusted source."""


def needed(case: Case) -> list[Group]:
    """The effects that come after untrusted content was read, in their order."""
    found, has_read = list[Group](), False
    for call in case.user_calls:
        declared = DECLARED[call.tool]
        has_read = has_read or declared.untrusted
        if not has_read or call.tool not in EFFECTS:
            continue
        args = {
            name: value if is_known(value, case.prompt) else None
            for name, value in call.args.items()
            if name in declared.authority
        }
        same = next((at for at, group in enumerate(found) if (group.kind, group.args) == (call.tool, args)), None)
        if same is None:
            found.append(Group(call.tool, 1, args))
        else:
            found[same] = found[same]._replace(times=found[same].times + 1)
    return found


def right(case: Case, reply: ModelReply) -> ModelReply:
    """Plan the effects that the user task needs, with the values that the user's words have."""
    return _with_effects(reply, needed(case))


def narrow(case: Case, reply: ModelReply) -> ModelReply:
    """Forget the last effect that the user task needs."""
    return _with_effects(reply, needed(case)[:-1])


def wide(case: Case, reply: ModelReply) -> ModelReply:
    """Plan every kind of effect, several times, with any values that have a trusted source."""
    kinds = [name for name in case.suite.functions if name in EFFECTS]
    return _with_effects(reply, [Group(kind, WIDE_COUNT, {}) for kind in kinds])


def _with_effects(reply: ModelReply, groups: Sequence[Group]) -> ModelReply:
    """The reply, with the call that plans effects before its other calls; the reply alone if it plans none."""
    if not groups or not reply.calls:
        return reply
    effects: list[JsonValue] = [
        {
            "kind": group.kind,
            "count": group.times,
            "arguments": [
                {"name": name, "values": [] if value is None else [value], "at_most": None}
                for name, value in group.args.items()
            ],
        }
        for group in groups
    ]
    [first, *more] = reply.calls
    if first.name == PROPOSE and not isinstance(first.args, str):
        return ModelReply((ModelCall(PROPOSE, {**first.args, "effects": effects}), *more), text=reply.text)
    return ModelReply((ModelCall(PLAN_EFFECTS, {"effects": effects}), *reply.calls), text=reply.text)


def slots(case: Case) -> tuple[AllowedEffect, ...]:
    """What a starter writes who lets typed parts of results fill the arguments that the user's words leave open.

    A part is a field of a result with a structure, such as the amount of a transaction. No path leads to a word inside
    a text, so a value that only a file or a message shows has no slot.
    """
    benign = Case(case.suite, case.user, None)  # who starts the task knows the form of the results, and no attack
    parts = dict(_parts(benign))
    return tuple(
        AllowedEffect(
            kind=call.tool,
            args={
                name: _term(value, parts, is_said=is_known(value, case.prompt))
                for name, value in call.args.items()
                if name in DECLARED[call.tool].authority
            },
        )
        for call in benign.user_calls
        if call.tool in EFFECTS
    )


def _term(value: JsonValue, parts: Mapping[JsonValue, str], *, is_said: bool) -> Term:
    if is_said:
        return Term(values=(value,))
    return Term(slot=parts[value]) if value in parts else Term()


def _parts(case: Case) -> Iterator[tuple[JsonValue, str]]:
    """The values in the structured results that the user task reads, each with its slot."""
    environment = case.environment()
    for call in case.user_calls:
        result, _ = case.suite.run(environment, call)
        if call.tool not in EFFECTS and isinstance(result, list):
            yield from _leaves(call, result)


def _leaves(call: Call, items: Sequence[object]) -> Iterator[tuple[JsonValue, str]]:
    for number, item in enumerate(items):
        if isinstance(item, BaseModel):
            for name, value in item.model_dump(mode="json").items():
                if isinstance(value, str | int | float):
                    yield value, f"{call.tool}.{number}.{name}"
        elif isinstance(item, str):
            yield item, f"{call.tool}.{number}"
