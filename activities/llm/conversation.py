"""The conversation of a task as far as its steps tell it: each plan a call, what became of its steps the result.

It is made anew from the situation, the same each time: what stands before the newest turn never changes while the
steps are kept, so that a provider's cache finds it again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from activities import prompts
from activities.llm.fence import fenced, visible
from activities.llm.proposal_schema import PROPOSE
from activities.llm.turns import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from workflows.task import FaultRecord, Observation, Situation, StepRecord, StepStatus

MAX_ARGS = 2_000
"""Characters of what an observation was asked with."""
STATES: Mapping[StepStatus, str] = {
    StepStatus.SKIPPED: "never started, because the plan ended before",
    StepStatus.CANCELLED: "was cancelled",
    StepStatus.UNDONE: "was finished, and then undone",
    StepStatus.FAILED: "failed",
}


def turns(situation: Situation) -> list[Turn]:
    """All turns so far; the last one is the user's."""
    found: list[Turn] = [UserTurn(visible(prompts.goal(situation)))]
    faults = {fault.step_id: fault for fault in situation.faults}
    for revision, records in _by_revision(situation.records).items():
        call = ToolCall(f"plan_{revision}", PROPOSE, {"steps": [_step(record) for record in records]})
        became = "\n".join(_became(record, faults.get(record.step.id)) for record in records)
        failed = any(record.status is StepStatus.FAILED for record in records)
        found += [AssistantTurn(calls=(call,)), UserTurn(results=(ToolResult(call.id, became, failed),))]
    return found


def seen(observations: Iterable[Observation]) -> Iterator[str]:
    """What the world looked like after the newest refusal."""
    for one in observations:
        how = "As it was at the refusal" if one.stale else f"Seen at {one.at:%H:%M:%S %Z}, after the refusal"
        asked = f" of {fenced('arguments', one.args, MAX_ARGS)}" if one.args else ""
        yield f"{how} of {one.step_id}, with {one.kind}{asked}:\n{fenced(one.kind, one.value)}"


def _by_revision(records: Sequence[StepRecord]) -> dict[int, list[StepRecord]]:
    found = dict[int, list[StepRecord]]()
    for record in sorted(records, key=lambda record: record.revision):
        found.setdefault(record.revision, []).append(record)
    return found


def _step(record: StepRecord) -> JsonValue:
    step = record.step
    needs: list[JsonValue] = list(step.needs)
    return {"id": step.id, "kind": step.kind, "args": step.args, **({"needs": needs} if needs else {})}


def _became(record: StepRecord, fault: FaultRecord | None) -> str:
    id = record.step.id
    if record.status is StepStatus.COMPLETED:
        return f"{id} is finished{_how(record)}. {_result(record)}"
    if record.status is StepStatus.FAILED and fault is not None:
        return _refused(id, fault)
    return f"{id} {STATES.get(record.status, 'is not finished')}."


def _how(record: StepRecord) -> str:
    return f" (by {record.kind}, in place of {record.step.kind})" if record.is_fallback else ""


def _result(record: StepRecord) -> str:
    if record.left_out:
        return f"Its result of {record.left_out} bytes is too large to be shown; steps cannot refer to it."
    return f"Its result:\n{fenced(record.step.id, record.result)}"


def _refused(id: str, fault: FaultRecord) -> str:
    """What was refused, what was seen, what may be tried."""
    told = f"{id} was refused ({fault.code}). The reason:\n{fenced(id, fault.reason)}"
    if fault.observed is not None:
        told += f"\nWhat it saw:\n{fenced(id, fault.observed)}"
    if fault.quadrant.is_transient:
        return f"{told}\nIts retries are used up: use another kind, or do without it."
    return f"{told}\nThe same call would be refused again: change it by what was seen, or use another kind."
