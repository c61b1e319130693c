"""A whole situation and the turns that led to it, each made of the other."""

from collections.abc import Iterable, Sequence

from activities.llm.exchange import Past
from workflows.plan import GiveUp, NewSteps, Proposed
from workflows.record import StepRecord
from workflows.situation import Situation


def whole(past: Iterable[Past], task: str, news: Situation) -> Situation:
    """All that a task has come to, for a planner that keeps no conversation.

    `task` is the first run of the task, since `past` may begin with turns of another one; what is told with the text
    was left by that one, too.
    """
    told = [*(one.situation for one in past if one.task == task and not one.is_summary), news]
    own = [situation for situation in told if not situation.text]
    earlier = {record.step.id: record for situation in told for record in situation.earlier}
    records = earlier | {record.step.id: record for situation in own for record in situation.planned}
    first = {"text": told[0].text, "result_schema": told[0].result_schema, "documents": told[0].documents}
    faults = tuple(fault for situation in own for fault in situation.faults)
    return news.model_copy(update={**first, "records": tuple(records.values()), "faults": faults})


def split(situation: Situation) -> tuple[list[Past], Situation]:
    """The turns of a task whose situation is told as a whole, and what is new in it: one turn for each plan."""
    plans = dict[int, list[StepRecord]]()
    for record in sorted(situation.planned, key=lambda record: record.revision):
        plans.setdefault(record.revision, []).append(record)
    nothing: dict[str, object] = {"records": (), "faults": (), "observations": (), "rejected": ()}
    past, news = list[Past](), situation.model_copy(update={**nothing, "records": situation.earlier})
    for number, records in plans.items():
        past.append(Past("", 0, number, news, _planned(records)))
        told = {"text": "", "records": tuple(records), "faults": _of(situation, records)}
        news = news.model_copy(update=told)
    news = news.model_copy(update={"observations": situation.observations})
    if not situation.rejected:
        return past, news
    unusable = Proposed(proposal=GiveUp(reason="an answer that could not be used"))
    past.append(Past("", 0, len(plans) + 1, news, unusable))
    return past, news.model_copy(update={**nothing, "text": "", "rejected": situation.rejected})


def _planned(records: Sequence[StepRecord]) -> Proposed:
    return Proposed(proposal=NewSteps(steps=tuple(record.step for record in records)))


def _of(situation: Situation, records: Sequence[StepRecord]) -> tuple[object, ...]:
    ids = {record.step.id for record in records}
    return tuple(fault for fault in situation.faults if fault.step_id in ids)
