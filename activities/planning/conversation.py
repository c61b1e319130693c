"""Makes the conversation of a task with a model from the recorded turns, which are requests and replies.

Earlier turns are written the same in each request, so the provider's cache can be used. After the oldest turns are
summarised, the conversation begins with the goal and the summary. A call and its result always stay together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from activities.planning import prompts
from activities.planning.planner import RecordedTurn
from activities.planning.strategies import EFFECTS, PROPOSE
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from activities.providers.untrusted import fenced, remove_hidden
from workflows.account.records import FaultRecord, Observation, StepRecord, StepStatus
from workflows.faults.fault import Applied
from workflows.json_values import canonical
from workflows.people.requests import Word
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import GiveUp, NewSteps, Proposed, Question
from workflows.plans.repeated_calls import REPEATED_NOTICE

MAX_ARGS = 2_000
"""The most characters of a call's arguments that a model is shown beside an observed state or an earlier effect."""
NEVER_CUT = 1_000_000
"""A limit in characters that is larger than any summary: a summary is always shown whole."""
NEVER_SUMMARISED = 2
"""How many of the newest turns are never summarised."""
MAX_KEPT = 0.4
"""The largest part of a conversation's characters (from 0 to 1) that stays word for word beside a summary."""
STATES: Mapping[StepStatus, str] = {
    StepStatus.SKIPPED: "never started, because the plan ended before",
    StepStatus.CANCELLED: "was cancelled",
    StepStatus.UNDONE: "was finished, and then undone",
    StepStatus.FAILED: "failed",
}


def turns(past: Sequence[RecordedTurn], situation: Situation) -> list[Turn]:
    """The whole conversation for a request; the last turn is a user turn that describes `situation`."""
    return [*_earlier_turns(past, situation), user_turn(_last_turn(past), situation)]


def turns_to_summarise(past: Sequence[RecordedTurn]) -> int:
    """How many of the oldest turns a summary should replace; 0 if there are too few turns."""
    kept = _not_summarised(past)
    sizes = [
        count_characters(_user_turn_of(past, index)) + count_characters(assistant_turn(turn)) for index, turn in kept
    ]
    count, max_kept = len(kept), MAX_KEPT * sum(sizes)
    # From the newest turn backwards, keep turns word for word until they would exceed `max_kept`.
    while count > 1 and (len(kept) - count < NEVER_SUMMARISED or sum(sizes[count - 1 :]) <= max_kept):
        count -= 1
    return kept[count][0] if 0 < count <= len(kept) - NEVER_SUMMARISED else 0


def text_to_summarise(past: Sequence[RecordedTurn], oldest: int) -> str:
    """The first `oldest` turns of `past`, with their results, as one text for the model that summarises them."""
    closings = {prompts.closing_lines(turn.situation) for turn in past[: oldest + 1]}
    turns = [*_earlier_turns(past[:oldest]), _user_turn_of(past, oldest)]
    return "\n\n".join(line for turn in turns for line in _lines(_without_closing(turn, closings)))


def count_characters(turn: Turn) -> int:
    if isinstance(turn, UserTurn):
        return len(turn.text) + sum(len(result.text) for result in turn.results)
    written = len(turn.text) + sum(len(canonical(call.args)) for call in turn.calls)
    return written + (len(canonical(turn.vendor)) if turn.vendor else 0)


def whole_situation(past: Iterable[RecordedTurn], task: str, situation: Situation) -> Situation:
    """One situation that describes the whole task, for a planner that keeps no conversation.

    It is made of the turns in `past` and the new `situation`. `task` is the run id of the task's first run: turns of
    another task, whose conversation this task continues, are left out.
    """
    situations = [*(turn.situation for turn in past if turn.task == task and not turn.is_summary), situation]
    # The situation with the task's text may hold records of the continued task.
    own = [earlier_situation for earlier_situation in situations if not earlier_situation.text]
    words = tuple(word for earlier_situation in situations for word in earlier_situation.words)
    earlier = {record.step.id: record for earlier_situation in situations for record in earlier_situation.earlier}
    records = earlier | {record.step.id: record for own_situation in own for record in own_situation.planned}
    first = {
        "text": situations[0].text,
        "untrusted_input": situations[0].untrusted_input,
        "result_schema": situations[0].result_schema,
        "documents": situations[0].documents,
    }
    faults = tuple(fault for own_situation in own for fault in own_situation.faults)
    return situation.model_copy(update={**first, "records": tuple(records.values()), "faults": faults, "words": words})


def split_situation(situation: Situation) -> tuple[list[RecordedTurn], Situation]:
    """Split a situation that describes the whole task into recorded turns and a new situation.

    There is one turn for each plan of the task, and one more if the last reply of the model was rejected. The new
    situation has only what happened after these turns.
    """
    plans = dict[int, list[StepRecord]]()
    for record in sorted(situation.planned, key=lambda record: record.revision):
        plans.setdefault(record.revision, []).append(record)
    nothing: dict[str, Any] = {"records": (), "faults": (), "observations": (), "words": (), "rejected": ()}
    past, new = list[RecordedTurn](), situation.model_copy(update={**nothing, "records": situation.earlier})
    for number, records in plans.items():
        plan = NewSteps(steps=tuple(record.step for record in records))
        past.append(RecordedTurn("", 0, number, new, Proposed(proposal=plan)))
        ids = {record.step.id for record in records}
        faults = tuple(fault for fault in situation.faults if fault.step_id in ids)
        new = new.model_copy(update={"text": "", "untrusted_input": "", "records": tuple(records), "faults": faults})
    new = new.model_copy(update={"observations": situation.observations, "words": situation.words})
    if not situation.rejected:
        return past, new
    unusable = Proposed(proposal=GiveUp(reason="an answer that could not be used"))
    past.append(RecordedTurn("", 0, len(plans) + 1, new, unusable))
    return past, new.model_copy(update={**nothing, "text": "", "untrusted_input": "", "rejected": situation.rejected})


def user_turn(before: RecordedTurn | None, situation: Situation) -> UserTurn:
    """The user turn that describes `situation`; `before` is the recorded turn before it, None for the first turn."""
    goal = [remove_hidden(prompts.task_text(situation, is_next=before is not None))] if situation.text else []
    results = tuple(_results(before, situation)) if before else ()
    rejected = prompts.rejected_reply(situation.rejected) if situation.rejected and not results else []
    untrusted = situation.untrusted_input
    undone = [record.step.id for record in situation.planned if record.status is StepStatus.UNDONE]
    facts = [
        *prompts.undone_steps(undone),
        *goal,
        *([f"{prompts.INPUT}\n{fenced('input', untrusted, NEVER_CUT)}"] if untrusted else []),
        *(prompts.asked_before(word) + prompts.said_by_person(word) for word in _untold(before, situation)),
        *_earlier_effects(situation),
        *_observed(situation.observations, situation.shown),
    ]
    return UserTurn("\n".join([*rejected, *facts, prompts.closing_lines(situation)]), results)


def assistant_turn(past: RecordedTurn) -> AssistantTurn:
    """The planner's reply in a recorded turn, as a turn of a model.

    If no model was asked, proposed steps are written as calls of a model, and any other proposal as text.
    """
    if past.exchange is not None:
        turn = past.exchange.said
        return turn if turn.text.strip() or turn.calls else turn.rewritten(prompts.NO_WORDS)
    proposal = past.proposed.proposal
    if not isinstance(proposal, NewSteps):
        # The offline planner quotes results, which are untrusted content.
        return AssistantTurn(fenced(proposal.type, proposal.model_dump(mode="json")))
    if past.situation.strategy == "react":
        steps = enumerate(proposal.steps)
        return AssistantTurn(
            calls=tuple(ToolCall(f"step_{past.turn}_{index}", step.kind, step.args) for index, step in steps)
        )
    plan: list[JsonValue] = [
        {"id": step.id, "kind": step.kind, "args": step.args, **({"needs": [*step.needs]} if step.needs else {})}
        for step in proposal.steps
    ]
    return AssistantTurn(calls=(ToolCall(f"plan_{past.turn}", PROPOSE, {"steps": plan}),))


def _observed(observations: Sequence[Observation], max_shown: int) -> Iterator[str]:
    """Yield a text for each state that was observed at a rejection (`stale`) or after it."""
    for observation in observations:
        fresh = f"Seen at {observation.at:%H:%M:%S %Z}, after the refusal"
        how = "As it was at the refusal" if observation.stale else fresh
        arguments = f" of {fenced('arguments', observation.args, min(max_shown, MAX_ARGS))}" if observation.args else ""
        call = f"{observation.step_id}, with {observation.kind}{arguments}"
        yield f"{how} of {call}:\n{fenced(observation.kind, observation.value, max_shown)}"
        if observation.unread:
            yield f"The state could not be read again after the refusal of {observation.step_id}:"
            yield fenced("check", observation.unread)


def _earlier_effects(situation: Situation) -> Iterator[str]:
    """Yield a heading, and a text for each effect of the task's earlier runs that a reset kept or undid."""
    if situation.earlier:
        yield prompts.EARLIER_EFFECTS
    for record in situation.earlier:
        args = fenced("arguments", record.args or record.step.args, min(situation.shown, MAX_ARGS))
        match record.status:
            case StepStatus.COMPLETED:
                outcome = f"was applied and stands. {_result(record, situation.shown)}"
            case StepStatus.UNDONE:
                outcome = "was applied and has been undone; its id is taken."
            case _:
                outcome = prompts.EFFECT_NOTES["unknown"]
        yield f"{record.step.id} ({record.kind} with {args}) {outcome}"


def _results(before: RecordedTurn, situation: Situation) -> Iterator[ToolResult]:
    """One result for each call that the model made in the turn `before`, in the order of the calls."""
    proposal = before.proposed.proposal
    ids = [step.id for step in proposal.steps] if isinstance(proposal, NewSteps) else []
    said = assistant_turn(before).calls
    calls = [call for call in said if call.name != EFFECTS]
    for index, call in enumerate(calls):
        if situation.rejected:
            step_id = ids[index] if len(ids) == len(calls) and call.name != PROPOSE else None
            text = prompts.rejected_call(situation.rejected, step_id, is_first=not index)
            yield ToolResult(call.id, text, is_error=True)
        elif call.name == PROPOSE:
            yield _call_result(call.id, situation.planned, situation)
        elif index < len(ids):
            records = [record for record in situation.records if record.step.id == ids[index]]
            yield _call_result(call.id, records, situation)
        elif words := _replies(before, situation):
            yield ToolResult(call.id, "\n".join(map(prompts.said_by_person, words)))
        else:
            yield ToolResult(call.id, prompts.TASK_ENDED)
    # A call that plans effects is no step.
    note = prompts.NOT_CARRIED_OUT if situation.rejected else prompts.EFFECTS_NOTED
    yield from (ToolResult(call.id, note, is_error=bool(situation.rejected)) for call in said if call not in calls)


def _replies(before: RecordedTurn, situation: Situation) -> list[Word]:
    """The answers to the question that the model asked in the turn `before`; empty if it asked none."""
    is_question = isinstance(before.proposed.proposal, Question)
    return [word for word in situation.words if word.question] if is_question else []


def _untold(before: RecordedTurn | None, situation: Situation) -> list[Word]:
    """What people said, except replies that are sent to the model as the result of the call that asked for them."""
    replies = _replies(before, situation) if before and assistant_turn(before).calls else []
    return [word for word in situation.words if word not in replies]


def _call_result(call_id: str, records: Sequence[StepRecord], situation: Situation) -> ToolResult:
    faults = {fault.step_id: fault for fault in situation.faults}
    text = "\n".join(_step_outcome(record, faults.get(record.step.id), situation.shown) for record in records)
    is_error = any(record.status is not StepStatus.COMPLETED for record in records)
    return ToolResult(call_id, text or prompts.NOT_CARRIED_OUT, is_error)


def _step_outcome(record: StepRecord, fault: FaultRecord | None, max_shown: int) -> str:
    id = record.step.id
    if record.edited:
        args = fenced("arguments", record.edited, min(max_shown, MAX_ARGS))
        id = f"A person changed arguments of {id} before it was called: {args}\n{id}"
    if record.status is StepStatus.COMPLETED:
        fallback = f" (by {record.kind}, in place of {record.step.kind})" if record.is_fallback else ""
        return f"{id} is finished{fallback}. {_result(record, max_shown)}"
    if record.status is StepStatus.FAILED and fault is not None:
        return _rejection(id, fault, max_shown)
    state = f"{id} {STATES.get(record.status, 'is not finished')}."
    is_unknown = record.status is StepStatus.CANCELLED and record.attempts and record.effect is not Effect.READ
    return f"{state} {prompts.EFFECT_NOTES['unknown']}" if is_unknown else state


def _result(record: StepRecord, max_shown: int) -> str:
    if record.left_out:
        return f"Its result of {record.left_out} bytes is too large to be shown; steps cannot refer to it."
    repeated = f"\n{REPEATED_NOTICE}" if record.unchanged else ""
    return f"Its result:\n{fenced(record.step.id, record.result, max_shown)}{repeated}"


def _rejection(id: str, fault: FaultRecord, max_shown: int) -> str:
    text = f"{id} was refused ({fault.code}). The reason:\n{fenced(id, fault.reason, max_shown)}"
    if fault.observed is not None:
        text += f"\nWhat it saw:\n{fenced(id, fault.observed, max_shown)}"
    elif fault.words:
        text += f"\nThe service's words:\n{fenced(id, fault.words, max_shown)}"
    if fault.applied is not Applied.NONE:
        return f"{text}\n{prompts.EFFECT_NOTES[fault.applied]}"
    if fault.quadrant.is_transient:
        return f"{text}\nIts retries are used up: use another kind, or do without it."
    if fault.by_id:
        return f"{text}\nThe same call may be made under another id."
    return f"{text}\nThe same call would be refused again: change it by what was seen, or use another kind."


def _earlier_turns(past: Sequence[RecordedTurn], new: Situation | None = None) -> Iterator[Turn]:
    """Yield the turns of the conversation; the first turn after the summarised turns contains the newest summary."""
    summary = max((index for index, turn in enumerate(past) if turn.is_summary), default=-1)
    for number, (index, turn) in enumerate(_not_summarised(past)):
        user_message = _user_turn_of(past, index)
        is_opening = summary >= 0 and not number
        yield _with_summary(user_message, past[summary], _goal(past, index, new)) if is_opening else user_message
        yield replace(assistant_turn(turn), follows_summary=index < summary)


def _not_summarised(past: Sequence[RecordedTurn]) -> list[tuple[int, RecordedTurn]]:
    first = max((turn.upto for turn in past), default=0)
    return [(index, turn) for index, turn in enumerate(past) if index >= first and not turn.is_summary]


def _user_turn_of(past: Sequence[RecordedTurn], index: int) -> UserTurn:
    turn = past[index]
    return turn.exchange.told if turn.exchange else user_turn(_last_turn(past[:index]), turn.situation)


def _last_turn(past: Sequence[RecordedTurn]) -> RecordedTurn | None:
    return next((turn for turn in reversed(past) if not turn.is_summary), None)


def _goal(past: Sequence[RecordedTurn], index: int, new: Situation | None) -> Situation | None:
    """The newest situation with the task's text in `past` and `new`; None unless it is before the turn `index`."""
    later = [*(turn.situation for turn in past[index:]), *([new] if new else [])]
    if any(situation.text for situation in later):
        return None
    return next(turn.situation for turn in reversed(past[:index]) if turn.situation.text)


def _with_summary(turn: UserTurn, summary: RecordedTurn, goal: Situation | None) -> UserTurn:
    # The results in `turn` answer calls that the summary replaced, so only the errors are kept, as text.
    words = summary.exchange.said.text if summary.exchange else ""
    errors = [result.text for result in turn.results if result.is_error]
    parts = [
        *([remove_hidden(prompts.task_text(goal))] if goal else []),
        f"{prompts.SUMMARISED}\n{fenced('summary', words, NEVER_CUT)}",
        *([prompts.OPEN_ERRORS, *errors] if errors else []),
        turn.text,
    ]
    return UserTurn("\n".join(filter(None, parts)))


def _without_closing(turn: Turn, closings: Iterable[str]) -> Turn:
    """The turn without its closing lines (time, calls left), which were true only when it was sent."""
    closing = next((line for line in closings if turn.text.endswith(line)), "")
    return replace(turn, text=turn.text.removesuffix(closing).strip())


def _lines(turn: Turn) -> Iterator[str]:
    if isinstance(turn, UserTurn):
        yield from (f"Result: {result.text}" for result in turn.results)
    else:
        yield from (f"Call: {fenced(call.name, call.args)}" for call in turn.calls)
    if turn.text:
        yield f"Told: {turn.text}" if isinstance(turn, UserTurn) else f"Said: {fenced('words', turn.text)}"
