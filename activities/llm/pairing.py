"""Ids and names of calls as every provider takes them: a conversation may come from another one, or from a sloppy one.

Compatible servers repeat ids over turns, or write what others refuse, and models make names up. Call and result are
renamed together, and always in the same way.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from activities.llm.turns import AssistantTurn, ToolCall, Turn, UserTurn

ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME = 64


def paired(turns: Iterable[Turn], model: str) -> Iterator[Turn]:
    """The turns with ids that are unique in all of them; those of `model` itself stay wherever they can."""
    seen, renamed = set[str](), list[str]()
    for place, turn in enumerate(turns):
        if isinstance(turn, UserTurn):
            results = zip(turn.results, renamed, strict=False)
            yield replace(turn, results=tuple(replace(result, call_id=id) for result, id in results))
            continue
        renamed = list[str]()
        for index, call in enumerate(turn.calls):
            renamed.append(_id(call, seen, f"t{place}_{index}", is_own=turn.by == model))
            seen.add(renamed[-1])  # a server may give all calls of a turn one id, such as the tool's name
        yield _named(turn, renamed)


def _named(turn: AssistantTurn, ids: list[str]) -> AssistantTurn:
    """The turn with these ids; as the provider wrote it only where it calls everything by the same names."""
    called = zip(turn.calls, ids, strict=True)
    calls = tuple(replace(call, id=id, name=_name(call.name)) for call, id in called)
    return replace(turn, calls=calls, blocks=turn.blocks if calls == turn.calls else ())


def _id(call: ToolCall, seen: set[str], other: str, *, is_own: bool) -> str:
    return call.id if is_own and ID.fullmatch(call.id) and call.id not in seen else other


def _name(name: str) -> str:
    return STRANGE.sub("_", name)[:MAX_NAME] or "unnamed"
