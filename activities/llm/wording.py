"""The answer in words: one sentence for each finished step."""

from collections.abc import Sequence
from datetime import date

from pydantic import JsonValue, ValidationError

from activities.llm.phrases import PHRASES
from workflows.plan import canonical
from workflows.record import StepRecord

MAX_SENTENCE = 500


def tell(records: Sequence[StepRecord], today: date) -> str:
    """What the finished steps came to, in the order of the plan."""
    return "\n".join(_sentence(record, today)[:MAX_SENTENCE] for record in records)


def _sentence(record: StepRecord, today: date) -> str:
    phrase = PHRASES.get(record.kind)
    if record.left_out:
        return f"{record.step.label or record.step.id}: {record.left_out} bytes, too much to be told here"
    if phrase is not None:
        try:
            return phrase(record.result, today)
        except ValidationError:
            pass  # a kind of the same name with another result
    return f"{record.step.label or record.step.id}: {_brief(record.result)}"


def _brief(value: JsonValue) -> str:
    """A result as text: the plain fields of an object, everything else as JSON."""
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {item if isinstance(item, str) else canonical(item)}" for name, item in value.items())
    return value if isinstance(value, str) else canonical(value)
