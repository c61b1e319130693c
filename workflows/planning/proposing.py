"""Asking the planner: for a proposal that may be run, for a summary of a long conversation, for a last answer.

Runs at the start of each turn: before the first plan, after a plan was completed or rejected, and when the budget is
used up.
"""

from collections.abc import Iterator, Sequence

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.account.entries_of_steps import Settled
from workflows.account.journal import ConversationCompacted, FailedOver, RejectedPlan, Replied, Requested, Turned
from workflows.account.outcome import TaskEnded
from workflows.account.progress import Progress
from workflows.account.records import Compaction, Failover, Rejection, WithheldCall
from workflows.account.task import Task, TaskStatus
from workflows.calls.asking import ask_planner
from workflows.calls.observing import is_repeat
from workflows.faults.fault import Code
from workflows.json_values import canonical
from workflows.limits.spending import limit_message
from workflows.planning import trust
from workflows.planning.situation import Situation, describe_situation
from workflows.plans import own_activities
from workflows.plans.catalogue import Catalogue, ToolSpec
from workflows.plans.contract import Contract
from workflows.plans.graph import check_graph
from workflows.plans.proposal import BY_HAND, MAX_BYTES, Answer, Mistake, NewSteps, Proposal, Proposed, Step
from workflows.plans.references import Unresolved, references, resolve
from workflows.text import nearest

MAX_COMPACTIONS = 2
"""How many times the conversation may be summarised before one turn; a further summary does not help."""
MAX_REASONS, MAX_REASON = 10, 300
"""How many reasons of a rejected proposal a task keeps, and how many characters of each."""
MAX_WITHHELD, MAX_WITHHELD_ARGS = 5, 2_000
"""How many withheld calls of a rejected proposal a task keeps, and how many characters of the arguments of each."""
MAX_REJECTIONS = 2
"""How many times a rejected proposal goes back to the planner before the task is escalated."""


def describe_opening(progress: Progress) -> Situation | None:
    """What the planner is told in the first turn of a task, before the task has its catalogue.

    None in a later turn, and if the planner must also be told of effects of earlier runs or an earlier conversation.
    """
    if progress.turn or progress.has_untold_effects or progress.task.continues:
        return None
    first, plan = progress.model_copy(update={"turn": 1}), progress.task.plan
    unknown = Catalogue(specs={}, planner="", patience=0, converses=True)  # all that a planner may need is told
    opening = describe_situation(first, unknown, (), written=None if plan is None else NewSteps(steps=plan))
    # A reset may repeat the turn later, and its plan must stay the same.
    return opening.model_copy(update={"now": progress.started_at})


async def propose(progress: Progress, catalogue: Catalogue) -> tuple[Proposal, Contract]:
    """Return the next proposal, checked, with the contract of the task if it is accepted.

    It is what a person wrote for this turn, else what the planner proposes.

    Raises:
        TaskEnded: the hand-written plan cannot be run, the planner cannot be reached, or its proposals cannot be run.
    """
    written = _take_written(progress)
    if isinstance(written, Answer):
        written = _with_results(written, progress)
    if written is not None and not isinstance(written, NewSteps):
        return written, progress.contract
    rejected: Sequence[Mistake] = ()
    withheld: Sequence[WithheldCall] = ()
    for _ in range(1 + MAX_REJECTIONS):
        proposed = await _take_turn(progress, catalogue, rejected, written=written)
        reviewed = trust.review(progress, catalogue, proposed, by_user=written is not None)
        rejected = [*proposed.rejected, *check(proposed, progress, catalogue, reviewed, is_written=written is not None)]
        if written and progress.turn == 1:
            rejected += _unknown_sources(progress.task)
        if not rejected:
            is_bound = isinstance(proposed.proposal, NewSteps) and reviewed is not None
            return written or proposed.proposal, reviewed.accepted() if reviewed and is_bound else progress.contract
        withheld = _withheld_calls(proposed.proposal, reviewed)
        _record_rejection(progress, rejected, withheld)
        if written:  # a person wrote it, so it does not go back to a planner
            raise TaskEnded(TaskStatus.FAILED, _why_refused(progress.task, rejected), "plan_refused", rejected)
        # Without a tool call that is left, further steps would be rejected, too.
        if catalogue.converses and not progress.budget.free:
            break
    if not progress.budget.free:
        reason = f"The planner asks for more. {limit_message(progress.budget.limits, 'tool_calls')}"
        raise TaskEnded(TaskStatus.OVER_BUDGET, reason, "tool_calls")
    last = _mistakes_sentence(rejected)
    reason = f"The planner made {1 + MAX_REJECTIONS} proposals that cannot be run; the last: {last}"
    reason += " Untrusted content that the task read may have ordered it." if withheld else ""
    raise TaskEnded(TaskStatus.ESCALATED, reason, "proposals_rejected", rejected)


def _why_refused(task: Task, rejected: Sequence[Mistake]) -> str:
    """The reason for the end of a task: its hand-written plan, or its call of one tool, has the mistakes `rejected`."""
    if not task.is_call:
        return f"The plan was rejected: {_mistakes_sentence(rejected)}"
    # A person who calls one tool has written no step.
    return f"The call was rejected: {_mistakes_sentence(rejected).removeprefix(f'step {rejected[0].step!r}: ')}"


def _mistakes_sentence(rejected: Sequence[Mistake]) -> str:
    sentence = "; ".join(map(str, rejected))
    return sentence if sentence.endswith("?") else f"{sentence}."


def _take_written(progress: Progress) -> Proposal | None:
    """Take what a person wrote for the turn that begins; return None if the planner must be asked."""
    task = progress.task
    if not progress.turn:
        return NewSteps(steps=task.plan) if task.plan is not None else None
    # A plan that finished needs none of those that were written for a rejection.
    fitting = (
        (number, revision)
        for number, revision in enumerate(task.revisions[progress.revisions_taken :], progress.revisions_taken + 1)
        if isinstance(revision, Answer) is not progress.replanning
    )
    taken, written = next(fitting, (len(task.revisions), None))
    if taken != progress.revisions_taken:
        progress.write(Turned(turn=progress.turn, taken=taken))
    return written


def _with_results(written: Answer, progress: Progress) -> Answer | None:
    """The answer with results in place of references; None if a reference has no target, or the answer is too large."""
    try:
        answer = Answer(result=resolve(written.result, progress.results))
    except Unresolved:  # its step was replaced by another, or has another result than was expected
        return None
    return answer if len(canonical(answer.result).encode()) <= MAX_BYTES else None


def _unknown_sources(task: Task) -> Iterator[Mistake]:
    """The mistakes in the references of hand-written answers: each must name a step of an earlier hand-written plan."""
    known = {step.id for step in task.plan or ()}
    for number, (revision, steps) in enumerate(zip(task.revisions, task.later_plans, strict=True)):
        sources = sorted(set(references(revision.result)) - known) if isinstance(revision, Answer) else ()
        for id in sources:
            text = f"revisions.{number}: the answer refers to {id!r}, which does not exist{nearest(id, known)}"
            yield Mistake(text=text)
        known |= {step.id for step in steps}


async def last_answer(progress: Progress, catalogue: Catalogue) -> Answer | None:
    """Ask the model for a final answer from the results so far, without tool calls; return None if it gives none."""
    if not catalogue.converses or not progress.is_opened:
        return None
    try:
        proposed = await _take_turn(progress, catalogue, (), is_last=True)
    except TaskEnded:
        return None
    return proposed.proposal if isinstance(proposed.proposal, Answer) and not proposed.rejected else None


async def _take_turn(
    progress: Progress,
    catalogue: Catalogue,
    rejected: Sequence[Mistake],
    *,
    written: NewSteps | None = None,
    is_last: bool = False,
) -> Proposed:
    """Ask the planner for one proposal; if the conversation is too long, first have the planner summarise it."""
    for _ in range(1 + MAX_COMPACTIONS):
        spec = own_activities.REPLAN if progress.replanning else own_activities.PLAN
        is_untrusted = trust.taints(progress, is_unread=written is None and bool(catalogue.unread))
        _request(progress, spec, is_untrusted=is_untrusted)
        situation = describe_situation(progress, catalogue, rejected, written=written, is_last=is_last)
        # a signal may bring more earlier effects while the planner works; it is not told of those in this turn
        had_untold_effects, sent = progress.has_untold_effects, len(progress.words)
        proposed = catalogue.opening if progress.turn == 1 and not had_untold_effects else None
        if proposed is None:
            title = _title(progress, rejected, is_last=is_last)
            proposed = await ask_planner(progress, catalogue, spec, situation, title=title)
        else:
            progress.write(Settled(proof=ids.of_request(1), source=spec.kind, taken=1))
            if written is not None and not proposed.rejected:
                proposed = proposed.model_copy(update={"proposal": written})
        catalogue.take_over(proposed.specs)
        if not proposed.compact:
            _record_turn(progress, catalogue, proposed, sent, had_untold_effects, is_written=written is not None)
            return proposed
        await _summarise_oldest(progress, catalogue, proposed.compact)
    reason = f"{progress.planner}: the conversation is too long for the model, and a summary does not make it shorter."
    raise TaskEnded(TaskStatus.ESCALATED, reason, Code.TOO_LARGE)


def _request(progress: Progress, spec: ToolSpec, *, is_untrusted: bool = False) -> None:
    turn = progress.turn + 1
    id = ids.of_request(turn, is_compaction=spec is own_activities.COMPACT)
    progress.write(Requested(proof=id, turn=turn, source=spec.kind, is_untrusted=is_untrusted))


async def _summarise_oldest(progress: Progress, catalogue: Catalogue, turns: int) -> None:
    _request(progress, own_activities.COMPACT)
    situation = Situation(
        turn=progress.turn,
        now=workflow.now(),
        compact=turns,
        converses=True,
        branch=progress.branch,
        planner=progress.task.planner,
    )
    title = f"the {turns} oldest turns are summarised, since the conversation is long"
    done = await ask_planner(progress, catalogue, own_activities.COMPACT, situation, title=title)
    compaction = Compaction(turn=progress.turn, turns=turns, planner=done.planner, tokens=progress.context)
    id = ids.of_request(progress.turn, is_compaction=True)
    progress.write(ConversationCompacted(proof=id, compaction=compaction, branch=done.branch))


def _record_turn(
    progress: Progress, catalogue: Catalogue, proposed: Proposed, sent: int, tells_effects: bool, *, is_written: bool
) -> None:
    """Record which plan the planner knows now, which planner answered, and which planners could not be used."""
    proof = ids.of_request(progress.turn)
    is_report = isinstance(proposed.proposal, Answer) and not proposed.model_calls
    # Rules only put the results of a hand-written plan together.
    is_by_rules = is_report and progress.planner == BY_HAND
    reply = Replied(
        proof=proof,
        planner="" if is_by_rules else proposed.planner,
        converses=catalogue.converses,
        branch=proposed.branch,
        context=proposed.context,
        words=sent,
        tells_effects=tells_effects,
        # Another worker than that of the catalogue may have been asked, with other tools.
        is_untrusted=trust.taints(progress, is_unread=not is_written and proposed.origins is not None),
    )
    progress.write(reply)
    # A planner that is down is passed over in each turn, and noted once.
    for failover in proposed.passed_over:
        if (failover.planner, failover.code) not in [(last.planner, last.code) for last in progress.failovers]:
            progress.write(FailedOver(proof=proof, failover=Failover(turn=progress.turn, **failover.model_dump())))


def _title(progress: Progress, rejected: Sequence[Mistake], *, is_last: bool) -> str:
    is_react = progress.task.strategy == "react"
    if is_last:
        return "the budget is used up: an answer from what is there"
    if rejected:
        return f"the proposal was rejected: {rejected[0]}"
    if progress.replanning:
        faults = [f"{fault.step_id} was rejected ({fault.code})" for fault in progress.rejecting_faults]
        return f"{f'turn {progress.turn}' if is_react else 'a new plan'}, because {', '.join(faults)}"
    if is_react:
        return f"turn {progress.turn}"
    return f"plan {progress.revision} is done: what next?" if progress.revision else "a plan"


def _record_rejection(progress: Progress, reasons: Sequence[Mistake], withheld: Sequence[WithheldCall]) -> None:
    kept = reasons[:MAX_REASONS]
    cut, steps = tuple(str(mistake)[:MAX_REASON] for mistake in kept), tuple(mistake.step for mistake in kept)
    rejection = Rejection(
        turn=progress.turn, reasons=cut, steps=steps if any(steps) else (), withheld=tuple(withheld[:MAX_WITHHELD])
    )
    progress.write(RejectedPlan(proof=ids.of_request(progress.turn), rejection=rejection, mistakes=len(reasons)))


def _withheld_calls(proposal: Proposal, reviewed: trust.Review | None) -> list[WithheldCall]:
    steps = proposal.steps if isinstance(proposal, NewSteps) else ()
    outside = reviewed.outside if reviewed else {}
    return [WithheldCall(step=step.id, kind=step.kind, args=_shown_args(step)) for step in steps if step.id in outside]


def _shown_args(step: Step) -> JsonValue:
    whole = canonical(step.args)
    return step.args if len(whole) <= MAX_WITHHELD_ARGS else f"{whole[:MAX_WITHHELD_ARGS]}…"


def check(
    proposed: Proposed,
    progress: Progress,
    catalogue: Catalogue,
    reviewed: trust.Review | None = None,
    *,
    is_written: bool = False,
) -> list[Mistake]:
    """The mistakes because of which a proposal, which fits the schemas of the tools, may not be run.

    `reviewed`: a call outside the contract of the task is a mistake if nobody can approve it. `is_written`: a person
    wrote the proposal, and may repeat calls.
    """
    proposal = proposed.proposal
    if not isinstance(proposal, NewSteps):
        return []
    if not proposal.steps:
        return [Mistake(text="the plan has no steps: propose at least one, or the answer")]
    mistakes = check_graph(proposal.steps, progress.results, progress.taken)
    if len(proposal.steps) > progress.budget.free:
        text = f"{len(proposal.steps)} steps, but only {progress.budget.free} tool calls are left"
        mistakes.append(Mistake(text=text))
    # The activity has named a mistake in these steps already.
    known = {mistake.step for mistake in proposed.rejected}
    refused = reviewed.outside if reviewed and progress.task.on_escalation != "wait" else {}
    outside = {id: f": {why}: {trust.OUTSIDE}" for id, why in refused.items()}
    for step in proposal.steps:
        if step.id not in known:
            text = _step_mistake(step, progress, catalogue, is_written) or outside.get(step.id, "")
            mistakes += [Mistake(text=f"step {step.id!r}{text}", step=step.id)] if text else []
    return mistakes


def _step_mistake(step: Step, progress: Progress, catalogue: Catalogue, is_written: bool) -> str:
    """The mistake in a step, as the end of a sentence that begins with the step's id; empty if the step may run."""
    if step.kind not in catalogue.specs:
        return f": this task has no kind {step.kind!r}"
    if step.kind in progress.down:
        return f": {step.kind} is down, its retries are used up: use another kind"
    if not step.dependencies <= set(progress.results):
        return ""  # its arguments are known, and so checked again, when it starts
    try:
        args = resolve(step.args, progress.results)
    except Unresolved as missing:
        return f": {missing}"
    if isinstance(args, dict) and is_repeat(progress, step.kind, args):
        return " repeats a call that failed, and nothing has changed since: change the call"
    sent, changes = len(progress.words), progress.effects
    if (
        not is_written
        and isinstance(args, dict)
        and progress.loops.refuses(step.kind, args, changes=changes, sent=sent)
    ):
        return " makes the same call for the third time, and nothing changes: do something else"
    return ""
