"""What a person can do about a task that cannot go on, or that ended without being completed.

Runs at the end of an explanation, when all deviations are explained.
"""

from collections.abc import Iterator, Mapping

from client.effects import add_reset_point
from client.explain import prose
from client.explain.prose import Sentence, said
from client.history.story import Story
from client.remedy import Argument, Remedy, Text
from client.wording import withheld_calls
from workflows import ids
from workflows.account.metrics import PLANNERS
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Code
from workflows.limits.budget import LIMITS
from workflows.text import capitalised

OF_FAULT: Mapping[Code, str] = {
    Code.TIMEOUT: "If it happens often, give the tool a longer `timeout=`, or ask it for less.",
    Code.UNREACHABLE: "Check that the service is up, and that the worker's machine can reach it.",
    Code.SERVER_ERROR: "Nothing, unless it stays; then ask the operator of the service.",
    Code.OVERLOADED: "Nothing, unless it stays; then run fewer tasks at once.",
    Code.WORKER_SHUTDOWN: "Nothing, or start a worker.",
    Code.WORKER_LOST: "Read the worker's log.",
    Code.INTERRUPTED: "Nothing, or resume the step with `temporal activity unpause`.",
    Code.CIRCUIT_OPEN: Text("Check the service; ", Remedy("breakers"), " says since when."),
    Code.STORE_UNAVAILABLE: "Nothing, unless it stays; then check what locks the database, that its server runs, and"
    " that its file is there.",
    Code.RATE_LIMITED: "Nothing, unless it stays; then ask for a larger quota.",
    Code.BUSY: "Nothing, unless it stays; then find out who holds the lock.",
    Code.UNAUTHORIZED: "Correct the credentials that the tool uses.",
    Code.FORBIDDEN: "Ask for the permission.",
    Code.QUOTA_EXHAUSTED: "Pay, or make room.",
    Code.MISSING_TOOL: "Start a worker with the `--tools` file that defines the tool.",
    Code.CHANGED_TOOL: "Deploy a version of the tool that takes the planned call, and `retry`; or `replan` for the new"
    " version.",
    Code.MALFORMED_SCHEMA: "Fix the tool.",
    Code.TOO_LARGE: "Let the tool return less, or split the task.",
    Code.UNDECODABLE: "Run the same version of Replan everywhere.",
    Code.UNSERIALISABLE: "Return a pydantic model of plain values.",
    Code.WRONG_STORE: "Give all workers of a queue the same `--store`.",
    Code.NEEDS_PERSON: "Do what its reason says.",
    Code.NEEDS_APPROVAL: Text.of("Start the task with `{on_escalation:wait}`, and answer its request."),
    Code.BUG: "Read the exception in the worker's log, and fix the tool, or say with raises= what it is.",
    Code.NOT_FOUND: "If no plan helps, name something that exists.",
    Code.CONFLICT: "If no plan helps, ask for something else.",
    Code.GONE: "If no plan helps, do without it.",
    Code.PRECONDITION_FAILED: "If no plan helps, find out who else changes it.",
    Code.INVALID_INPUT: "Say more exactly what is wanted; describe the tool's fields better.",
    Code.NO_RESULTS: "If no plan helps, ask for something else.",
    Code.UNEXPECTED_RESULT: "If it stays, correct the tool's result model or its `ensure=`.",
    Code.REPEATED_CALL: "If no plan helps, ask for something else.",
    Code.REFUSED: "Read the reason.",
    Code.REJECTED: "Nothing: a person did not want the call.",
}
"""By fault code, what to do about the fault; docs/errors.md has the same sentences."""
OF_PLANNER: Mapping[Code, str] = {
    **dict.fromkeys((Code.MALFORMED_SCHEMA, Code.UNAUTHORIZED, Code.FORBIDDEN), "Do what the reason says."),
    Code.TOO_LARGE: "Split the task, or use a model with a larger window.",
    Code.TIMEOUT: "Start it again later, or use another model.",
    Code.BUG: "Read the exception in the worker's log, and report it.",
}
"""By fault code, what to do if a request to the planner has failed, where that differs from OF_FAULT: no tool did."""
OF_ENDING: Mapping[str, str] = {
    "gave_up": "Say it in other words, or ask for less.",
    "question": Text.of("Start the task again with the answer in its text, or with `{on_escalation:wait}`."),
    "plan_refused": "Correct what the reason names.",
    "task_refused": Text.of(
        "If it cannot be read, correct the program that started it. Else use another folder (`{documents}`, here or at"
        " the worker), or the kinds and arguments of `{contract}` as the worker calls them."
    ),
    "proposals_rejected": Text.of("Do what the reason says, write the plan by hand (`{plan}`), or ask for less."),
    "no_progress": Text.of(
        "Read why the steps failed (`explain`), and ask for something else; or give more with `{replans}`."
    ),
    **{name: Text.of(limit.remedy, option=Argument(name)) for name, limit in LIMITS.items()},
    "aborted": "Start it again if it is still needed.",
    "unanswered": Text.of(
        "Start it again, or `reset` it, when somebody can answer; give more time with `{answer_within}`."
    ),
    "cancelled": "Start it again if it is still needed.",
    "closed": "`temporal workflow show -w ID --detailed` shows who closed it.",
}
"""By outcome code, what to do about a task that no fault ended."""
LATER = "Start it again later: what failed last may work by then."
AFTER_REJECTION = "If it is still wanted, start it again with what the person asked for in its text."
WITHHELD = (
    "Untrusted content that the task read may have ordered {calls}. Only if you want that yourself, start the task"
    " again so that a person is asked (`{on_escalation:wait}`), or allow `{kind}` from the start with `{contract}`;"
    " else write the plan by hand (`{plan}`), or ask for less."
)
TAINTED_QUESTION = (
    "The task had read untrusted content, so the question may come from that: answer it only with what you want"
    " yourself."
)
CHECK_EFFECT = "Check whether it was applied (", " has its key), then start a new task for what is left."
JUDGE_EFFECT = "It was applied: decide whether it may stay, then start a new task for what is left."
NOT_COMPLETED = (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET, TaskStatus.FAILED)


def remedies(story: Story) -> Iterator[Sentence]:
    """What to do about a workflow task that fails, or about the end of a task; none for a completed task."""
    outcome, failing = story.history.outcome, story.history.failing
    if failing is not None and story.history.end is None:
        failing = add_reset_point(failing, story)
        cure, *others = failing.remedy.parts
        yield said(Text(capitalised(str(cure)), *others, "."))
    if outcome is None or outcome.status not in NOT_COMPLETED or outcome.code is None:
        return
    escalated = [fault for fault in outcome.faults if fault.decision == "escalate"]
    # What an undo could not take back has its own remedy.
    last = next((fault for fault in reversed(escalated) if not fault.step_id.startswith(ids.UNDO)), None)
    effects, undo = Remedy("effects", outcome.task_id), Remedy("undo", outcome.task_id)
    if any(not record.done for record in outcome.undo):
        yield said(Text("Try to undo again what stays (", undo, "), or correct it by hand."))
    if last and last.applied is not Applied.NONE:
        what = (CHECK_EFFECT[0], effects, CHECK_EFFECT[1]) if last.applied is Applied.UNKNOWN else (JUDGE_EFFECT,)
        more = () if outcome.undo or story.history.rollback else (" Or undo what the task did: ", undo, ".")
        yield said(Text(*what, *more))
    elif outcome.code in OF_ENDING:
        yield from _remedies_of_ending(outcome, outcome.code)
    elif outcome.code in set(Code):
        code, is_planner = Code(outcome.code), any(fault.source in PLANNERS for fault in outcome.own_faults)
        text = OF_PLANNER.get(code, OF_FAULT[code]) if is_planner and last is None else OF_FAULT[code]
        if outcome.status is TaskStatus.ESCALATED:
            step = last.step_id if last else next((call.id for call in reversed(story.failed)), "STEP")
            text = Text(text, " Then ", Remedy("reset", outcome.task_id, {"to": step}), " goes on from there.")
        yield said(text)


def _remedies_of_ending(outcome: Outcome, code: str) -> Iterator[Sentence]:
    withheld = withheld_calls(outcome)
    kinds = sorted({call.kind for call in withheld.values()})
    if withheld:
        yield said(Text.of(WITHHELD, calls=prose.listed(withheld), kind=kinds[0]))
    if code == "question" and outcome.is_tainted:
        yield said(TAINTED_QUESTION)
    last = outcome.faults[-1] if outcome.faults else None
    if code == "gave_up" and last and last.quadrant.is_transient:
        yield said(LATER)
    if code == "gave_up" and last and last.code is Code.REJECTED:
        yield said(AFTER_REJECTION)
    elif not withheld or code != "proposals_rejected":
        yield said(OF_ENDING[code])
