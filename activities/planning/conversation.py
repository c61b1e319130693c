"""The conversation of a task, made of its transcript: what stands in it never changes, so that a cache finds it again.

Where older turns were summarised, it begins with the goal and the summary; pairs of call and result stay together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from activities.planning import prompts
from activities.planning.planner import Past
from activities.planning.strategies import PROPOSE
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from activities.providers.untrusted import fenced, visible
from workflows.catalogue import Effect
from workflows.faults import Applied
from workflows.guards import REPEATED_NOTICE
from workflows.plan import NewSteps, canonical
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
    again = f"\n{REPEATED_NOTICE}" if record.unchanged else ""
    return f"Its result:\n{fenced(record.step.id, record.result)}{again}"


def _refused(id: str, fault: FaultRecord) -> str:
    """What was refused, what was seen, what may be tried."""
    told = f"{id} was refused ({fault.code}). The reason:\n{fenced(id, fault.reason)}"
    if fault.observed is not None:
        told += f"\nWhat it saw:\n{fenced(id, fault.observed)}"
    if fault.applied is not Applied.NONE:
        return f"{told}\n{prompts.DOUBT[fault.applied]}"
    if fault.quadrant.is_transient:
        return f"{told}\nIts retries are used up: use another kind, or do without it."
    if fault.by_id:
        return f"{told}\nThe same call may be made under another id."
    return f"{told}\nThe same call would be refused again: change it by what was seen, or use another kind."


WHOLE = 1_000_000
"""Characters: a summary is never cut."""
VERBATIM = 2
"""Turns that are never summarised: the newest."""
KEPT = 0.4
"""The part of the conversation that a summary leaves as it is, at the most."""


def turns(past: Sequence[Past], situation: Situation) -> list[Turn]:
    """All turns; the last one is the user's and tells the situation."""
    return [*_before(past, situation), news(_last(past), situation)]


def cut(past: Sequence[Past]) -> int:
    """How many of the oldest turns a summary should stand for; 0 where too few are left to summarise."""
    kept = _kept(past)
    sizes = [size(_told_turn(past, index)) + size(said(one)) for index, one in kept]
    left, room = len(kept), KEPT * sum(sizes)
    while left > 1 and (len(kept) - left < VERBATIM or sum(sizes[left - 1 :]) <= room):
        left -= 1
    return kept[left][0] if 0 < left <= len(kept) - VERBATIM else 0


def retold(past: Sequence[Past], oldest: int) -> str:
    """The `oldest` turns and what came of them as one text, for whoever summarises them."""
    closings = {prompts.closing(one.situation) for one in past[: oldest + 1]}
    turns = [*_before(past[:oldest]), _told_turn(past, oldest)]
    return "\n\n".join(line for turn in turns for line in _lines(_without(turn, closings)))


def _before(past: Sequence[Past], news: Situation | None = None) -> Iterator[Turn]:
    summarised = max((index for index, one in enumerate(past) if one.is_summary), default=-1)
    for number, (index, one) in enumerate(_kept(past)):
        told = _told_turn(past, index)
        is_opening = summarised >= 0 and not number
        yield _opening(past[summarised], told, _goal(past, index, news)) if is_opening else told
        # What the provider signed belongs to the conversation as it was before the summary.
        yield replace(said(one), blocks=()) if index < summarised else said(one)


def _kept(past: Sequence[Past]) -> list[tuple[int, Past]]:
    """The turns that the newest summary does not stand for, with their places."""
    first = max((one.upto for one in past), default=0)
    return [(index, one) for index, one in enumerate(past) if index >= first and not one.is_summary]


def _told_turn(past: Sequence[Past], index: int) -> UserTurn:
    one = past[index]
    return one.exchange.told if one.exchange else news(_last(past[:index]), one.situation)


def _last(past: Sequence[Past]) -> Past | None:
    return next((one for one in reversed(past) if not one.is_summary), None)


def _goal(past: Sequence[Past], index: int, news: Situation | None) -> Situation | None:
    """The situation with the goal, where no turn from this place on tells it."""
    later = [*(one.situation for one in past[index:]), *([news] if news else [])]
    if any(one.text for one in later):
        return None
    return next(one.situation for one in reversed(past[:index]) if one.situation.text)


def _opening(summary: Past, told: UserTurn, goal: Situation | None) -> UserTurn:
    """The goal, the summary, and what was open when it was made, word for word."""
    words = summary.exchange.said.text if summary.exchange else ""
    still = [result.text for result in told.results if result.is_error]
    parts = [
        *([visible(prompts.goal(goal))] if goal else []),
        f"{prompts.SUMMARISED}\n{fenced('summary', words, WHOLE)}",
        *([prompts.STILL_OPEN, *still] if still else []),
        told.text,
    ]
    return UserTurn("\n".join(filter(None, parts)))


def size(turn: Turn) -> int:
    """Characters."""
    if isinstance(turn, UserTurn):
        return len(turn.text) + sum(len(result.text) for result in turn.results)
    return len(turn.text) + sum(len(canonical(call.args)) for call in turn.calls)


def _without(turn: Turn, closings: Iterable[str]) -> Turn:
    """The turn without the words that say what is true at its moment, and matters no more."""
    closing = next((words for words in closings if turn.text.endswith(words)), "")
    return replace(turn, text=turn.text.removesuffix(closing).strip())


def _lines(turn: Turn) -> Iterator[str]:
    if isinstance(turn, UserTurn):
        yield from (f"Result: {result.text}" for result in turn.results)
    else:
        yield from (f"Call: {fenced(call.name, call.args)}" for call in turn.calls)
    if turn.text:
        yield f"Told: {turn.text}" if isinstance(turn, UserTurn) else f"Said: {fenced('words', turn.text)}"
