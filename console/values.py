"""Values of our models with placeholders in them: what decides stays, what tools, planners and people say goes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from console.placeholders import Placeholders
from workflows.catalogue import Catalogue, Companion, ToolSpec
from workflows.faults import Fault
from workflows.guards import LoopGuard, RepeatGuard
from workflows.header import CallHeader, Undoes
from workflows.outcome import Ending, Outcome, OutcomeStep
from workflows.plan import Answer, GiveUp, NewSteps, PassedOver, Proposed, Question, Step, digest
from workflows.progress import Progress
from workflows.record import Compaction, Failover, FaultRecord, Observation, Revision, StepRecord, UndoRecord
from workflows.situation import Situation
from workflows.task import Task

KEPT: Mapping[type[BaseModel], frozenset[str]] = {
    Answer: frozenset({"type"}),
    CallHeader: frozenset({"key", "digest"}),
    Catalogue: frozenset({"planner"}),
    Companion: frozenset({"kind", "args"}),
    Compaction: frozenset({"planner"}),
    Ending: frozenset({"code"}),
    Failover: frozenset({"planner", "code"}),
    Fault: frozenset({"source"}),
    FaultRecord: frozenset({"source", "step_id", "decision", "reconciled"}),
    GiveUp: frozenset({"type"}),
    NewSteps: frozenset({"type"}),
    Observation: frozenset({"step_id", "kind"}),
    Outcome: frozenset({"code", "planner", "strategy"}),
    OutcomeStep: frozenset({"id", "kind", "needs"}),
    PassedOver: frozenset({"planner", "code"}),
    Progress: frozenset({"planner", "down", "folded", "grants", "origin"}),
    Proposed: frozenset({"planner"}),
    Question: frozenset({"type"}),
    Revision: frozenset({"refused", "kept", "looked", "planner"}),
    Situation: frozenset({"down", "withheld", "strategy", "planner", "continues"}),
    Step: frozenset({"id", "kind", "needs"}),
    StepRecord: frozenset({"kind", "undoes"}),
    Task: frozenset({"strategy", "on_escalation", "planner", "allow", "continues"}),
    ToolSpec: frozenset({"kind", "retry", "fallback", "digest"}),
    UndoRecord: frozenset({"step_id", "kind"}),
    Undoes: frozenset({"key", "step", "kind"}),
}
"""The strings of our models that decide; an enum, a time and a number of a model's own stay without being named."""

FOREIGN = frozenset({"args", "result", "observed", "value"})
"""The fields of our models that hold what tools and planners say."""


class Values(Placeholders):
    """Redacts values by the model that they should be of; one that is of none is foreign as a whole."""

    def __init__(self) -> None:
        """Begin with no placeholder."""
        super().__init__()
        self._digests = dict[str, str]()

    def of(self, value: JsonValue, shape: Sequence[type[BaseModel]]) -> JsonValue:
        """A value of the first of these models that takes it, or a list of such."""
        if isinstance(value, list) and shape:
            return [self.of(one, shape) for one in value]
        for model in shape:
            with suppress(ValidationError):
                return self._model(model.model_validate(value))
        return self.data(value)

    def _learn(self, progress: Progress) -> None:
        """Remember what the digests of the repeat guard become, which knows calls and observations by nothing else."""
        for record in progress.records:
            for args in (record.args, record.step.args):
                self._digests[digest(record.kind, args)] = digest(record.kind, self.data(args, references=True))
        for one in progress.observations:
            self._digests[digest(one.kind, one.args)] = digest(one.kind, self.data(one.args, references=True))
        views = [record.result for record in progress.records]
        views += [one.value for one in progress.observations] + [fault.observed for fault in progress.faults]
        for value in views:
            self._digests[digest(value)] = digest(self.data(value))

    def _model(self, it: BaseModel) -> dict[str, JsonValue]:
        if isinstance(it, Progress):
            self._learn(it)
        dumped, kept = it.model_dump(mode="json"), KEPT.get(type(it), frozenset())
        fields = {name: value for name, value in it if name in dumped}
        return {
            name: dumped[name] if name in kept else self._part(name, value, dumped[name])
            for name, value in fields.items()
        }

    def _part(self, name: str, value: Any, dumped: Any) -> Any:
        """A field of a model that is not kept by its name."""
        match value:
            case RepeatGuard() | LoopGuard():
                return _renamed(dumped, self._digests)
            case _ if name in FOREIGN:
                return self.data(dumped, references=name == "args")
            case BaseModel():
                return self._model(value)
            case StrEnum() | datetime() | bool() | int() | float() | None:
                return dumped
            case str():
                return self.text(value)
            case dict():
                return {key: self._part(name, one, dumped[key]) for key, one in value.items()}
            case tuple() | list() if name == "earlier":
                return self.of(dumped, (Fault,))
            case tuple() | list():
                return [self._part(name, one, was) for one, was in zip(value, dumped, strict=True)]
        return self.data(dumped)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The same data with other names, keys included; what has no other name stays."""
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    return names.get(value, value) if isinstance(value, str) else value
