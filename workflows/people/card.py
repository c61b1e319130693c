"""The card of a request: the facts that a person needs in order to answer, on every screen the same in this order.

Made each time that an open request is shown.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import JsonValue

from workflows.json_values import text_of
from workflows.people.requests import Choice, HumanRequest, ProposedCall, RequestKind
from workflows.plans.catalogue import Effect
from workflows.text import MAX_WORDS, WORDS, shorten, visible

MAX_TASK = 200
"""The most characters of the text of a task."""
MAX_CALL = 200
"""The most characters of a call in words; on a card, each argument follows whole."""
MAX_VALUE = 60
"""The most characters of each value where all arguments stand on one line."""
TASK, CALL, TOOL, WHY, UNDO, UNANSWERED = "Task", "Call", "The tool", "Why", "Undo", "If nobody answers"
NEEDS, TO_PROVIDE = "Needs", "To provide the result"
"""Who must answer: so that a call is made, and so that the result that they give is taken."""
GAVE = {Choice.APPROVE: "approved", Choice.APPROVE_ALL: "approved all calls", Choice.PROVIDE: "gave the result"}
"""By answer that several people must give, what one of them did."""
QUESTION, LEFT_EMPTY = "Question", "Left empty"
WORD = re.compile(r'[^\s,"]+')
"""The form of a text that needs no quotes in a list of arguments."""
DEFAULT, WITH_DEFAULTS = "default", "with defaults in it"
"""The origin of an argument that the call left out, and of an argument of which it left out parts."""
WARNING_SIGN, WARNING = "⚠", "Check this"
"""What stands before the origin of a value that untrusted content may have chosen."""

EMPTY: Sequence[JsonValue] = (None, "", [], {})
"""Default values that a card leaves out: it lists only the names of their arguments."""


class Fact(NamedTuple):
    """One line of a card."""

    about: str
    """What the fact is about: one of the words above, or the name of an argument."""
    text: str
    """Of an argument: its whole value, with its line breaks; `value_line` puts it on one line."""
    origin: str = ""
    """Of an argument: where its value comes from."""
    is_argument: bool = False
    at: datetime | None = None
    """Until when a person can answer, if the fact is about that; else None."""
    is_untrusted: bool = False
    """Of an argument: whether untrusted content may have chosen its value, so that the origin is a warning."""

    @property
    def origin_text(self) -> str:
        """The origin in words, after a warning if the value is untrusted; empty for no origin."""
        return f"{WARNING_SIGN} {WARNING}: {self.origin}" if self.is_untrusted else self.origin


class Asker(NamedTuple):
    """The task that asks."""

    id: str
    text: str
    by: str = ""
    """Who started it; empty if nobody said so."""


def facts(request: HumanRequest, task: Asker) -> list[Fact]:
    """The facts about a request, in words of the task, its planner and its tools, which each screen must escape."""
    started = f", started by {task.by}" if task.by else ""
    found = [Fact(TASK, f"{task.id}: {shorten(task.text, MAX_TASK)}{started}")]
    if request.call is None:
        found.append(Fact(QUESTION if request.kind is RequestKind.QUESTION else WHY, request.reason))
        found += [Fact(WORDS, shorten(request.words, MAX_WORDS))] if request.words else []
    else:
        for call in (request.call, *request.others):
            found += _facts_of_call(call, request)
    if needs := needs_text(request):
        found.append(Fact(NEEDS if request.call else TO_PROVIDE, needs))
    return [*found, Fact(UNANSWERED, _what_follows_unanswered(request), at=request.until)]


def needs_text(request: HumanRequest) -> str:
    """Who must answer so that the call is made, and who has, in words; empty if anybody may.

    Such as `2 people with the role finance. ann approved at 2026-11-30 12:04 UTC; one more.`
    """
    if request.approvers is None:
        return ""
    rule = f"{request.approvers.text(request.since, request.needed)}."
    gave = [f"{one.by} {GAVE.get(one.choice, 'answered')} at {one.at:%Y-%m-%d %H:%M} UTC" for one in request.endorsed]
    return f"{rule} {', '.join(gave)}; {more_text(request.needed - len(gave))}." if gave else rule


def more_text(number: int) -> str:
    """How many more people must answer: `one more`."""
    return "one more" if number == 1 else f"{number} more"


def _facts_of_call(call: ProposedCall, request: HumanRequest) -> Iterator[Fact]:
    step = call.step or (request.step if request.others else "")
    also = f" of the step {step}" if step else ""
    yield Fact(f"{CALL}{also}", call_text(call.kind, call.args or {}))
    if call.says:
        yield Fact(TOOL, call.says)
    empty = list[str]()
    for name, value in call.whole_args.items():
        if name not in (call.args or {}) and value in EMPTY:
            empty.append(name)
        else:
            text, origin = visible(text_of(value), kept="\n\t"), _origin(call, name)
            yield Fact(name, text, origin, is_argument=True, is_untrusted=name in call.untrusted)
    if empty:
        yield Fact(LEFT_EMPTY, ", ".join(empty))
    yield Fact(WHY, call.reason or request.reason)
    yield Fact(UNDO, undo_text(call))


def _origin(call: ProposedCall, name: str) -> str:
    if name not in (call.args or {}):
        return DEFAULT
    parts = [call.origins.get(name, ""), WITH_DEFAULTS if name in call.defaults else ""]
    return "; ".join(filter(None, parts))


def call_text(kind: str, args: JsonValue) -> str:
    """A call in words: the kind of tool, and each argument by its name: `pay amount 840, to "Ann Lee"`."""
    return shorten(f"{kind} {args_text(args)}".rstrip(), MAX_CALL)


def args_text(args: JsonValue) -> str:
    """The arguments of a call on one line and cut, as lists of calls have them: `to ann, amount 840`."""
    if not isinstance(args, dict):
        return ""
    named = (f"{visible(name).replace('_', ' ')} {_short(value)}" for name, value in args.items())
    return shorten(", ".join(named), MAX_CALL)


def _short(value: JsonValue) -> str:
    """A value in a list of arguments; in quotes if a reader could take a part of it for another argument."""
    text = text_of(value)
    begin = text[: 10 * MAX_VALUE]  # an argument may have half a megabyte
    shown = shorten(value_line(begin) + "…" * (begin != text), MAX_VALUE)
    return json.dumps(shown, ensure_ascii=False) if isinstance(value, str) and not WORD.fullmatch(shown) else shown


def value_line(value: JsonValue) -> str:
    """A value on one line, and whole, so that no two values look alike."""
    return " ".join(visible(text_of(value), kept="\n\t").split())


def undo_text(call: ProposedCall) -> str:
    """What undoes a call, as a clause."""
    if call.undo:
        return f"{call.undo} undoes it"
    return "it changes nothing" if call.effect == Effect.READ else "it cannot be undone"


def _what_follows_unanswered(request: HumanRequest) -> str:
    stays = "what it has done until then stays"
    if request.kind is RequestKind.BUDGET:
        return f"the task ends as over budget, and {stays}"
    without = " without this call" if request.kind is RequestKind.APPROVAL else ""
    return f"the task ends{without} as escalated (it needed a person), and {stays}"
