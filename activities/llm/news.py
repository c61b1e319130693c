"""What is new since a planner's last turn, as it is told to a model: what became of each call, then words."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from activities import prompts
from activities.llm.ends import PROPOSE
from activities.llm.exchange import Past
from activities.llm.fence import fenced, visible
from activities.llm.turns import AssistantTurn, ToolCall, ToolResult, UserTurn
from workflows.catalogue import Effect
from workflows.faults import Applied
from workflows.guards import TOLD
from workflows.plan import NewSteps
from workflows.record import FaultRecord, Observation, StepRecord, StepStatus
from workflows.situation import Situation

MAX_ARGS = 2_000
"""Characters of what an observation was asked with."""
STATES: Mapping[StepStatus, str] = {
    StepStatus.SKIPPED: "never started, because the plan ended before",
    StepStatus.CANCELLED: "was cancelled",
    StepStatus.UNDONE: "was finished, and then undone",
    StepStatus.FAILED: "failed",
}


def news(before: Past | None, situation: Situation) -> UserTurn:
    """The turn that tells `situation` to a model whose last turn was `before`."""
    goal = [visible(prompts.goal(situation, is_next=before is not None))] if situation.text else []
    results = tuple(_results(before, situation)) if before else ()
    refused = prompts.rejected(situation.rejected) if situation.rejected and not results else []
    undone = [one.step.id for one in situation.planned if one.status is StepStatus.UNDONE]
    facts = [*prompts.undone(undone), *goal, *_earlier(situation), *seen(situation.observations)]
    words = [*refused, *facts, prompts.closing(situation)]
    return UserTurn("\n".join(words), results)


def said(past: Past) -> AssistantTurn:
    """What a planner said, as a model would have."""
    if past.exchange is not None:
        turn = past.exchange.said
        return turn if turn.text.strip() or turn.calls else AssistantTurn(prompts.SILENCE)
    proposal = past.proposed.proposal
    if not isinstance(proposal, NewSteps):
        return AssistantTurn(fenced(proposal.type, proposal.model_dump(mode="json")))  # rules quote what they found
    if past.situation.strategy == "react":
        names = [(step.kind, step.args) for step in proposal.steps]
        calls = (ToolCall(f"step_{past.turn}_{index}", *one) for index, one in enumerate(names))
        return AssistantTurn(calls=tuple(calls))
    steps: list[JsonValue] = [_step(step.id, step.kind, step.args, step.needs) for step in proposal.steps]
    return AssistantTurn(calls=(ToolCall(f"plan_{past.turn}", PROPOSE, {"steps": steps}),))


def seen(observations: Sequence[Observation]) -> Iterator[str]:
    """What the world looked like after the newest refusal."""
    for one in observations:
        how = "As it was at the refusal" if one.stale else f"Seen at {one.at:%H:%M:%S %Z}, after the refusal"
        asked = f" of {fenced('arguments', one.args, MAX_ARGS)}" if one.args else ""
        yield f"{how} of {one.step_id}, with {one.kind}{asked}:\n{fenced(one.kind, one.value)}"


def _earlier(situation: Situation) -> Iterator[str]:
    """The effects of earlier runs of the task, which a reset left standing or undid."""
    if situation.earlier:
        yield prompts.EARLIER
    for record in situation.earlier:
        args = fenced("arguments", record.args or record.step.args, MAX_ARGS)
        match record.status:
            case StepStatus.COMPLETED:
                became = f"was applied and stands. {_result(record)}"
            case StepStatus.UNDONE:
                became = "was applied and has been undone; its id is taken."
            case _:
                became = prompts.DOUBT["unknown"]
        yield f"{record.step.id} ({record.kind} with {args}) {became}"


def _step(id: str, kind: str, args: dict[str, JsonValue], needs: Sequence[str]) -> JsonValue:
    return {"id": id, "kind": kind, "args": args, **({"needs": [*needs]} if needs else {})}


def _results(before: Past, situation: Situation) -> Iterator[ToolResult]:
    """One result for each call of the turn before, in their order."""
    proposal = before.proposed.proposal
    ids = [step.id for step in proposal.steps] if isinstance(proposal, NewSteps) else []
    calls = said(before).calls
    for index, call in enumerate(calls):
        if situation.rejected:
            mine = ids[index] if len(ids) == len(calls) and call.name != PROPOSE else None
            yield ToolResult(call.id, prompts.refusal(situation.rejected, mine, is_first=not index), is_error=True)
        elif call.name == PROPOSE:
            yield _became(call.id, situation.planned, situation)
        elif index < len(ids):
            yield _became(call.id, [one for one in situation.records if one.step.id == ids[index]], situation)
        else:
            yield ToolResult(call.id, prompts.ENDED)


def _became(call_id: str, records: Sequence[StepRecord], situation: Situation) -> ToolResult:
    faults = {fault.step_id: fault for fault in situation.faults}
    text = "\n".join(_told(record, faults.get(record.step.id)) for record in records)
    is_error = any(record.status is not StepStatus.COMPLETED for record in records)
    return ToolResult(call_id, text or prompts.UNDONE, is_error)


def _told(record: StepRecord, fault: FaultRecord | None) -> str:
    id = record.step.id
    if record.status is StepStatus.COMPLETED:
        return f"{id} is finished{_how(record)}. {_result(record)}"
    if record.status is StepStatus.FAILED and fault is not None:
        return _refused(id, fault)
    told = f"{id} {STATES.get(record.status, 'is not finished')}."
    in_doubt = record.status is StepStatus.CANCELLED and record.attempts and record.effect is not Effect.READ
    return f"{told} {prompts.DOUBT['unknown']}" if in_doubt else told


def _how(record: StepRecord) -> str:
    return f" (by {record.kind}, in place of {record.step.kind})" if record.is_fallback else ""


def _result(record: StepRecord) -> str:
    if record.left_out:
        return f"Its result of {record.left_out} bytes is too large to be shown; steps cannot refer to it."
    again = f"\n{TOLD}" if record.unchanged else ""
    return f"Its result:\n{fenced(record.step.id, record.result)}{again}"


def _refused(id: str, fault: FaultRecord) -> str:
    """What was refused, what was seen, what may be tried."""
    told = f"{id} was refused ({fault.code}). The reason:\n{fenced(id, fault.reason)}"
    if fault.observed is not None:
        told += f"\nWhat it saw:\n{fenced(id, fault.observed)}"
    if fault.effect is not Applied.NONE:
        return f"{told}\n{prompts.DOUBT[fault.effect]}"
    if fault.quadrant.is_transient:
        return f"{told}\nIts retries are used up: use another kind, or do without it."
    if fault.by_id:
        return f"{told}\nThe same call may be made under another id."
    return f"{told}\nThe same call would be refused again: change it by what was seen, or use another kind."
