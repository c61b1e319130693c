"""The lines of a worker's log: every event of Replan, with its fields. docs/observability.md has the same as tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from pydantic import Field, JsonValue

from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Quadrant

Level = Literal["info", "warning", "error"]
COMMON = ("timestamp", "level", "event", "logger")
"""The fields of every line."""
IDS = ("task", "run", "step", "kind", "revision", "attempt")
"""More fields of every line that is written while a call runs, also of a tool's own lines, also from its threads."""


class Fields(TypedDict, total=False):
    """Every field of a line; a name has one meaning in all events."""

    timestamp: Annotated[str, Field(description="When, in UTC.")]
    level: Annotated[Level, Field(description="`info`, `warning` or `error`.")]
    event: Annotated[str, Field(description="What happened: a word of the table above.")]
    logger: Annotated[str, Field(description="Which part wrote the line; those of Replan begin with `replan.`.")]

    task: Annotated[str, Field(description="The id of the task, which is its workflow id.")]
    run: Annotated[str, Field(description="The run id of the workflow.")]
    step: Annotated[str | None, Field(description="The id of the step, which is the id of its activity.")]
    kind: Annotated[str, Field(description="The kind of the step: its tool, or an activity of Replan such as `plan`.")]
    revision: Annotated[int, Field(description="The number of the plan within the task.")]
    attempt: Annotated[int, Field(description="The number of the attempt within its activity execution, from 1.")]

    shape: Annotated[
        JsonValue, Field(description="The shape of the arguments: names, types and sizes, such as `str[5]`.")
    ]
    outcome: Annotated[
        Literal["ok", "retried", "replayed", "transient_fail", "persistent_fail", "needs_approval", "cancelled"],
        Field(
            description="`ok`, `retried` (ok after the first attempt), `replayed` (the recorded result was returned),"
            " `transient_fail`, `persistent_fail`, `needs_approval` (a person is asked first) or `cancelled`."
        ),
    ]
    ms: Annotated[float, Field(description="Milliseconds that the attempt took.")]
    code: Annotated[str | None, Field(description="The [code](errors.md) of a fault, of a request, or of an ending.")]
    quadrant: Annotated[Quadrant, Field(description="The class of the fault.")]
    effect: Annotated[Applied, Field(description="Whether the effect was applied: `none`, `applied` or `unknown`.")]
    guessed: Annotated[str, Field(description="The attribute with the HTTP status from which the code was guessed.")]
    retry_in: Annotated[float, Field(description="Seconds until the next attempt, if the step has one left.")]
    error: Annotated[str | None, Field(description="The class of the exception.")]
    at: Annotated[list[str], Field(description="Where in the code, as `file:line function`, the innermost last.")]
    args: Annotated[str, Field(description="The arguments; only with `--log-values`.")]
    result: Annotated[str, Field(description="The result; only with `--log-values`.")]
    message: Annotated[str, Field(description="The message of the exception; only with `--log-values`.")]

    decision: Annotated[
        str,
        Field(
            description="What follows, as in the [JSON document](console.md#the-json-document). Temporal decides on a"
            " `retry`, which is noted when the execution has ended; `escalate` ends the task, or for its planner asks a"
            " person."
        ),
    ]
    seconds: Annotated[float | None, Field(description="Seconds: how long a wait takes, or how long something took.")]
    fallback: Annotated[str, Field(description="The kind that is called instead.")]
    verdict: Annotated[
        Literal["applied", "not_applied", "cannot_tell"], Field(description="What reconciliation found out.")
    ]
    reasons: Annotated[int, Field(description="How many mistakes were found; `explain` has them.")]
    status: Annotated[TaskStatus, Field(description="How the task ended.")]
    replans: Annotated[int, Field(description="New plans because of a fault.")]
    wasted: Annotated[
        int, Field(description="Retries that followed a persistent fault, so that they could not help: always 0.")
    ]
    tool_calls: Annotated[int, Field(description="Calls of tools, each attempt counted.")]
    model_calls: Annotated[int, Field(description="Requests to models.")]
    tokens: Annotated[int, Field(description="Tokens of models.")]
    usd: Annotated[float | None, Field(description="US dollars; null if no model was called, or a price is unknown.")]
    estimated: Annotated[int, Field(description="Requests to models whose tokens are estimated.")]
    unpriced: Annotated[int, Field(description="Requests to models whose price is unknown.")]
    undone: Annotated[int, Field(description="Effects that were undone.")]
    left: Annotated[int, Field(description="Effects that were not undone.")]

    request: Annotated[str, Field(description="The id of the request within its task, such as `r1`.")]
    type: Annotated[
        str,
        Field(
            description="Of a request: `fault`, `approval`, `question` or `budget`."
            " Of a notification: `request.opened`, `request.reminder` or `request.closed`."
        ),
    ]
    answer: Annotated[
        str | None,
        Field(description="The answer that was given, such as `retry`; null if the request was closed without one."),
    ]
    closed: Annotated[
        str, Field(description="Why it was closed without an answer: `unanswered`, `ended` or `repeated`.")
    ]
    receiver: Annotated[str, Field(description="Who was told.")]
    signal: Annotated[str, Field(description="The name of the Signal.")]
    reason: Annotated[str, Field(description="Why, as a sentence of Replan.")]

    model: Annotated[str, Field(description="The model, or the planner, by its name.")]
    role: Annotated[str, Field(description="What the model is asked for: `planner`, `compaction` or `step`.")]
    stop: Annotated[str, Field(description="Why the reply ended.")]
    input: Annotated[int, Field(description="Tokens of the request, without those of the cache.")]
    output: Annotated[int, Field(description="Tokens of the reply.")]
    cache_read: Annotated[int, Field(description="Tokens that the provider read from its cache.")]
    cache_write: Annotated[int, Field(description="Tokens that the provider wrote into its cache.")]
    reasoning: Annotated[int, Field(description="Of the tokens of the reply, those used for reasoning.")]
    is_estimated: Annotated[bool, Field(description="Whether the tokens are estimated.")]
    status_code: Annotated[str, Field(description="The HTTP status.")]
    provider_type: Annotated[str, Field(description="The type of the error, in the provider's words.")]
    provider_code: Annotated[str, Field(description="The code of the error, in the provider's words.")]
    request_id: Annotated[str, Field(description="The provider's id of the request.")]
    remedy: Annotated[str, Field(description="What to do.")]

    failures: Annotated[int, Field(description="Calls in a row that failed.")]
    trial_in: Annotated[float, Field(description="Seconds until the trial call.")]
    holder: Annotated[int | None, Field(description="The id of the process that holds a lock.")]
    key: Annotated[str, Field(description="The idempotency key: the first run id or the effect key, and the step.")]
    live: Annotated[int, Field(description="Threads in which calls run.")]
    outlived: Annotated[int, Field(description="Of these, threads whose attempt has ended.")]
    threads: Annotated[int, Field(description="How many threads the worker has.")]
    call: Annotated[str, Field(description="The call that blocks, as `kind (task/step)`.")]
    entry_point: Annotated[str, Field(description="The entry point of `replan.faults`.")]
    package: Annotated[str, Field(description="The package whose exceptions it declares.")]
    problems: Annotated[list[str], Field(description="Its mistakes.")]
    classes: Annotated[list[str], Field(description="The classes that another package declares, too.")]

    server: Annotated[str, Field(description="The MCP server, by its name in the tools file.")]
    line: Annotated[
        str, Field(description="What the server wrote, without what may be a secret. It may be anybody's words.")
    ]
    lines: Annotated[int, Field(description="How many lines were left out.")]
    wait: Annotated[float, Field(description="Seconds until the server is started again.")]
    waiting: Annotated[int, Field(description="Bytes that a client of the socket has not read.")]
    session: Annotated[str, Field(description="The session of an agent.")]
    tool: Annotated[str, Field(description="The kind of the tool that an agent calls.")]
    queue: Annotated[str, Field(description="The task queue of a worker.")]
    tools: Annotated[int, Field(description="How many tools there are.")]


@dataclass(frozen=True)
class Event:
    """What a line with this event says, and the names of its fields besides `timestamp`, `level`, `event`, `logger`."""

    logger: str
    levels: str
    meaning: str
    always: str = ""
    """Fields that each such line has; the names of several are separated by blanks."""
    sometimes: str = ""

    @property
    def fields(self) -> list[str]:
        return [*self.always.split(), *self.sometimes.split()]


_IDS = " ".join(IDS)
_IDS_BUT_KIND = _IDS.replace("kind ", "")
_TASK = "task run"
_SPENT = "tool_calls model_calls tokens usd seconds estimated unpriced"
_USED = "input output cache_read cache_write reasoning is_estimated"
EVENTS: Mapping[str, Event] = {
    # One line per attempt, per decision and per task.
    "step": Event(
        "replan.step",
        "info error",
        "An attempt of a call ended. The level is `error` if the code is `bug`.",
        f"{_IDS} shape outcome ms",
        "code quadrant effect guessed retry_in error at args result message",
    ),
    "decision": Event(
        "replan.workflow",
        "info",
        "What follows a fault.",
        f"{_TASK} step kind revision attempt code quadrant effect decision",
        "seconds fallback",
    ),
    "task": Event(
        "replan.workflow",
        "info",
        "A task ended: completed, failed, escalated, over its budget, or cancelled.",
        f"{_TASK} status code revision replans wasted {_SPENT}",
    ),
    # Other lines of workflows.
    "reconciled": Event(
        "replan.workflow",
        "info",
        "Whether a call with an unknown outcome was applied.",
        f"{_TASK} step kind revision verdict",
    ),
    "proposal_rejected": Event("replan.workflow", "info", "A proposal cannot be run.", f"{_TASK} revision reasons"),
    "request_opened": Event(
        "replan.workflow", "info", "A task asks a person, and waits.", f"{_TASK} revision request type code", "step"
    ),
    "request_closed": Event(
        "replan.workflow",
        "info",
        "A person answered, or the request was closed without an answer.",
        f"{_TASK} revision request type code answer closed seconds",
        "step",
    ),
    "rollback": Event(
        "replan.workflow", "info", "The effects of a task were undone, by `undo` or at its end.", f"{_TASK} undone left"
    ),
    "signal_dropped": Event(
        "replan.workflow", "warning", "A Signal could not be read, and was ignored.", f"{_TASK} signal reason"
    ),
    # Models.
    "model": Event("replan.model", "info", "A model replied.", f"role model stop {_USED}", _IDS),
    "model_failed": Event(
        "replan.model",
        "warning",
        "A request to a model failed.",
        "role model code error",
        f"{_IDS} status_code provider_type provider_code request_id",
    ),
    "passed_over": Event(
        "replan.model",
        "warning",
        "A model cannot be used now, and the next one of the list is asked.",
        "model code reason",
        _IDS,
    ),
    "no_strict": Event(
        "replan.model", "warning", "A model takes no strict schemas, and is asked without.", "model remedy", _IDS
    ),
    "no_calls": Event(
        "replan.model",
        "warning",
        "A model's server rejects native calls, and the model is told to write its calls as text.",
        "model remedy",
        _IDS,
    ),
    "no_responses": Event(
        "replan.model",
        "warning",
        "A model is not served in Responses, and is asked in Chat Completions.",
        "model remedy",
        _IDS,
    ),
    # Breakers.
    "breaker_opened": Event(
        "replan.breaker",
        "warning",
        "Calls of a service are not made any more: it is down, or limits its callers.",
        "kind failures code trial_in",
        _IDS_BUT_KIND,
    ),
    "breaker_tries": Event("replan.breaker", "info", "Trial calls are made.", "kind", _IDS_BUT_KIND),
    "breaker_closed": Event("replan.breaker", "info", "Calls are made again.", "kind seconds", _IDS_BUT_KIND),
    "breakers_unknown": Event(
        "replan.breaker",
        "warning",
        "The store cannot be used, so no breaker is known, and every call is made.",
        "error remedy",
        _IDS,
    ),
    "turn_untold": Event(
        "replan.breaker",
        "warning",
        "A workflow could not be told that the turn of its call has come; it is told again.",
        "error",
        _IDS,
    ),
    "store_locked": Event(
        "replan.store",
        "warning",
        "Another connection has held the SQLite store's lock for 5 s; `holder` is its process, if that is known.",
        f"{_IDS} holder remedy",
        _IDS,
    ),
    # Effects and threads.
    "ledger_behind": Event(
        "replan.ledger",
        "warning",
        "An effect was applied, but its result could not be recorded in the ledger; the history has it.",
        f"{_IDS} error",
    ),
    "ledger_superseded": Event(
        "replan.ledger",
        "error",
        "A result came after a newer attempt had claimed the key: there may be two effects.",
        f"{_IDS} key",
    ),
    "thread_left": Event(
        "replan.step",
        "warning",
        "An attempt ended, but its function runs on in its thread.",
        f"{_IDS} live outlived threads",
    ),
    "thread_ended": Event(
        "replan.step", "warning", "Such a function returned, or raised `error`.", f"{_IDS} live error"
    ),
    "tool_blocks": Event(
        "replan.step", "warning", "An `async def` tool blocks the event loop of all tools.", "call at remedy"
    ),
    "tool_blocked": Event("replan.step", "warning", "It does not block any more.", "call seconds"),
    # People and the start of a worker.
    "notified": Event("replan.notify", "info", "The receiver was told.", "task request type attempt receiver"),
    "not_notified": Event(
        "replan.notify", "warning", "The receiver was not told; it is tried again.", "task request type attempt reason"
    ),
    "values_logged": Event("replan.worker", "warning", "The worker was started with `--log-values`.", "remedy"),
    "gauges_unknown": Event(
        "replan.metrics",
        "warning",
        "What is sampled for metrics, such as waiting tasks, cannot be found out now.",
        "error remedy",
        _IDS,
    ),
    "faults_not_loaded": Event(
        "replan.faults",
        "warning",
        "A package declares exceptions with mistakes, and is left out.",
        "entry_point package problems",
        _IDS,
    ),
    "faults_declared_twice": Event(
        "replan.faults",
        "warning",
        "Two packages declare the same classes; the first on Python's path counts.",
        "entry_point package classes",
        _IDS,
    ),
    # MCP servers.
    "mcp_tool_left_out": Event("replan.mcp", "warning", "A tool of a server cannot be offered.", "kind reason"),
    "mcp_server_ended": Event(
        "replan.mcp",
        "warning",
        "A server cannot be reached, or its connection ended; the next call tries again, after `wait`.",
        "server reason wait line",
        _IDS,
    ),
    "mcp_output_dropped": Event(
        "replan.mcp", "warning", "A server wrote what is no message; the 1st, 100th and 10,000th line.", "server lines"
    ),
    "mcp_client_cut_off": Event(
        "replan.mcp", "warning", "A client of the socket for a gateway did not read, and was cut off.", "waiting"
    ),
    "mcp_request_failed": Event(
        "replan.mcp", "error", "A request on the socket for a gateway failed by a bug of Replan.", "error"
    ),
    "mcp_stderr": Event("replan.mcp", "info", "A server wrote to stderr; at most 20 lines a minute.", "server line"),
    # The gateway, in `gateway.log` of its state folder.
    "gateway_call": Event(
        "replan.gateway", "info", "A call of an agent is made a task, or joins one.", "session tool task"
    ),
    "gateway_answer_refused": Event(
        "replan.gateway",
        "warning",
        "A task did not take the answer of the person at an attended client.",
        "task reason",
    ),
    "gateway_cannot_start": Event(
        "replan.gateway", "warning", "The task of an agent's call cannot be started.", "task reason"
    ),
    "gateway_tools": Event("replan.gateway", "info", "The worker of a set of tools is ready.", "queue tools"),
    "gateway_worker_ended": Event(
        "replan.gateway",
        "warning",
        "The worker of a set of tools ended; it is started again, after `wait`.",
        "queue reason wait",
    ),
    "gateway_server": Event("replan.gateway", "info", "What the local Temporal server is doing.", "line"),
    "gateway_agent_failed": Event(
        "replan.gateway", "warning", "The connection of an agent failed by a bug of Replan.", "error"
    ),
    "gateway_failed": Event("replan.gateway", "error", "The daemon cannot go on.", "error"),
    "gateway_idle": Event("replan.gateway", "info", "The daemon ends, since nobody needs it.", "seconds"),
}
