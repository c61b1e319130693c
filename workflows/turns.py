"""One turn with the planner: what it is told, what that may cost, and the summary that comes before where it must."""

import asyncio
from collections.abc import Sequence

from pydantic import JsonValue
from temporalio import workflow

from workflows import routing
from workflows.call import Stuck, ask
from workflows.catalogue import Catalogue, ToolSpec
from workflows.cost import unshown
from workflows.details import summary
from workflows.faults import Code, Fault
from workflows.outcome import Ends
from workflows.plan import Answer, Proposed
from workflows.progress import Progress
from workflows.record import Compaction, Failover, FaultRecord, StepRecord
from workflows.situation import Situation
from workflows.spending import Allowance, cut_off, enough, reserve_turn, settle_turn, short_of, used_up
from workflows.task import TaskStatus

MAX_SITUATION = 1024 * 1024
"""Bytes; the server would terminate a workflow that schedules an activity with 2 MB."""
MAX_COMPACTIONS = 2
"""Summaries in a row, before one turn; if the conversation is still too long, no other one helps."""
MAX_FAILOVERS = 50
"""Planners that could not be used of which a task knows, the newest."""


async def take_turn(
    progress: Progress, catalogue: Catalogue, rejected: Sequence[str], *, is_last: bool = False
) -> Proposed:
    """Tell the planner what is new, and return what it says.

    Raises:
        Ends: it cannot be reached, cannot be told all of it, or the budget has no room for it.
    """
    for _ in range(1 + MAX_COMPACTIONS):
        progress.turn += 1
        spec = routing.REPLAN if progress.replanning else routing.PLAN
        situation = _situation(progress, catalogue, rejected, is_last=is_last)
        what, untold = _purpose(progress, rejected, is_last=is_last), progress.has_untold_effects
        proposed = await _asked(progress, catalogue, spec, situation, what)
        if not proposed.compact:
            _told(progress, catalogue, proposed)
            progress.has_untold_effects = progress.has_untold_effects and not untold
            return proposed
        await _compact(progress, catalogue, proposed)
    reason = f"{progress.planner}: the conversation is too long for the model, and a summary does not make it shorter."
    raise Ends(TaskStatus.ESCALATED, reason, Code.TOO_LARGE)


async def last_answer(progress: Progress, catalogue: Catalogue) -> JsonValue:
    """What a model answers from what is there, when nothing may be called any more; None where it does not."""
    if not catalogue.converses or not progress.is_opened:
        return None
    try:
        proposed = await take_turn(progress, catalogue, (), is_last=True)
    except Ends:
        return None
    is_usable = isinstance(proposed.proposal, Answer) and not proposed.rejected
    return proposed.proposal.result if is_usable and isinstance(proposed.proposal, Answer) else None


async def _compact(progress: Progress, catalogue: Catalogue, proposed: Proposed) -> None:
    """Have the oldest turns of the conversation summarised."""
    progress.turn += 1
    more = {"converses": True, "branch": progress.branch, "planner": progress.task.planner}
    situation = Situation(turn=progress.turn, now=workflow.now(), compact=proposed.compact, **more)
    what = summary(f"the {proposed.compact} oldest turns are summarised, since the conversation is long")
    done = await _asked(progress, catalogue, routing.COMPACT, situation, what)
    progress.compactions.append(
        Compaction(turn=progress.turn, turns=proposed.compact, planner=done.planner, tokens=progress.context)
    )
    progress.branch, progress.context = done.branch, progress.context // 2


async def _asked(progress: Progress, catalogue: Catalogue, spec: ToolSpec, situation: Situation, what: str) -> Proposed:
    payload = situation.model_dump(mode="json", exclude_defaults=situation.converses)
    size = len(situation.model_dump_json(exclude_defaults=situation.converses).encode())
    if size > MAX_SITUATION:
        reason = "What the planner would have to be told is too large: split the task, or let its tools return less."
        raise Ends(TaskStatus.ESCALATED, reason, "too_large")
    shown = size - unshown(_results(situation))
    while True:
        allowance = _reserved(progress, catalogue, shown, is_last=situation.is_last)
        told = {**payload, **{name: value for name, value in allowance.told.items() if value is not None}}
        try:
            return await _settled(progress, allowance, spec, told, what)
        except Stuck as stuck:
            if not stuck.fault.lost:  # else a shorter answer may still have room, beside those that were lost
                raise Ends(TaskStatus.ESCALATED, f"The planner: {stuck.fault.reason}", stuck.fault.code) from None


async def _settled(
    progress: Progress, allowance: Allowance, spec: ToolSpec, payload: dict[str, JsonValue], what: str
) -> Proposed:
    """Ask, and count what was used, whatever comes of it.

    Raises:
        Stuck: the planner cannot be reached, or answers were lost and the allowance has no room for another.
    """
    id = f"{'compact' if spec is routing.COMPACT else 'plan'}:{progress.turn}"
    number, waited = progress.revision + 1, list[Fault]()
    try:
        found = await ask(spec, payload, Proposed, id=id, summary=what, revision=number, waited=waited)
    except Stuck as stuck:
        settle_turn(progress, allowance, stuck.fault, waited)
        raise
    except asyncio.CancelledError:
        settle_turn(progress, allowance, cut_off(spec), waited)
        raise
    settle_turn(progress, allowance, found, waited)
    return found


def _reserved(progress: Progress, catalogue: Catalogue, shown: int, *, is_last: bool) -> Allowance:
    """What the budget sets aside for a request that is told `shown` bytes more.

    Raises:
        Ends: too little is left.
    """
    allowance = reserve_turn(progress, catalogue, shown, is_last=is_last)
    if allowance is None:
        limit = short_of(progress, catalogue, shown)
        more = enough(progress, catalogue, shown, limit)
        raise Ends(TaskStatus.OVER_BUDGET, used_up(progress.budget.limits, limit, more), limit)
    return allowance


def _results(situation: Situation) -> list[JsonValue]:
    return [*(one.result for one in situation.records), *(one.value for one in situation.observations)]


def _told(progress: Progress, catalogue: Catalogue, proposed: Proposed) -> None:
    """The planner knows all that it was told, and history who it is."""
    progress.planner = proposed.planner or progress.planner
    if catalogue.converses:
        progress.branch, progress.told, progress.is_opened = proposed.branch, progress.revision, True
    progress.context = proposed.context or progress.context
    for one in proposed.passed_over:
        known = [(last.planner, last.code) for last in progress.failovers]
        if (one.planner, one.code) not in known:
            progress.failovers.append(Failover(turn=progress.turn, **one.model_dump()))
    progress.failovers = progress.failovers[-MAX_FAILOVERS:]


def _purpose(progress: Progress, rejected: Sequence[str], *, is_last: bool) -> str:
    """What a request asks for, for the timeline of the web UI."""
    if is_last:
        return summary("the budget is used up: an answer from what is there")
    if rejected:
        return summary(f"the proposal was rejected: {rejected[0]}")
    if progress.replanning:
        refused = [
            f"{fault.step_id} was refused ({fault.code})" for fault in progress.faults if _is_latest(progress, fault)
        ]
        what = f"turn {progress.turn}" if progress.task.strategy == "react" else "a new plan"
        return summary(f"{what}, because {', '.join(refused)}")
    if progress.task.strategy == "react":
        return summary(f"turn {progress.turn}")
    return summary(f"plan {progress.revision} is done: what next?" if progress.revision else "a plan")


def _is_latest(progress: Progress, fault: FaultRecord) -> bool:
    return fault.decision == "replan" and fault.revision == progress.revision


def _situation(progress: Progress, catalogue: Catalogue, rejected: Sequence[str], *, is_last: bool) -> Situation:
    task = progress.task
    always = Situation(
        turn=progress.turn,
        plan=task.plan if progress.turn == 1 else None,
        now=workflow.now(),
        documents=task.documents,
        rejected=tuple(rejected),
        down=tuple(progress.down),
        is_tainted=progress.grants.is_tainted,
        withheld=tuple(progress.grants.withheld(catalogue.specs.values(), task.named)),
        calls_left=progress.budget.free,
        strategy=task.strategy,
        planner=task.planner,
        is_last=is_last,
    )
    return always.model_copy(update=_news(progress) if catalogue.converses else _all(progress))


def _all(progress: Progress) -> dict[str, object]:
    """What a planner is told that keeps nothing."""
    return {
        "text": progress.task.text,
        "records": tuple(progress.slim().records),
        "faults": tuple(fault for fault in progress.faults if fault.decision == "replan"),
        "observations": tuple(progress.observations),
        "omitted": len(progress.folded.ids),
    }


def _news(progress: Progress) -> dict[str, object]:
    """What a planner is told that keeps the conversation: the outcome of the newest plan and, once, the task."""
    found: dict[str, object] = {"converses": True, "branch": progress.branch}
    records: tuple[StepRecord, ...] = ()
    if not progress.is_opened:
        task = progress.task
        found |= {"text": task.text, "result_schema": task.result_schema, "continues": task.continues}
        if task.remains is not None:
            found |= {"faults": task.remains.faults}
            records = task.remains.records
    if progress.revision > progress.told:
        records = tuple(_brief(one) for one in progress.slim().records if one.revision > progress.told)
        found["faults"] = tuple(one for one in progress.faults if _is_latest(progress, one))
        found["observations"] = tuple(progress.observations) if progress.replanning else ()
    if progress.has_untold_effects:
        records = (*(_brief(one) for one in progress.slim().records if not one.revision), *records)
    return found | ({"records": records} if records else {})


def _brief(record: StepRecord) -> StepRecord:
    """What a planner needs of a step; the rest of it is history's."""
    kept = {"step", "revision", "effect", "status", "attempts", "kind", "args", "result", "left_out", "replayed"}
    kept |= {"unchanged", "undoes"}
    left_out = {name: field for name, field in StepRecord.model_fields.items() if name not in kept}
    unsaid = {name: field.get_default(call_default_factory=True) for name, field in left_out.items()}
    if record.args == record.step.args:
        unsaid["args"] = None
    return record.model_copy(update=unsaid)
