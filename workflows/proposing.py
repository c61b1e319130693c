"""Getting a proposal that may be run: ask, check, and send back what cannot be run with the reasons."""

from collections.abc import Sequence

from temporalio import workflow

from workflows.catalogue import Catalogue
from workflows.grants import refusal
from workflows.outcome import Ends
from workflows.plan import NewSteps, Proposal, Proposed, Step, Unresolved, check_graph, resolve
from workflows.progress import Progress
from workflows.record import Rejection
from workflows.spending import used_up
from workflows.task import TaskStatus
from workflows.turns import take_turn

MAX_NOTED, MAX_REASONS, MAX_REASON = 20, 3, 300
"""Rejected proposals of which a task knows, reasons of each, and characters of one."""
MAX_REJECTIONS = 2
"""How often a rejected proposal goes back to the planner before a person is asked."""


async def propose(progress: Progress, catalogue: Catalogue) -> Proposal:
    """Return the planner's next proposal, checked.

    Raises:
        Ends: the hand-written plan was refused, the planner cannot be reached, or made no proposal that can be run.
    """
    rejected: Sequence[str] = ()
    for _ in range(1 + MAX_REJECTIONS):
        by_hand = progress.turn == 0 and progress.task.plan is not None
        proposed = await take_turn(progress, catalogue, rejected)
        rejected = _all_reasons(proposed, check(proposed.proposal, progress, catalogue))
        if not rejected:
            _grant(proposed.proposal, progress, catalogue)
            return proposed.proposal
        workflow.logger.info("decision", extra={"decision": "proposal_rejected", "reasons": len(rejected)})
        _note(progress, rejected)
        if by_hand:
            raise Ends(TaskStatus.FAILED, f"The plan was refused: {'; '.join(rejected)}.", "plan_refused")
        is_empty = progress.task.strategy == "react" and not isinstance(proposed.proposal, NewSteps)
        if is_empty and progress.budget.free > 0:
            progress.budget.spent.tool_calls += 1  # a turn without a call or an answer must not go on for ever, either
        if catalogue.converses and not progress.budget.free:
            break
    if not progress.budget.free:
        reason = f"The planner asks for more. {used_up(progress.budget.limits, 'tool_calls')}"
        raise Ends(TaskStatus.OVER_BUDGET, reason, "tool_calls")
    reason = f"The planner made {1 + MAX_REJECTIONS} proposals that cannot be run; the last: {'; '.join(rejected)}."
    raise Ends(TaskStatus.ESCALATED, reason, "proposals_rejected")


def _note(progress: Progress, reasons: Sequence[str]) -> None:
    """Keep what was refused for whoever asks why the task did not do it."""
    cut = tuple(reason[:MAX_REASON] for reason in reasons[:MAX_REASONS])
    progress.rejections = [*progress.rejections, Rejection(turn=progress.turn, reasons=cut)][-MAX_NOTED:]


def _grant(proposal: Proposal, progress: Progress, catalogue: Catalogue) -> None:
    if isinstance(proposal, NewSteps):
        progress.grants.plan([step.kind for step in proposal.steps], catalogue.specs)


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
    if progress.grants.withholds(catalogue.specs[step.kind], progress.task.named):
        return [f"step {step.id!r}: {refusal(step.kind)}"]
    if not step.dependencies <= set(progress.results):
        return []  # its arguments are known, and so checked again, when it starts
    try:
        args = resolve(step.args, progress.results)
    except Unresolved as missing:
        return [f"step {step.id!r}: {missing}"]
    if isinstance(args, dict) and progress.guard.refuses(step.kind, args, progress.effects):
        return [f"step {step.id!r} repeats a call that failed, and nothing has changed since: change the call"]
    now = {"revision": progress.revision, "changes": progress.effects}
    if isinstance(args, dict) and progress.loops.refuses(step.kind, args, **now):
        return [f"step {step.id!r} makes the same call for the third time, and nothing changes: do something else"]
    return []
