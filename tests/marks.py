"""The marks at the fields of all models that a history may hold, as they are saved in `docs/schemas/Redaction.json`."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel

from client.history.records import RESULTS
from client.redaction import BY_NAME, SIGNALS
from workflows.account.progress import Progress
from workflows.account.task import Task
from workflows.faults.fault import Fault, Held, ProgressReport, ReplyProgress
from workflows.marks import Mark
from workflows.people.requests import CHOICES
from workflows.planning.situation import Situation
from workflows.plans.proposal import StepReturn

ROOTS: tuple[type[BaseModel], ...] = (
    *(Task, Progress, Situation, StepReturn, Fault, Held, ReplyProgress, ProgressReport),
    *RESULTS.values(),
    *(row.given for row in CHOICES.values()),
    *(model for shape in (*BY_NAME.values(), *SIGNALS.values()) for model in shape),
)


def models() -> list[type[BaseModel]]:
    """Every model that a payload of a history may hold, by name."""
    found, waiting = set[type[BaseModel]](), list(ROOTS)
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.add(model)
            waiting += [part for info in model.model_fields.values() for part in _models_in(info.annotation)]
    return sorted(found, key=lambda model: model.__name__)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


@dataclass
class Marked:
    """A mark as it stands in the source, and the metadata of the field in each model that inherits it."""

    name: str
    mark: Mark
    metadata: list[list[Any]] = field(default_factory=list)


def marks() -> list[Marked]:
    """Each mark, by the class and the name of its field."""
    found = dict[tuple[str, Mark], Marked]()
    for model in models():
        for name, field_info in model.model_fields.items():
            of = next(base for base in model.__mro__ if name in inspect.get_annotations(base))
            for mark in (one for one in field_info.metadata if isinstance(one, Mark)):
                marked = found.setdefault((f"{of.__name__}.{name}", mark), Marked(f"{of.__name__}.{name}", mark))
                marked.metadata.append(field_info.metadata)
    return list(found.values())


def document() -> dict[str, str]:
    """By class and field, the mark; a field without one is left out."""
    return {marked.name: marked.mark.value for marked in marks()}
