"""The lines of a worker's log: every event of Replan, with its fields, as docs/observability.md has them as tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.telemetry import IDS


@dataclass(frozen=True)
class LogEvent:
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
_USED = "input output cache_read cache_write reasoning is_estimated beside"
EVENTS: Mapping[str, LogEvent] = {
    # One line per attempt, per decision and per task.
    "step": LogEvent(
        "replan.step",
        "info error",
        "An attempt of a call ended. The level is `error` if the code is `bug`.",
        f"{_IDS} shape outcome ms",
        "code quadrant effect guessed retry_in error at args result message",
    ),
    "decision": LogEvent(
        "replan.workflow",
        "info",
        "What follows a fault.",
        f"{_TASK} step kind revision attempt code quadrant effect decision",
        "seconds fallback",
    ),
    "task": LogEvent(
        "replan.workflow",
        "info",
        "A task ended: completed, failed, escalated, over its budget, or cancelled.",
        f"{_TASK} status code revision replans wasted {_SPENT}",
    ),
    # Other lines of workflows.
    "reconciled": LogEvent(
        "replan.workflow",
        "info",
        "Whether a call with an unknown outcome was applied.",
        f"{_TASK} step kind revision verdict",
    ),
    "proposal_rejected": LogEvent("replan.workflow", "info", "A proposal cannot be run.", f"{_TASK} revision reasons"),
    "request_opened": LogEvent(
        "replan.workflow", "info", "A task asks a person, and waits.", f"{_TASK} revision request type code", "step"
    ),
    "request_closed": LogEvent(
        "replan.workflow",
        "info",
        "A person answered, or the request was closed without an answer.",
        f"{_TASK} revision request type code answer closed seconds",
        "step",
    ),
    "rollback": LogEvent(
        "replan.workflow", "info", "The effects of a task were undone, by `undo` or at its end.", f"{_TASK} undone left"
    ),
    "signal_dropped": LogEvent(
        "replan.workflow", "warning", "A Signal could not be read, and was ignored.", f"{_TASK} signal reason"
    ),
    # Models.
    "model": LogEvent("replan.model", "info", "A model replied.", f"role model stop {_USED}", _IDS),
    "model_failed": LogEvent(
        "replan.model",
        "warning",
        "A request to a model failed.",
        "role model code error",
        f"{_IDS} status_code provider_type provider_code request_id",
    ),
    "passed_over": LogEvent(
        "replan.model",
        "warning",
        "A model cannot be used now, and the next one of the list is asked.",
        "model code reason",
        _IDS,
    ),
    "no_strict": LogEvent(
        "replan.model", "warning", "A model takes no strict schemas, and is asked without.", "model remedy", _IDS
    ),
    "no_calls": LogEvent(
        "replan.model",
        "warning",
        "A model's server rejects native calls, and the model is told to write its calls as text.",
        "model remedy",
        _IDS,
    ),
    "vendor_fields": LogEvent(
        "replan.model",
        "warning",
        "A model's server wants fields of its own in all turns, or takes none back: it is learned from its rejection.",
        "model reason",
        _IDS,
    ),
    "no_responses": LogEvent(
        "replan.model",
        "warning",
        "A model is not served in Responses, and is asked in Chat Completions.",
        "model remedy",
        _IDS,
    ),
    # Breakers.
    "breaker_opened": LogEvent(
        "replan.breaker",
        "warning",
        "Calls of a service are not made any more: it is down, or limits its callers.",
        "kind failures code trial_in",
        _IDS_BUT_KIND,
    ),
    "breaker_tries": LogEvent("replan.breaker", "info", "Trial calls are made.", "kind", _IDS_BUT_KIND),
    "breaker_closed": LogEvent("replan.breaker", "info", "Calls are made again.", "kind seconds", _IDS_BUT_KIND),
    "breakers_unknown": LogEvent(
        "replan.breaker",
        "warning",
        "The store cannot be used, so no breaker is known, and every call is made.",
        "error remedy",
        _IDS,
    ),
    "turn_untold": LogEvent(
        "replan.breaker",
        "warning",
        "A workflow could not be told that the turn of its call has come; it is told again.",
        "error",
        _IDS,
    ),
    "store_locked": LogEvent(
        "replan.store",
        "warning",
        "Another connection has held the SQLite store's lock for 5 s; `holder` is its process, if that is known.",
        f"{_IDS} holder remedy",
        _IDS,
    ),
    "queue_store_unknown": LogEvent(
        "replan.worker",
        "warning",
        "The server does not permit the worker to record the store of its queue, so a worker with another store is not"
        " noticed.",
        "queue remedy",
    ),
    # Effects and threads.
    "ledger_behind": LogEvent(
        "replan.ledger",
        "warning",
        "An effect was applied, but its result could not be recorded in the ledger; the history has it.",
        f"{_IDS} error",
    ),
    "ledger_superseded": LogEvent(
        "replan.ledger",
        "error",
        "A result came after a newer attempt had claimed the key: there may be two effects.",
        f"{_IDS} key",
    ),
    "thread_left": LogEvent(
        "replan.step",
        "warning",
        "An attempt ended, but its function runs on in its thread.",
        f"{_IDS} live outlived threads",
    ),
    "thread_ended": LogEvent(
        "replan.step", "warning", "Such a function returned, or raised `error`.", f"{_IDS} live error"
    ),
    "tool_blocks": LogEvent(
        "replan.step", "warning", "An `async def` tool blocks the event loop of all tools.", "call at remedy"
    ),
    "tool_blocked": LogEvent("replan.step", "warning", "It does not block any more.", "call seconds"),
    # People and the start of a worker.
    "notified": LogEvent("replan.notify", "info", "The receiver was told.", "task request type attempt receiver"),
    "not_notified": LogEvent(
        "replan.notify", "warning", "The receiver was not told; it is tried again.", "task request type attempt reason"
    ),
    "values_logged": LogEvent("replan.worker", "warning", "The worker was started with `--log-values`.", "remedy"),
    "gauges_unknown": LogEvent(
        "replan.metrics",
        "warning",
        "What is sampled for metrics, such as waiting tasks, cannot be found out now.",
        "error remedy",
        _IDS,
    ),
    "faults_not_loaded": LogEvent(
        "replan.faults",
        "warning",
        "A package declares exceptions with mistakes, and is left out.",
        "entry_point package problems",
        _IDS,
    ),
    "faults_declared_twice": LogEvent(
        "replan.faults",
        "warning",
        "Two packages declare the same classes; the first on Python's path counts.",
        "entry_point package classes",
        _IDS,
    ),
    # MCP servers.
    "mcp_entries_left_out": LogEvent(
        "replan.mcp",
        "warning",
        "A server's list of resources or prompts has entries that cannot be read.",
        "server reason",
    ),
    "mcp_tool_left_out": LogEvent("replan.mcp", "warning", "A tool of a server cannot be offered.", "kind reason"),
    "mcp_server_ended": LogEvent(
        "replan.mcp",
        "warning",
        "A server cannot be reached, or its connection ended; the next call tries again, after `wait`.",
        "server reason wait line",
        _IDS,
    ),
    "mcp_output_dropped": LogEvent(
        "replan.mcp", "warning", "A server wrote what is no message; the 1st, 100th and 10,000th line.", "server lines"
    ),
    "mcp_stderr": LogEvent("replan.mcp", "info", "A server wrote to stderr; at most 20 lines a minute.", "server line"),
    # The gateway, in a log of its state folder.
    "gateway_no_tools": LogEvent(
        "replan.gateway", "warning", "No worker names the tools of the queue; they are asked again.", "reason"
    ),
    "gateway_answer_refused": LogEvent(
        "replan.gateway",
        "warning",
        "The answer of the person at an attended client was not taken.",
        "task reason",
    ),
    "gateway_tools": LogEvent("replan.gateway", "info", "The tools of a gateway are known.", "tools"),
    "gateway_agent_failed": LogEvent(
        "replan.gateway", "warning", "The connection of an agent failed by a bug of Replan.", "error"
    ),
    "gateway_failed": LogEvent("replan.gateway", "error", "The holder cannot go on.", "error"),
    "gateway_idle": LogEvent("replan.gateway", "info", "The holder ends, since nobody needs it.", "seconds"),
    "gateway_cannot_serve": LogEvent(
        "replan.gateway",
        "error",
        "The tools of a holder cannot be served: its agents are told why, and it ends.",
        "reason",
    ),
    "gateway_other_version": LogEvent(
        "replan.gateway",
        "info",
        "A holder makes room for one of another version of Replan, as soon as its calls have ended.",
        "reason",
    ),
    "gateway_hello_not_understood": LogEvent(
        "replan.gateway", "warning", "The `replan mcp` of another version has connected.", "reason"
    ),
}
