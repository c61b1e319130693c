"""Finds calls that untrusted content contains: text that imitates a call does not count as a call of the model."""

import html
import re
from collections.abc import Mapping, Sequence
from itertools import chain, count

from activities.planning.origins.lenient import lenient_form, spellings
from activities.planning.origins.sources import Sources, scalars
from activities.planning.planner import RecordedTurn
from activities.providers.messages import ToolCall
from activities.toolbox.declare.kind import Kind
from workflows.json_values import canonical
from workflows.planning.situation import Situation
from workflows.plans.contract import OF_TOOL
from workflows.plans.proposal import Step

AROUND = 400
"""A call's arguments are searched within this many characters around its name, plus the length of the arguments."""
MAX_PLACES = 1_000
"""How many places of a name are examined in one source; if there are more, the content counts as an imitation."""
_ESCAPED = re.compile(r"(?<!\\)\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_AFTER = frozenset("\"'`*<>(){}[]=:|\u2018\u2019\u201c\u201d\u00ab\u00bb")
_BEFORE = frozenset("<>(){}[]=:|`*")
"""Characters beside a name that is called. A quote before the name is not enough: a text may begin with the word."""


def imitated(
    calls: Sequence[ToolCall | Step], past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]
) -> tuple[str, str] | None:
    """Find the first of `calls` that untrusted content contains; return the call's name and the content's source.

    None if there is no such call. Untrusted content is what the contract counts as such, and the description and schema
    of each tool with untrusted results, or that no person has read. It contains a call if it shows the call's name in
    the way in which names of calls are written, and all values of the arguments around the name, in any form; letters
    that look alike, hidden letters, case, spaces and escapes make no difference.
    """
    texts = dict[str, list[str]]()
    for passage in Sources(past, situation, kinds).untrusted:
        if not passage.source.startswith(OF_TOOL):
            texts.setdefault(passage.source, []).append(passage.text)
    for name, kind in kinds.items():
        if kind.spec.untrusted or kind.spec.unread:
            texts[f"the description of {name}"] = [kind.description, canonical(kind.args_schema)]
    if not texts:
        return None
    # The model is shown JSON, in which each text stands between quotes.
    quoted = {source: " ".join(f'"{part}"' for part in parts) for source, parts in texts.items()}
    shown = {source: lenient_form(_unescaped(text)) for source, text in quoted.items()}
    for call in calls:
        name = call.kind if isinstance(call, Step) else call.name
        values = [form for value in scalars([*call.args.values()]) if (form := _lenient_spellings(value))]
        for source, text in shown.items():
            if _contains_call(text, lenient_form(name), values):
                return name, source
    return None


def unused_name(name: str, texts: Sequence[str]) -> str:
    """Return the first of `name`, `name_2`, `name_3` and so on that no text contains in any spelling."""
    shown = [_squeezed(lenient_form(_unescaped(text))) for text in texts]
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if not any(_squeezed(lenient_form(each)) in text for text in shown))


def _unescaped(text: str) -> str:
    text = html.unescape(text) if "&" in text else text
    return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text) if "\\" in text else text


def _lenient_spellings(value: str | float) -> list[str]:
    found = (lenient_form(_unescaped(text)).replace("\n", " ").strip() for text in spellings(value))
    return [form for form in found if form]


def _contains_call(text: str, name: str, values: Sequence[Sequence[str]]) -> bool:
    distance = AROUND + sum(len(forms[0]) for forms in values)
    flat, squeezed_name = text.replace("\n", " "), _squeezed(name)
    squeezed = _squeezed(flat)
    return any(
        _shows_call(where, word, [[form(value) for value in forms] for forms in values], distance)
        for where, word, form in ((flat, name, str), (squeezed, squeezed_name, _squeezed))
    )


def _shows_call(text: str, name: str, values: Sequence[Sequence[str]], distance: int) -> bool:
    """Whether `text` shows a name as that of a call, and each value, in one of its spellings, within this distance."""
    at = text.find(name) if name else -1
    for _ in range(MAX_PLACES):
        if at < 0:
            return False
        end = at + len(name)
        before, after = text[max(0, at - 9) : at].rstrip()[-1:], text[end : end + 9].lstrip()[:1]
        is_word = not (_is_word(text[at - 1 : at]) or _is_word(text[end : end + 1]))
        window = text[max(0, at - distance) : end + distance]
        if (
            is_word
            and (before in _BEFORE or after in _AFTER)
            and all(any(f in window for f in forms) for forms in values)
        ):
            return True
        at = text.find(name, at + 1)
    return True


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _squeezed(text: str) -> str:
    return re.sub(r"[\s_-]+", "", text)
