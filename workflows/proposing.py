"""Getting a proposal that may be run: ask, check, and send back what cannot be run with the reasons."""

from collections.abc import Sequence

from temporalio import workflow

from workflows import routing
from workflows.call import Stuck, ask
from workflows.catalogue import Catalogue
from workflows.details import summary
from workflows.plan import NewSteps, Proposal, Proposed, Step, Unresolved, check_graph, resolve
from workflows.task import Ends, FaultRecord, Progress, Situation, TaskStatus

MAX_REJECTIONS = 2
"""How often a rejected proposal goes back to the planner before a person is asked."""
MAX_SITUATION = 1024 * 1024
"""Bytes; the server would terminate a workflow that schedules an activity with 2 MB."""


async def propose(progress: Progress, catalogue: Catalogue) -> Proposal:
    """Return the planner's next proposal, checked.

    Raises:
        Ends: the hand-written plan was refused, the planner cannot be reached, or made no proposal that can be run.
    """
    rejected: Sequence[str] = ()
    for _ in range(1 + MAX_REJECTIONS):
        by_hand = progress.turn == 0 and progress.task.plan is not None
        proposed = await _request(progress, rejected)
        rejected = _all_reasons(proposed, check(proposed.proposal, progress, catalogue))
        if not rejected:
            return proposed.proposal
        workflow.logger.info("decision", extra={"decision": "proposal_rejected", "reasons": len(rejected)})
        if by_hand:
            raise Ends(TaskStatus.FAILED, f"The plan was refused: {'; '.join(rejected)}.", "plan_refused")
    if not progress.budget.free:
        limit = progress.budget.limits.tool_calls
        raise Ends(
            TaskStatus.OVER_BUDGET, f"All {limit} tool calls are used up, and the planner asks for more.", "tool_calls"
        )
    reason = f"The planner made {1 + MAX_REJECTIONS} proposals that cannot be run; the last: {'; '.join(rejected)}."
    raise Ends(TaskStatus.ESCALATED, reason, "proposals_rejected")


def _all_reasons(proposed: Proposed, ours: Sequence[str]) -> list[str]:
    """What the activity found, and what we found of steps that it had nothing against."""
    named = {reason.partition(":")[0] for reason in proposed.rejected}
    return [*proposed.rejected, *(reason for reason in ours if reason.partition(":")[0] not in named)]


def check(proposal: Proposal, progress: Progress, catalogue: Catalogue) -> list[str]:
    """Say why the workflow may not run a proposal; the kinds' schemas were checked by the planner's activity."""
    if not isinstance(proposal, NewSteps):
        return []
    if not proposal.steps:
        return ["the plan has no steps: propose at least one, or the answer"]
    reasons = check_graph(proposal.steps, progress.results, progress.taken)
    if len(proposal.steps) > progress.budget.free:
        reasons.append(f"{len(proposal.steps)} steps, but only {progress.budget.free} tool calls are left")
    for step in proposal.steps:
        reasons += _check_step(step, progress, catalogue)
    return reasons


def _check_step(step: Step, progress: Progress, catalogue: Catalogue) -> list[str]:
    if step.kind not in catalogue.specs:
        return [f"step {step.id!r}: this task has no kind {step.kind!r}"]
    if step.kind in progress.down:
        return [f"step {step.id!r}: {step.kind} is down, its retries are used up: use another kind"]
    if not step.dependencies <= set(progress.results):
        return []  # its arguments are known, and so checked again, when it starts
    try:
        args = resolve(step.args, progress.results)
    except Unresolved as missing:
        return [f"step {step.id!r}: {missing}"]
    if isinstance(args, dict) and progress.guard.refuses(step.kind, args, progress.effects):
        return [f"step {step.id!r} repeats a call that failed, and nothing has changed since: change the call"]
    return []


async def _request(progress: Progress, rejected: Sequence[str]) -> Proposed:
    progress.turn += 1
    spec = routing.REPLAN if progress.replanning else routing.PLAN
    situation = _situation(progress, rejected)
    if len(situation.model_dump_json().encode()) > MAX_SITUATION:
        reason = "What the planner would have to be told is too large: split the task, or let its tools return less."
        raise Ends(TaskStatus.ESCALATED, reason, "too_large")
    id, payload = f"plan:{progress.turn}", situation.model_dump(mode="json")
    what = summary(_purpose(progress, rejected))
    try:
        proposed = await ask(spec, payload, Proposed, id=id, summary=what, revision=progress.revision + 1)
    except Stuck as stuck:
        raise Ends(TaskStatus.ESCALATED, f"The planner: {stuck.fault.reason}", stuck.fault.code) from None
    progress.planner = proposed.planner or progress.planner
    progress.budget.spent.model_calls += proposed.model_calls
    progress.budget.spent.tokens += proposed.tokens
    return proposed


def _purpose(progress: Progress, rejected: Sequence[str]) -> str:
    """What a request asks for, for the timeline of the web UI."""
    if rejected:
        return f"the proposal was rejected: {rejected[0]}"
    if progress.replanning:
        refused = [
            f"{fault.step_id} was refused ({fault.code})" for fault in progress.faults if _is_latest(progress, fault)
        ]
        return f"a new plan, because {', '.join(refused)}"
    return f"plan {progress.revision} is done: what next?" if progress.revision else "a plan"


def _is_latest(progress: Progress, fault: FaultRecord) -> bool:
    return fault.decision == "replan" and fault.revision == progress.revision


def _situation(progress: Progress, rejected: Sequence[str]) -> Situation:
    task = progress.task
    return Situation(
        text=task.text,
        plan=task.plan if progress.turn == 1 else None,
        turn=progress.turn,
        now=workflow.now(),
        documents=task.documents,
        records=tuple(progress.slim().records),
        faults=tuple(fault for fault in progress.faults if fault.decision == "replan"),
        observations=tuple(progress.observations),
        rejected=tuple(rejected),
        down=tuple(progress.down),
        calls_left=progress.budget.free,
        omitted=len(progress.folded.ids),
    )
