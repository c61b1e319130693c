"""Steps of the old plan under new ids, with the references and titles that follow from it."""

import re
from collections.abc import Mapping

from pydantic import JsonValue

from workflows.record import StepRecord, StepStatus


def new_ids(records: list[StepRecord], taken: set[str]) -> dict[str, str]:
    """A new id for each step that started: `book-2` after `book`."""
    moved = dict[str, str]()
    for record in records:
        if record.started is None and record.status is not StepStatus.FAILED:  # a conversation tells no times
            continue
        number = 2
        while f"{stem(record.step.id)}-{number}" in taken:
            number += 1
        moved[record.step.id] = f"{stem(record.step.id)}-{number}"
        taken = {*taken, moved[record.step.id]}
    return moved


def stem(id: str) -> str:
    """An id without the number of its renewal: `book` of `book-2`."""
    return re.sub(r"-[0-9]+$", "", id)[:56].replace(".", "_")


def moved(value: JsonValue, ids: Mapping[str, str]) -> JsonValue:
    """Let references to a step that has a new id point there."""
    if isinstance(value, list):
        return [moved(item, ids) for item in value]
    if not isinstance(value, dict):
        return value
    source = value.get("$from")
    if isinstance(source, str) and set(value) <= {"$from", "path"}:
        return {**value, "$from": ids.get(source, source)}
    return {key: moved(item, ids) for key, item in value.items()}


def retitled(record: StepRecord, old: JsonValue, argument: str, new: JsonValue) -> str:
    """The step's title with the new value in it."""
    title, before, after = record.step.label, str(old), str(new)
    return (title.replace(before, after) if before and before in title else f"{title} ({argument} {after})")[:120]
