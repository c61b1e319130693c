"""What an earlier run of a task did and a reset left standing: the planner without a model does not plan it again."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from activities.llm.offers import shape_of
from activities.llm.renewal import moved, stem
from activities.toolbox.kind import Kind
from workflows.catalogue import Effect
from workflows.plan import Step
from workflows.record import StepRecord, StepStatus

MAX_CHANGED = 1
"""Arguments that a rule changes after a refusal."""


class CannotTell(Exception):
    """No rule says whether an effect of an earlier run does what a step is to do; the message says which."""


def standing(steps: Sequence[Step], earlier: Sequence[StepRecord], kinds: Mapping[str, Kind]) -> dict[str, StepRecord]:
    """The effect of an earlier run that each of the steps would repeat, by the id of the step.

    It has the step's kind and id, or a renewed id (`book-2` for `book`) and the same arguments but for one time, date
    or number, which is what the rules change after a refusal.

    Raises:
        CannotTell: nobody knows whether one of them was applied, or one of a renewed id has other arguments.
    """
    free = [record for record in earlier if record.status is not StepStatus.UNDONE]
    found = dict[str, StepRecord]()
    effects = [step for step in steps if step.kind in kinds and kinds[step.kind].spec.effect is not Effect.READ]
    for step in sorted(effects, key=lambda step: step.id not in {record.step.id for record in free}):
        fitting = [record for record in free if _is_same_purpose(step, record)]
        if fitting:
            found[step.id] = min(fitting, key=lambda record: (record.step.id != step.id, len(_changed(step, record))))
            free.remove(found[step.id])
    for record in found.values():
        if record.status is not StepStatus.COMPLETED:
            raise CannotTell(f"Nobody knows whether {record.step.id} of an earlier run was applied: find out first.")
    for step in effects:
        alike = [record.step.id for record in free if _is_renewed(step, record)] if step.id not in found else []
        if alike:
            raise CannotTell(f"No rule says whether {alike[0]} of an earlier run did what {step.id} is to do.")
    return found


def left_to_do(steps: Sequence[Step], records: Sequence[StepRecord], kinds: Mapping[str, Kind]) -> tuple[Step, ...]:
    """The steps of a first plan without what `records` of earlier runs have done, under ids that these do not have.

    Raises:
        CannotTell: as above.
    """
    done, ids = standing(steps, records, kinds), dict[str, str]()
    taken = {record.step.id for record in records} | {step.id for step in steps}
    for step in steps:
        ids[step.id] = done[step.id].step.id if step.id in done else step.id
        if step.id not in done and step.id in {record.step.id for record in records}:
            ids[step.id] = next(id for number in range(2, 10_000) if (id := f"{stem(step.id)}-{number}") not in taken)
            taken.add(ids[step.id])
    return tuple(
        step.model_copy(
            update={
                "id": ids[step.id],
                "args": {name: moved(value, ids) for name, value in step.args.items()},
                "needs": tuple(ids[need] for need in step.needs),
            }
        )
        for step in steps
        if step.id not in done
    )


def _is_same_purpose(step: Step, record: StepRecord) -> bool:
    if not _is_renewed(step, record):
        return False
    changed = _changed(step, record)
    is_alike = len(changed) <= MAX_CHANGED and all(shape_of(step.args[name]) not in ("text", None) for name in changed)
    return record.step.id == step.id or is_alike


def _is_renewed(step: Step, record: StepRecord) -> bool:
    return record.kind == step.kind and stem(record.step.id) == stem(step.id)


def _changed(step: Step, record: StepRecord) -> list[str]:
    """The arguments that differ; a reference to a result that is not known yet may be any value."""
    made = _args(record)
    return [name for name, value in step.args.items() if not _is_reference(value) and made.get(name) != value]


def _args(record: StepRecord) -> dict[str, JsonValue]:
    return record.step.args if record.args is None else record.args


def _is_reference(value: JsonValue) -> bool:
    return isinstance(value, dict) and "$from" in value
