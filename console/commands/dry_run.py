"""`start --dry-run`: the first plan of a task, what it would change, and what of that can be undone."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from temporalio.client import Client

from client import document
from client.problem import Problem
from client.schemas import Schema, with_numbers
from client.text import cut, one_line
from client.wording import count
from client.workers import OLD_WORKER, ask, tools_of
from console.exits import Exit
from console.options import Common
from console.render.terminal import print_lines
from workflows.account.outcome import Ending, ending_of_unasked_question
from workflows.account.task import Task, TaskStatus
from workflows.faults.retries import PROFILES
from workflows.inquiries import ApprovalNeed, ApprovalsInquiry, Draft, PlanInquiry, PlannedStep
from workflows.json_values import canonical, text_of
from workflows.plans.catalogue import ALWAYS, EVERY_CALL, WHY_OF_TASK, Effect, ToolSpec
from workflows.plans.graph import ready_steps
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question, Step
from workflows.plans.references import is_reference
from workflows.text import without_repeats

MAX_ARGUMENTS = 400
"""The most terminal cells that the arguments of a step take; the rest is cut off."""
NOT_RUN = "nothing was run"
NO_SCHEMAS: Mapping[str, Schema] = {}


def ending_of(draft: Draft) -> Ending:
    """How the task would end with this proposal; RUNNING if the proposal has steps."""
    match draft.proposal:
        case Answer(result=result):
            return Ending(status=TaskStatus.COMPLETED, result=result)
        case Question():
            return ending_of_unasked_question(draft.proposal)
        case GiveUp(reason=reason):
            return Ending(status=TaskStatus.FAILED, reason=reason, code="gave_up")
        case _:
            return draft.ending or Ending(status=TaskStatus.RUNNING)


def draft_fields(task: Task, draft: Draft, ending: Ending) -> dict[str, Any]:
    """The fields of the document that `--dry-run --json` prints; the document is also a file for `--plan`."""
    steps = proposed(draft)
    return {
        "dry_run": True,
        "task": task.text,
        "documents": task.documents,
        "options": task.model_dump(
            mode="json",
            include={"strategy", "planner", "effort", "reply_tokens", "calls", "demonstrations", "result_schema"},
        ),
        "planner": draft.planner,
        "proposal": draft.proposal.type if draft.proposal else None,
        "because": draft.proposal.because if isinstance(draft.proposal, NewSteps) else "",
        **ending.model_dump(mode="json", include={"reason", "code", "question", "result"}),
        "question_options": ending.question_options,
        "steps": [step.model_dump(mode="json", exclude={"provider_call"}) for step in steps],
        "revisions": [revision.model_dump(mode="json") for revision in task.revisions],
        "effects": {
            step.id: {**_tool_fields(draft.specs[step.kind]), "approval": approval_of(step, draft, task).model_dump()}
            for step in steps
        },
    }


def draft_lines(task: Task, draft: Draft, ending: Ending, schemas: Mapping[str, Schema] = NO_SCHEMAS) -> list[str]:
    """The lines that `--dry-run` prints: the steps in the order of their needs, what each may change, and a summary.

    If there is no plan, the lines say why. `schemas` has the schemas of the arguments that are needed, by kind.
    """
    who = "The plan as it was written" if task.plan is not None else f"The plan of the {draft.planner} planner"
    if task.plan is None and task.strategy == "react":
        who = f"The first turn of the {draft.planner} planner, which continues with the results"
    match draft.proposal:
        case NewSteps(steps=steps, because=because):
            kinds = [without_repeats(step.id, step.kind, step.title)[0] for step in steps]
            widths = min(max(len(step.id) for step in steps), 14), min(max(map(len, kinds)), 20)
            asked = {step.id: approval_of(step, draft, task) for step in steps}
            lines = [
                line
                for step in in_order(steps)
                for line in _step_lines(
                    step, draft.specs[step.kind], asked[step.id], schemas.get(step.kind, {}), widths
                )
            ]
            why = [f"    {one_line(because)}"] if because else []
            written = count(len(task.revisions), "revision")
            later = [f"{written} for what comes next"] if task.revisions else []
            return [one_line(who), *why, *lines, *later, _summary_line(steps, draft.specs, asked)]
        case Answer(result=result):
            lines = text_of(result).splitlines()
            return [f"The {draft.planner} planner answers at once; {NOT_RUN}", *map(one_line, lines)]
        case GiveUp():
            return [one_line(f"The {draft.planner} planner gives up: {ending.reason}"), NOT_RUN.capitalize()]
        case _:
            return [one_line(ending.reason), NOT_RUN.capitalize()]


def approval_of(step: Step, draft: Draft, task: Task) -> ApprovalNeed:
    """Whether and why a person is asked before the call of this step: because of its tool, or because of the task."""
    spec = draft.specs[step.kind]
    declared = draft.approvals.get(step.id)
    if spec.approve == ALWAYS:
        return ApprovalNeed(asks="yes", why=EVERY_CALL)
    if declared and declared.asks == "yes":
        return declared
    if spec.needs_approval(task.approve):
        return ApprovalNeed(asks="yes", why=WHY_OF_TASK[task.approve])
    if spec.approve is None:
        return ApprovalNeed(asks="no")
    return declared or ApprovalNeed(asks="may", why=spec.asks or spec.approve)  # an older worker does not tell


def proposed(draft: Draft) -> tuple[Step, ...]:
    """The steps of the proposal; empty if the proposal is no plan."""
    return draft.proposal.steps if isinstance(draft.proposal, NewSteps) else ()


def in_order(steps: Sequence[Step]) -> list[Step]:
    """The steps in an order in which each step comes after the steps that it needs."""
    ordered, pending = list[Step](), list(steps)
    while batch := ready_steps(pending, [step.id for step in ordered]):
        ordered += batch
        pending = [step for step in pending if step not in batch]
    return ordered + pending  # steps whose needs are missing or form a circle


def shown_value(value: JsonValue) -> str:
    """An argument as JSON; a reference to the result of another step is shown as `hits.documents[0].name`."""
    if is_reference(value):
        parts = [part for part in str(value.get("path", "")).split(".") if part]
        return str(value["$from"]) + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in parts)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{canonical(key)}: {shown_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown_value, value)) + "]"
    return canonical(value)


def _tool_fields(spec: ToolSpec) -> dict[str, JsonValue]:
    return {
        "effect": spec.effect.value,
        "changes_world": spec.effect is not Effect.READ,
        "undo": spec.undo.kind if spec.undo else None,
        "observe": spec.observe.kind if spec.observe else None,
        "fallback": spec.fallback,
        "retry": spec.retry,
        "attempts": PROFILES[spec.retry].attempts,
    }


def _step_lines(step: Step, spec: ToolSpec, approval: ApprovalNeed, schema: Schema, widths: Sequence[int]) -> list[str]:
    def written(args: dict[str, JsonValue]) -> str:
        return ", ".join(f"{name}={shown_value(value)}" for name, value in args.items())

    arguments = with_numbers(written, step.args, schema)
    after = f"after {', '.join(sorted(step.dependencies))}" if step.dependencies else ""
    kind, title = without_repeats(step.id, step.kind, step.title)
    head = " ".join(filter(None, [step.id.ljust(widths[0]), kind.ljust(widths[1]), one_line(title)]))
    asks = {"yes": f"asks a person: {approval.why}", "may": f"may ask a person: if {approval.why}", "no": ""}
    facts = "; ".join(filter(None, [after, *_tool_facts(spec)]))
    lines = [cut(one_line(arguments), MAX_ARGUMENTS), facts, asks[approval.asks]]
    return [f"  {head.rstrip()}", *(f"    {one_line(line)}" for line in lines if line)]


def _tool_facts(spec: ToolSpec) -> list[str]:
    facts = ["reads only"]
    if spec.effect is not Effect.READ:
        undo = f"{spec.undo.kind} would undo it (by hand)" if spec.undo else "cannot be undone"
        facts = [f"changes the world ({spec.effect})", undo]
    facts += [f"{spec.observe.kind} observes after a rejection"] if spec.observe else []
    facts += [f"{spec.fallback} takes over when the attempts are used up"] if spec.fallback else []
    attempts = PROFILES[spec.retry].attempts
    return [*facts, "one attempt" if attempts == 1 else f"up to {attempts} attempts ({spec.retry})"]


def _summary_line(steps: Sequence[Step], specs: Mapping[str, ToolSpec], approvals: Mapping[str, ApprovalNeed]) -> str:
    changing = [step for step in steps if specs[step.kind].effect is not Effect.READ]
    final = [step.id for step in changing if specs[step.kind].undo is None]
    counted = count(len(steps), "step")
    sure, open = ([id for id, approval in approvals.items() if approval.asks == asks] for asks in ("yes", "may"))
    people = [f"{len(sure)} ask{'s' * (len(sure) == 1)} a person ({', '.join(sure)})"] if sure else []
    people += [f"{len(open)} may ask a person ({', '.join(open)})"] if open else []
    end = "; ".join([", ".join(people), NOT_RUN] if people else [NOT_RUN])
    if not changing:
        return f"{counted}: none changes the world; {end}"
    verb = "changes" if len(changing) == 1 else "change"
    changes = f"{len(changing)} {verb} the world ({', '.join(step.id for step in changing)})"
    undone = f"{len(final)} of these cannot be undone ({', '.join(final)})" if final else "each can be undone by hand"
    return f"{counted}: {changes}, {undone}; {end}"


async def show_plan(client: Client, task: Task, common: Common) -> int:
    """Ask a worker for the plan and print it; returns the exit code with which the task would end."""

    def wait() -> None:
        print("still waiting for the planner; Ctrl-C stops asking", file=sys.stderr)

    answer = await ask(client, common.queue, PlanInquiry(task=task), on_wait=wait)
    found, ending = await _with_approvals(client, answer.draft, common), ending_of(answer.draft)
    if common.json:
        print(document.of_anything(draft_fields(task, found, ending)))
    else:
        steps = proposed(found)
        tools = await tools_of(client, common.queue, (step.args for step in steps))
        print_lines(draft_lines(task, found, ending, {kind: card.args_schema for kind, card in tools.items()}))
    if ending.code in ("plan_refused", "task_refused"):
        return Exit.BAD_USAGE
    return {TaskStatus.FAILED: Exit.FAILED, TaskStatus.ESCALATED: Exit.NEEDS_PERSON}.get(ending.status, Exit.COMPLETED)


async def _with_approvals(client: Client, draft: Draft, common: Common) -> Draft:
    """The draft with a worker's `approvals`; as it is, if the worker is of an older version that cannot tell them."""
    steps = [step for step in proposed(draft) if draft.specs[step.kind].approve not in (None, ALWAYS)]
    calls = tuple(PlannedStep(step=step.id, kind=step.kind, args=step.args) for step in steps)
    if not calls:
        return draft
    try:
        found = await ask(client, common.queue, ApprovalsInquiry(calls=calls))
    except Problem as problem:
        if problem.code != OLD_WORKER:
            raise
        return draft
    return draft.model_copy(update={"approvals": found.approvals})
