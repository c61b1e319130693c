"""What a person does about a task that did not complete, by its code; docs/errors.md says the same."""

from collections.abc import Mapping

from workflows.faults import Code

FAULTS: Mapping[Code, str] = {
    Code.TIMEOUT: "If it happens often, give the tool a longer `timeout=`, or ask it for less.",
    Code.UNREACHABLE: "Check that the service is up, and that the worker's machine can reach it.",
    Code.SERVER_ERROR: "Nothing, unless it stays; then ask the operator of the service.",
    Code.OVERLOADED: "Nothing, unless it stays; then run fewer tasks at once.",
    Code.WORKER_SHUTDOWN: "Nothing, or start a worker.",
    Code.WORKER_LOST: "Read the worker's log; write tools that block as a plain `def`.",
    Code.CIRCUIT_OPEN: "Check the service.",
    Code.STORE_UNAVAILABLE: "Nothing, unless it stays; then check what locks the database, that its server runs, and"
    " that its file is there.",
    Code.RATE_LIMITED: "Nothing, unless it stays; then ask for a larger quota.",
    Code.BUSY: "Nothing, unless it stays; then find out who holds the lock.",
    Code.UNAUTHORIZED: "Correct the credentials that the tool uses.",
    Code.FORBIDDEN: "Ask for the permission.",
    Code.QUOTA_EXHAUSTED: "Pay, or make room.",
    Code.MISSING_TOOL: "Start a worker with the `--tools` file that defines the tool.",
    Code.MALFORMED_SCHEMA: "Fix the tool.",
    Code.TOO_LARGE: "Let the tool return less, or split the task.",
    Code.UNDECODABLE: "Run the same version of Replan everywhere.",
    Code.UNSERIALISABLE: "Return a pydantic model of plain values.",
    Code.WRONG_STORE: "Give all workers of a queue the same `--store`.",
    Code.NEEDS_PERSON: "Do what its reason says.",
    Code.BUG: "Read the exception in the worker's log, and fix the tool.",
    Code.NOT_FOUND: "If no plan helps, name something that exists.",
    Code.CONFLICT: "If no plan helps, ask for something else.",
    Code.GONE: "If no plan helps, do without it.",
    Code.PRECONDITION_FAILED: "If no plan helps, find out who else changes it.",
    Code.INVALID_INPUT: "Say more exactly what is wanted; describe the tool's fields better.",
    Code.NO_RESULTS: "If no plan helps, ask for something else.",
    Code.UNEXPECTED_RESULT: "If it stays, correct the tool's result model or its `ensure=`.",
    Code.REPEATED_CALL: "If no plan helps, ask for something else.",
    Code.REFUSED: "Read the reason.",
}
ENDINGS: Mapping[str, str] = {
    "gave_up": "Say it in other words, or ask for less.",
    "question": "Start the task again with the answer in its text.",
    "plan_refused": "Correct what the reason names.",
    "task_refused": "Use another folder (`--documents`, here or at the worker), or the kinds of `--allow` as the worker"
    " calls them.",
    "proposals_rejected": "Allow the kind that the reason names (`--allow`), write the plan by hand (`--plan FILE`), or"
    " ask for less.",
    "no_progress": "Read why the steps failed (`explain`), and ask for something else.",
    "tool_calls": "Give more with `--tool-calls`.",
    "replans": "Give more with `--replans`.",
    "tokens": "Give more with `--tokens`.",
    "usd": "Give more with `--usd`.",
    "deadline": "Give more time with `--deadline`.",
    "cancelled": "Start it again if it is still needed.",
    "closed": "`temporal workflow show -w ID --detailed` shows who closed it.",
}
"""Codes of a task that are no fault's."""
