"""Collects what a planner was told, trusted and untrusted apart, and the literals that the planner wrote."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from pydantic import JsonValue

from activities.planning.origins.numbers import plain_number
from activities.planning.planner import RecordedTurn
from activities.toolbox.declare.kind import Kind
from workflows.account.records import StepRecord
from workflows.planning.situation import Situation
from workflows.plans.references import is_reference
from workflows.text import visible

MAX_PATH = 500
"""The most characters of the path of a literal."""
MAX_KEY = 80
"""The most characters of one part of such a path, or of a text in `Origin.unusual`."""
INPUT, CONVERSATION = "input", "conversation"
"""The sources of untrusted content that no step returned: the input of the task, and what the planner wrote in its
questions."""

Scalar = str | int | float

# Nothing below recurses: a result may be nested deeper than Python's stack.


def literals(args: dict[str, JsonValue], names: frozenset[str]) -> Iterator[tuple[str, Scalar]]:
    """Yield the path and the value of each literal in `args` that needs a source, and of each key not in `names`.

    References, booleans and blank texts need no source. The path of a key is the path of its value.
    """
    waiting: list[tuple[str, JsonValue]] = [("", args)]
    while waiting:
        at, value = waiting.pop()
        if is_reference(value):
            continue
        if isinstance(value, dict):
            yield from ((_path(at, key), key) for key in value if key not in names and _needs_source(key))
            waiting.extend((_path(at, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((_path(at, str(index)), value[index]) for index in reversed(range(len(value))))
        elif isinstance(value, Scalar) and _needs_source(value):
            yield at, value


def _needs_source(value: Scalar) -> bool:
    return bool(value.strip(" \t\r\n")) if isinstance(value, str) else not isinstance(value, bool)


def _path(at: str, part: str) -> str:
    shown = visible(part[:MAX_KEY])
    return (f"{at}.{shown}" if at else shown)[:MAX_PATH]


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


class Sources:
    """The texts and numbers that a planner was told, by whether they are trusted."""

    def __init__(self, past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]) -> None:
        """`past` are the turns of the conversation before `situation`."""
        situations = [*(turn.situation for turn in past if not turn.is_summary), situation]
        self._kinds = kinds
        self._steps = set[str]()
        self._tainted = {record.step.id for told in situations for record in told.records if record.is_tainted}
        self.user = list[str]()
        """What people wrote; these texts are in `trusted`, too."""
        self.trusted = list[str]()
        self.numbers = set[str]()
        """The numbers in JSON of trusted sources, as `plain_number` writes them."""
        self._untrusted = list[tuple[str, str]]()  # each text with its source, as Origin names it
        self._planner = list[tuple[str, str]]()
        for told in situations:
            self._add(told)

    def _add(self, situation: Situation) -> None:
        self._add_user(situation.text)
        self._distrust(INPUT, situation.untrusted_input)
        # The user wrote these plans.
        for step in chain(situation.plan or (), *situation.later_plans):
            for _, value in literals(step.args, frozenset()):
                self._add_value(step.id, value, is_trusted=True)
        for word in situation.words:
            if word.is_option:  # the planner may have copied it from untrusted content
                self._planner.append((CONVERSATION, word.text))
            else:
                self._add_user(word.text)
            self._planner.append((CONVERSATION, word.question))
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
    def untrusted(self) -> list[tuple[str, str]]:
        """Pairs of the source and the text of untrusted content; the texts of the planner come last."""
        return [*self._untrusted, *self._planner]

    def _add_record(self, record: StepRecord) -> None:
        id = record.step.id
        self._steps.add(id)
        is_trusted = not record.is_tainted and self._is_trusted_kind(record.kind)
        parts = [value for path, value in record.named.items() if path.partition(".")[0] == "result"]
        for value in (record.result, *parts):
            self._add_value(id, value, is_trusted=is_trusted)
        if is_trusted:
            self._trust(list(record.edited.values()))

    def _is_trusted(self, step: str, kind: str) -> bool:
        """Whether what `kind` returned for a step is trusted: an unknown step may have had untrusted arguments."""
        return step in self._steps and step not in self._tainted and self._is_trusted_kind(kind)

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
        for scalar in scalars(value):
            text = scalar if isinstance(scalar, str) else plain_number(scalar)
            if text:
                self._untrusted.append((source, text))
