"""The forms of clauses that are understood without a model, and the steps that they ask for."""

import difflib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from pydantic import JsonValue

from activities.llm.clause import Clause, cut, unquoted
from activities.llm.moment import WEEKDAYS, read_day, read_time
from activities.toolbox.desk.bookings import clock
from activities.toolbox.expression import unknown_words
from workflows.plan import Step

MODEL_HINT = "The offline planner knows a few forms only; with a model key there is one that understands free text."


class NotUnderstood(ValueError):
    """A clause that no form fits; the message names it and the nearest form."""


class Wanted(NamedTuple):
    """What a clause asks for."""

    args: dict[str, JsonValue]
    title: str


@dataclass(frozen=True)
class Form:
    """One way to ask for a kind."""

    kind: str
    id: str
    """The id of its first step."""
    spelling: str
    """How it is written, for people."""
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], date], Wanted | None]


def read(text: str, today: date, kinds: Collection[str]) -> tuple[Step, ...]:
    """Turn a text into steps.

    Raises:
        NotUnderstood: a clause fits no form, or asks for a kind that is not among `kinds`.
    """
    steps, before, group = list[Step](), list[str](), list[str]()
    for clause in cut(text, begins=lambda rest: any(form.pattern.fullmatch(rest) for form in FORMS)):
        form, wanted = _understand(clause, today, kinds)
        if clause.is_after:
            before, group = group, []
        args = _with_it(clause, wanted.args, steps)
        step = Step(id=_id(form, steps), kind=form.kind, args=args, needs=tuple(before), title=wanted.title[:80])
        steps.append(step)
        group.append(step.id)
    if not steps:
        raise NotUnderstood(f"There is nothing to do in the task: write e.g. {_spellings(kinds)}. {MODEL_HINT}")
    return tuple(steps)


def _understand(clause: Clause, today: date, kinds: Collection[str]) -> tuple[Form, Wanted]:
    for form in FORMS:
        found = form.pattern.fullmatch(clause.text)
        wanted = form.read(found, today) if found else None
        if wanted is None:
            continue
        if form.kind not in kinds:
            reason = f"{clause.text[:120]!r} needs the kind {form.kind}, which cannot be used in this task."
            raise NotUnderstood(f"{reason} What can be used: {_spellings(kinds)}.")
        return form, wanted
    raise _not_understood(clause, kinds)


def _not_understood(clause: Clause, kinds: Collection[str]) -> NotUnderstood:
    text, spellings = clause.text[:120], [form.spelling for form in FORMS if form.kind in kinds]
    begun = [form.spelling for form in FORMS if form.kind in kinds and form.pattern.fullmatch(clause.text)]
    near = begun or difflib.get_close_matches(text.lower(), spellings, n=1, cutoff=0.4)
    hint = f"the nearest form is: {near[0]}" if near else f"the forms are: {_spellings(kinds)}"
    return NotUnderstood(f"{text!r} is not understood; {hint}. {MODEL_HINT}")


def _spellings(kinds: Collection[str]) -> str:
    return "; ".join(form.spelling for form in FORMS if form.kind in kinds) or "nothing"


def _id(form: Form, steps: list[Step]) -> str:
    earlier = sum(step.kind == form.kind for step in steps)
    return f"{form.id}-{earlier + 1}" if earlier else form.id


def _with_it(clause: Clause, args: dict[str, JsonValue], steps: list[Step]) -> dict[str, JsonValue]:
    """Let `it` be the number of the step before."""
    if not re.search(r"\bit\b", str(args.get("expression", ""))):
        return args
    if not steps or steps[-1].kind != "calculate":
        reason = f"In {clause.text[:120]!r} `it` must be the number of a calculation that stands just before."
        raise NotUnderstood(f"{reason} Write the number instead. {MODEL_HINT}")
    return {**args, "it": {"$from": steps[-1].id, "path": "value"}}


_ON = rf"today|tomorrow|(?:(?:this|next)\s+)?(?:{'|'.join(WEEKDAYS)})"
_PART = re.compile(rf"(?:^|(?<!next)(?<!this)\s+)(?=(?:for|on|at|{_ON})\b)", re.IGNORECASE)


def _parts(rest: str) -> dict[str, str] | None:
    """What follows `for`, `on` and `at`; None when something else stands there, or one of them twice."""
    parts = dict[str, str]()
    for part in filter(None, (part.strip(" ,\n") for part in _PART.split(rest))):
        word, _, value = part.partition(" ")
        if re.fullmatch(_ON, part.split(",")[0], re.IGNORECASE) or re.match(rf"(?:{_ON})\b", part, re.IGNORECASE):
            word, value = "on", part
        if word.lower() not in ("for", "on", "at") or (value and word.lower() in parts):
            return None
        if value:
            parts[word.lower()] = value
    return parts


def _read_booking(found: re.Match[str], today: date) -> Wanted | None:
    parts = _parts(found["rest"])
    if parts is None or "at" not in parts:
        return None
    day, at = read_day(parts.get("on", "today"), today), read_time(parts["at"])
    name = re.sub(r"^(?:the|my|our)\s+", "", unquoted(parts.get("for", "me")), flags=re.IGNORECASE)
    if day is None or at is None or not name:
        return None
    title = f"{name} {clock(at)}" if day == today else f"{name} {day} {clock(at)}"
    return Wanted({"day": day.isoformat(), "at": clock(at), "name": name}, title)


def _read_list(found: re.Match[str], today: date) -> Wanted | None:
    parts = _parts(found["rest"])
    if parts is None or "at" in parts or len(parts) > 1:
        return None
    day = read_day(next(iter(parts.values()), "today"), today)
    if day is None:
        return None
    return Wanted({"day": day.isoformat()}, f"free slots {'today' if day == today else day}")


def _read_search(found: re.Match[str], _today: date) -> Wanted | None:
    query = found["query"] or found["named"]
    query = unquoted(re.sub(r"^(?:the|our|your|a|an)\s+", "", query.strip(), flags=re.IGNORECASE))
    return Wanted({"query": query}, query) if query else None


def _read_calculation(found: re.Match[str], _today: date) -> Wanted | None:
    expression = re.sub(r"\b(?:the result|that)\b", "it", found["expression"], flags=re.IGNORECASE).strip(" =\n")
    is_arithmetic = re.search(r"[0-9]|\bit\b", expression) and not unknown_words(expression)
    return Wanted({"expression": expression}, expression) if is_arithmetic else None


_DOCUMENTS = r"(?:(?:the|my|our|all|these)\s+)*(?:documents?|docs|files)"


def _form(
    kind: str, id: str, spelling: str, pattern: str, read: Callable[[re.Match[str], date], Wanted | None]
) -> Form:
    return Form(kind, id, spelling, re.compile(pattern, re.IGNORECASE | re.DOTALL), read)


FORMS = (
    _form(
        "book_slot",
        "book",
        "book a slot [for NAME] [on DATE] at 14:00",
        r"(?:book|reserve)(?:\s+(?:me|us))?(?:\s+(?:an?|the|one))?(?:\s+free)?\s+(?:time\s+)?slot\b(?P<rest>.*)",
        _read_booking,
    ),
    _form(
        "list_slots",
        "slots",
        "list the free slots [on DATE]",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|any))*(?:\s+(?:free|open|available))?\s+slots\b(?P<rest>.*)",
        _read_list,
    ),
    _form(
        "search",
        "search",
        "search the documents for WORDS",
        rf"(?:search|look)(?:\s+(?:in|through))?(?:\s+{_DOCUMENTS})?\s+for\s+(?P<query>.+)"
        rf"|find\s+(?P<named>.+?)\s+in\s+{_DOCUMENTS}",
        _read_search,
    ),
    _form(
        "calculate",
        "calculate",
        "calculate 18% of 2450",
        r"(?:calculate|compute|work\s+out)\s+(?P<expression>.+)",
        _read_calculation,
    ),
    _form(
        "calculate",
        "calculate",
        "what is 18% of 2450 (for other questions: search the documents for WORDS)",
        r"(?:what(?:['\u2019]s|\s+is)|how\s+much\s+is)\s+(?P<expression>.+)",
        _read_calculation,
    ),
)
"""All forms; the first that fits a clause is meant."""
