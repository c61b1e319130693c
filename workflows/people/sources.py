"""Where the arguments of a call come from, in words for the person who is asked about the call.

Runs when a request is opened for the approval of a call. It explains, and decides nothing: what untrusted content may
do is compared in `workflows/planning/trust.py`.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import NamedTuple

from pydantic import JsonValue

from workflows.account.progress import Progress
from workflows.account.records import StepRecord, StepStatus
from workflows.json_values import items
from workflows.plans.contract import OF_TOOL, Origin, description_text
from workflows.plans.references import is_reference
from workflows.text import few, shorten

MAX_LEAVES = 200
"""The most values within one argument whose sources are looked for."""
MAX_LOOKED_AT = 2_000
"""The most values of one result that are looked at."""
MAX_SOURCES = 3
"""The most sources that are named of one argument."""
MAX_QUOTE = 120
UNKNOWN = "chosen by the planner"


class ValueSource(NamedTuple):
    """Where a value comes from."""

    text: str
    is_untrusted: bool = False
    """Whether no trusted source has it, so that untrusted content may have chosen it."""


def sources_of(progress: Progress, record: StepRecord, args: Mapping[str, JsonValue]) -> dict[str, ValueSource]:
    """By argument name, the source of the value; `args` are the arguments of the call that the step `record` makes."""
    found = dict[str, ValueSource]()
    for name, value in args.items():
        if name in record.edited:
            found[name] = ValueSource("changed by a person")
            continue
        planned = record.step.args.get(name, value)
        sources = dict.fromkeys(_sources(progress, record, name, planned))
        text = few([source.text for source in sources], MAX_SOURCES, "; ")
        found[name] = ValueSource(text, any(source.is_untrusted for source in sources))
    return {name: source for name, source in found.items() if source.text}


def _sources(progress: Progress, record: StepRecord, name: str, planned: JsonValue) -> Iterator[ValueSource]:
    by_hand = "given with the call" if progress.task.is_call else "the plan that was written by hand"
    if progress.task.plan is None or record.revision > 1:
        by_hand = ""
    suspects = [
        origin
        for origin in progress.contract.origins
        if origin.step == record.step.id and (origin.at == name or origin.at.startswith(f"{name}."))
    ]
    yield from map(_source_of_suspect, suspects)
    computed = {origin.source for origin in suspects if origin.computed}
    for leaf in islice(_leaves(planned), MAX_LEAVES):
        if is_reference(leaf):
            if leaf["$from"] in computed:
                continue
            yield _source_of_result(progress, str(leaf["$from"]), str(leaf.get("path", "")))
        elif by_hand:
            yield ValueSource(by_hand)
        elif not suspects:
            yield _source_of_literal(progress, leaf)


def _source_of_suspect(origin: Origin) -> ValueSource:
    """The source of a value that only untrusted content or a computation shows, or that nothing shows."""
    unusual = f" It {origin.unusual}." if origin.unusual else ""
    if origin.computed:
        return ValueSource(f"computed by {origin.computed} (step {origin.source}){unusual}", is_untrusted=True)
    if not origin.source:
        return ValueSource(f"{UNKNOWN}: nobody wrote it, and no trusted result has it.{unusual}", is_untrusted=True)
    where = {"input": "the untrusted input", "conversation": "the conversation"}.get(
        origin.source, f"the untrusted result of step {origin.source}"
    )
    if origin.source.startswith(OF_TOOL):
        where = description_text(origin.source.removeprefix(OF_TOOL))
    line = f", line {origin.line}" if origin.line else ""
    quote = f": “{shorten(origin.quote, MAX_QUOTE)}”" if origin.quote else ""
    return ValueSource(f"found in {where}{line}{quote}{unusual}", is_untrusted=True)


def _source_of_result(progress: Progress, id: str, path: str) -> ValueSource:
    is_tainted = any(record.is_tainted for record in progress.records if record.step.id == id)
    part = f" ({path})" if path else ""
    return ValueSource(f"{'untrusted ' if is_tainted else ''}result of step {id}{part}", is_tainted)


def _source_of_literal(progress: Progress, value: JsonValue) -> ValueSource:
    if value is None or isinstance(value, bool) or value == "":
        return ValueSource(UNKNOWN)  # no text shows such a value
    if shows(progress.task.text, value):
        return ValueSource("words of the task")
    if any(shows(word.text, value) for word in progress.words if not word.is_option):
        return ValueSource("words of a person")
    for record in progress.records:
        if record.status is StepStatus.COMPLETED and not record.is_tainted and _has_leaf(record.result, value):
            return _source_of_result(progress, record.step.id, "")
    return ValueSource(UNKNOWN)


def shows(text: str, value: JsonValue) -> bool:
    """Whether a text contains a value as whole words; a number may be spelt in any usual way."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return any(number == Decimal(str(value)) for number in _numbers(text))
    shown = " ".join(str(value).split()).lower()
    pattern = re.compile(rf"(?<!\w){re.escape(shown)}(?!\w)")
    return bool(shown) and pattern.search(" ".join(text.split()).lower()) is not None


def _numbers(text: str) -> Iterator[Decimal]:
    for found in re.finditer(r"\d+(?:[.,']\d+)*", text):
        plain = re.sub(r"[,'](?=\d{3}(?!\d))", "", found[0]).replace(",", ".")
        try:
            yield Decimal(plain)
        except InvalidOperation:
            continue


def _has_leaf(result: JsonValue, value: JsonValue) -> bool:
    leaves = islice(_leaves(result), MAX_LOOKED_AT)
    return any(leaf == value and isinstance(leaf, bool) == isinstance(value, bool) for leaf in leaves)


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list) and not is_reference(item):
            waiting.extend(reversed(list(items(item))))
        else:
            yield item
