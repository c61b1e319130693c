"""Collects what a planner was told, trusted and untrusted apart, and the literals that the planner wrote."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pydantic import JsonValue

from activities.planning.origins.numbers import plain_number
from activities.planning.planner import RecordedTurn
from activities.toolbox.declare.kind import Kind
from workflows.account.records import StepRecord
from workflows.people.card import args_text
from workflows.planning.situation import Situation
from workflows.plans.addresses import MAX_KEY as MAX_KEY, MAX_PATH as MAX_PATH, path_of
from workflows.plans.contract import OF_TOOL
from workflows.plans.references import is_reference

INPUT, CONVERSATION = "input", "conversation"
"""The sources of untrusted content that no step returned: the input of the task, and what the planner wrote in its
questions."""

Scalar = str | int | float

# Nothing below recurses: a result may be nested deeper than Python's stack.


def literals(args: dict[str, JsonValue], names: frozenset[str]) -> Iterator[tuple[str, Scalar, bool]]:
    """Yield each literal in `args` that needs a source, and each key not in `names`: its path, it, whether it is a key.

    References, booleans and blank texts need no source. The path of a key is the path of its value.
    """
    for at, value in _parts(args):
        if isinstance(value, dict) and not is_reference(value):
            yield from ((path_of(at, key), key, True) for key in value if key not in names and _needs_source(key))
        elif isinstance(value, Scalar) and _needs_source(value):
            yield at, value, False


def references_in(args: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Yield the path of each reference in `args`, and the id of the step that it refers to."""
    return ((at, str(value["$from"])) for at, value in _parts(args) if is_reference(value))


def _parts(args: dict[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    """Yield the path and the value of `args` and of all that it contains; a reference is one value."""
    waiting: list[tuple[str, JsonValue]] = [("", args)]
    while waiting:
        at, value = waiting.pop()
        yield at, value
        if isinstance(value, dict) and not is_reference(value):
            waiting.extend((path_of(at, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((path_of(at, str(index)), value[index]) for index in reversed(range(len(value))))


def _needs_source(value: Scalar) -> bool:
    return bool(value.strip(" \t\r\n")) if isinstance(value, str) else not isinstance(value, bool)


def scalars(value: JsonValue) -> Iterator[Scalar]:
    """The texts and numbers in a value, and the keys of its objects."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                waiting += (inner, key)
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, Scalar) and not isinstance(item, bool):
            yield item


class UntrustedText(NamedTuple):
    """A text that is no trusted source."""

    source: str
    """The step that returned the text, INPUT, CONVERSATION, or OF_TOOL with a kind, as Origin names it."""
    text: str
    computed: str = ""
    """If a pure tool computed the text, the call in words; see `Origin.computed`."""


def may_compute(kind: str, kinds: Mapping[str, Kind]) -> bool:
    """Whether this is the kind of a pure tool, or one is its fallback."""
    visited = set[str]()
    while kind in kinds and kind not in visited:
        spec = kinds[kind].spec
        if spec.pure:
            return True
        visited.add(kind)
        kind = spec.fallback or ""
    return False


def computation(kind: str, args: JsonValue) -> str:
    """The call of a pure tool in words, such as `add from a 100, b 200`."""
    return f"{kind} from {args_text(args)}" if args else kind


class Sources:
    """The texts and numbers that a planner was told, by whether they are trusted."""

    def __init__(self, past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]) -> None:
        """`past` are the turns of the conversation before `situation`."""
        situations = [*(turn.situation for turn in past if not turn.is_summary), situation]
        self._kinds = kinds
        self._steps = set[str]()
        self._tainted = {record.step.id for each in situations for record in each.records if record.is_tainted}
        self.user = list[str]()
        """What people wrote; these texts are in `trusted`, too."""
        self.trusted = list[str]()
        self.numbers = set[str]()
        """The numbers in JSON of trusted sources, as `plain_number` writes them."""
        self.computations = dict[str, str]()
        """By the id of a step, the computation that is no trusted source: of a pure tool, if the planner may have
        chosen it for untrusted content. It shows what the planner wants, whatever its arguments are."""
        self._untrusted = list[UntrustedText]()
        self._computed = list[UntrustedText]()
        self._planner = list[UntrustedText]()
        for name, kind in kinds.items():
            if kind.spec.unread:
                self._distrust(f"{OF_TOOL}{name}", [name, kind.description, kind.args_schema, kind.result_schema])
        for each in situations:
            self._add(each)

    def _add(self, situation: Situation) -> None:
        self._add_user(situation.text)
        self._distrust(INPUT, situation.untrusted_input)
        # The user wrote these plans.
        for step in chain(situation.plan or (), *situation.later_plans):
            for _, value, _ in literals(step.args, frozenset()):
                self._add_value(step.id, value, is_trusted=True)
        for word in situation.words:
            if word.is_option:  # the planner may have copied it from untrusted content
                self._planner.append(UntrustedText(CONVERSATION, word.text))
            else:
                self._add_user(word.text)
            self._planner.append(UntrustedText(CONVERSATION, word.question))
        for record in situation.records:
            self._add_record(record)
        for fault in situation.faults:
            self._distrust(fault.step_id, [fault.reason, fault.words])
            self._add_value(fault.step_id, fault.observed, is_trusted=self._is_trusted(fault.step_id, fault.source))
        for observation in situation.observations:
            is_trusted = self._is_trusted(observation.step_id, observation.kind)
            self._add_value(observation.step_id, observation.value, is_trusted=is_trusted)

    def _add_user(self, text: str) -> None:
        self.user.append(text)
        self._trust(text)

    @property
    def untrusted(self) -> list[UntrustedText]:
        """The passages of untrusted content; then what pure tools computed, and then the texts of the planner."""
        return [*self._untrusted, *self._computed, *self._planner]

    def _add_record(self, record: StepRecord) -> None:
        id = record.step.id
        self._steps.add(id)
        self.computations.pop(id, None)  # an earlier task of the conversation may have had a step with this id
        if record.kind in self._kinds and self._kinds[record.kind].spec.pure and not record.is_planned_ahead:
            self.computations[id] = computation(record.kind, record.args or record.step.args)
        has_trusted_args = not record.is_tainted and self._is_trusted_kind(record.kind)
        parts = [value for path, value in record.named.items() if path.partition(".")[0] == "result"]
        for value in (record.result, *parts):
            self._add_value(id, value, is_trusted=has_trusted_args and id not in self.computations)
        if has_trusted_args:
            self._trust(list(record.edited.values()))

    def _is_trusted(self, step: str, kind: str) -> bool:
        """Whether what `kind` returned for a step is trusted: an unknown step may have had untrusted arguments."""
        is_known = step in self._steps and step not in self._tainted and step not in self.computations
        return is_known and self._is_trusted_kind(kind)

    def _is_trusted_kind(self, kind: str) -> bool:
        return kind in self._kinds and not self._kinds[kind].spec.untrusted

    def _add_value(self, step: str, value: JsonValue, *, is_trusted: bool) -> None:
        if is_trusted:
            self._trust(value)
        else:
            self._distrust(step, value)

    def _trust(self, value: JsonValue) -> None:
        for scalar in scalars(value):
            if isinstance(scalar, str):
                self.trusted.append(scalar)
            elif number := plain_number(scalar):
                self.numbers.add(number)
                self.trusted.append(number)
                if (text := str(scalar)) != number:
                    self.trusted.append(text)

    def _distrust(self, source: str, value: JsonValue) -> None:
        computed = self.computations.get(source, "")
        passages = self._computed if computed else self._untrusted
        for scalar in scalars(value):
            text = scalar if isinstance(scalar, str) else plain_number(scalar)
            if text:
                passages.append(UntrustedText(source, text, computed))
