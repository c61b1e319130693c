"""The words for each fault: what it means, and what a person can do about it."""

from collections.abc import Mapping

from console.reference.entry import Entry
from workflows.faults import Code
from workflows.routing import HEARTBEAT

NOTHING = "nothing, unless it stays"

FAULTS: Mapping[Code, Entry] = {
    Code.TIMEOUT: Entry(
        "The tool gave no answer within its `timeout=`, or the step did not finish within its day; also HTTP 408. If "
        "it still ran, its thread [cannot be stopped](tools.md#a-plain-def-past-its-timeout), and its effect may be "
        "applied later.",
        "where it happens often, give the tool a longer `timeout=`, or ask it for less.",
    ),
    Code.UNREACHABLE: Entry(
        "The connection was refused or broke, or the name of the host is not known.",
        "see whether the service is up, and whether the worker's machine may reach it.",
    ),
    Code.SERVER_ERROR: Entry(
        "The service had an error of its own (HTTP 5xx).", f"{NOTHING}; then ask whoever runs the service."
    ),
    Code.OVERLOADED: Entry("The service has too much to do (HTTP 529).", f"{NOTHING}; then run fewer tasks at once."),
    Code.WORKER_SHUTDOWN: Entry("The worker was stopped during the call.", "nothing, or start a worker."),
    Code.WORKER_LOST: Entry(
        f"No heartbeat came for {HEARTBEAT.total_seconds():g} s: the worker was killed, or a blocking call in an "
        "`async def` froze it.",
        "read the worker's log; write tools that block as a plain `def` ([tools.md](tools.md)).",
    ),
    Code.CIRCUIT_OPEN: Entry(
        "A breaker keeps calls away from a service that failed too often.", "see what is wrong with the service."
    ),
    Code.STORE_UNAVAILABLE: Entry(
        "The store, or the tool's own database, was locked or did not answer before anything was done.",
        f"{NOTHING}; then see who holds it, whether its server runs, and whether its file is there.",
    ),
    Code.RATE_LIMITED: Entry(
        "The service wants fewer requests (HTTP 429).", f"{NOTHING}; then ask for a larger quota."
    ),
    Code.BUSY: Entry(
        "The thing is locked or in use: HTTP 423 or 425, another writer in the database, no free connection.",
        f"{NOTHING}; then find out who holds it.",
    ),
    Code.UNAUTHORIZED: Entry(
        "The service does not accept the worker's credentials (HTTP 401, 407).", "mend the key that the tool uses."
    ),
    Code.FORBIDDEN: Entry(
        "The credentials are right and do not suffice (HTTP 403, 451), or the worker may not touch a file or table.",
        "ask for the permission.",
    ),
    Code.QUOTA_EXHAUSTED: Entry(
        "Something that must be bought or cleared is used up: HTTP 402, a full disk, too many open files.",
        "pay, or make room.",
    ),
    Code.MISSING_TOOL: Entry(
        "No worker on the queue knows this kind: its tools file was not given, or is older than the plan.",
        "start a worker with the `--tools` file that defines it.",
    ),
    Code.MALFORMED_SCHEMA: Entry(
        "The tool speaks to its service in a way that the service does not know (HTTP 405, 406, 411, 415, 426, 501, "
        "505).",
        "mend the tool.",
    ),
    Code.TOO_LARGE: Entry(
        "A result is over 1 MB, or that of an effect over 48 kB; or, as the code of a task, what the planner would have"
        " to be told is over 1 MB.",
        "let the tool return less, or split the task.",
    ),
    Code.UNDECODABLE: Entry(
        "Worker and workflow could not read each other: their versions do not fit, or a payload is not JSON.",
        "run one version of Replan everywhere.",
    ),
    Code.UNSERIALISABLE: Entry(
        "The tool returned what cannot be written as JSON.", "return a pydantic model of plain values."
    ),
    Code.WRONG_STORE: Entry(
        "The worker's store is not the one that the task began with; nothing was done.",
        "give all workers of a queue the same `--store`.",
    ),
    Code.NEEDS_PERSON: Entry(
        "The tool itself asked for a person, or `prune` deleted a result that the step needs.",
        "do what its sentence says.",
    ),
    Code.BUG: Entry(
        "The tool raised what no table knows, or broke a rule of its database or of HTTP.",
        "read the worker's log, where the exception is; mend the tool.",
    ),
    Code.NOT_FOUND: Entry("There is no such thing (HTTP 404, no such row or file).", "if no plan helps, name another."),
    Code.CONFLICT: Entry(
        "What is there now contradicts the call (HTTP 409, a unique row, several rows that fit): somebody was "
        "faster. Or the step was done and then undone, or done with other arguments.",
        "if no plan helps, ask for something else.",
    ),
    Code.GONE: Entry("It was there and is gone for good (HTTP 410).", "if no plan helps, do without it."),
    Code.PRECONDITION_FAILED: Entry(
        "It has changed since it was read (HTTP 412, 428).", "if no plan helps, see who else changes it."
    ),
    Code.INVALID_INPUT: Entry(
        "The arguments do not fit: the tool's model, its service (HTTP 400, 413, 414, 422, 431) or a result that they "
        "refer to.",
        "say more exactly what is wanted; describe the tool's fields better.",
    ),
    Code.NO_RESULTS: Entry("The search was right and found nothing.", "if no plan helps, ask for something else."),
    Code.UNEXPECTED_RESULT: Entry(
        "The answer is a lie: not the promised shape, no JSON, a redirect, or it breaks the tool's `ensure=`. After a "
        "`keyed` or `unkeyed` effect, which has happened then, a person.",
        "if it stays, mend the tool's model, or its `ensure=`.",
    ),
    Code.REPEATED_CALL: Entry(
        "The same call had failed, and nothing has changed since: it was not made.",
        "if no plan helps, ask for something else.",
    ),
    Code.REFUSED: Entry("The tool said no, with a reason.", "read the reason."),
}
