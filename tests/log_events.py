"""The lines of a worker's log: every event of Replan, with its fields, as docs/observability.md has them as tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.telemetry import IDS


@dataclass(frozen=True)
class LogEvent:
    """What a line with this event says, and the names of its fields besides `timestamp`, `level`, `event`, `logger`."""

    logger: str
    levels: str
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
        f"{_IDS} shape outcome ms",
        "code quadrant effect guessed retry_in error at args result message",
    ),
    "decision": LogEvent(
        "replan.workflow",
        "info",
        f"{_TASK} step kind revision attempt code quadrant effect decision",
        "seconds fallback",
    ),
    "task": LogEvent("replan.workflow", "info", f"{_TASK} status code revision replans wasted {_SPENT}"),
    # Other lines of workflows.
    "reconciled": LogEvent("replan.workflow", "info", f"{_TASK} step kind revision verdict"),
    "proposal_rejected": LogEvent("replan.workflow", "info", f"{_TASK} revision reasons"),
    "request_opened": LogEvent("replan.workflow", "info", f"{_TASK} revision request type code", "step"),
    "request_endorsed": LogEvent(
        "replan.workflow", "info", f"{_TASK} revision request type code answer answers needed", "step"
    ),
    "request_closed": LogEvent(
        "replan.workflow", "info", f"{_TASK} revision request type code answer closed seconds", "step"
    ),
    "rollback": LogEvent("replan.workflow", "info", f"{_TASK} undone left"),
    "signal_dropped": LogEvent("replan.workflow", "warning", f"{_TASK} signal reason"),
    # Models.
    "model": LogEvent("replan.model", "info", f"role model stop {_USED}", _IDS),
    "model_failed": LogEvent(
        "replan.model", "warning", "role model code error", f"{_IDS} status_code provider_type provider_code request_id"
    ),
    "passed_over": LogEvent("replan.model", "warning", "model code reason", _IDS),
    "no_strict": LogEvent("replan.model", "warning", "model remedy", _IDS),
    "no_calls": LogEvent("replan.model", "warning", "model remedy", _IDS),
    "vendor_fields": LogEvent("replan.model", "warning", "model reason", _IDS),
    "no_responses": LogEvent("replan.model", "warning", "model remedy", _IDS),
    # Breakers.
    "breaker_opened": LogEvent("replan.breaker", "warning", "kind failures code trial_in", _IDS_BUT_KIND),
    "breaker_tries": LogEvent("replan.breaker", "info", "kind", _IDS_BUT_KIND),
    "breaker_closed": LogEvent("replan.breaker", "info", "kind seconds", _IDS_BUT_KIND),
    "breakers_unknown": LogEvent("replan.breaker", "warning", "error remedy", _IDS),
    "turn_untold": LogEvent("replan.breaker", "warning", "error", _IDS),
    "store_locked": LogEvent("replan.store", "warning", f"{_IDS} holder remedy", _IDS),
    "queue_store_unknown": LogEvent("replan.worker", "warning", "queue remedy"),
    # Effects and threads.
    "ledger_behind": LogEvent("replan.ledger", "warning", f"{_IDS} error"),
    "ledger_superseded": LogEvent("replan.ledger", "error", f"{_IDS} key"),
    "thread_left": LogEvent("replan.step", "warning", f"{_IDS} live outlived threads"),
    "thread_ended": LogEvent("replan.step", "warning", f"{_IDS} live error"),
    "tool_blocks": LogEvent("replan.step", "warning", "call at remedy"),
    "tool_blocked": LogEvent("replan.step", "warning", "call seconds"),
    # People and the start of a worker.
    "notified": LogEvent("replan.notify", "info", "task request type attempt receiver"),
    "not_notified": LogEvent("replan.notify", "warning", "task request type attempt reason"),
    "values_logged": LogEvent("replan.worker", "warning", "remedy"),
    "gauges_unknown": LogEvent("replan.metrics", "warning", "error remedy", _IDS),
    "faults_not_loaded": LogEvent("replan.faults", "warning", "entry_point package problems", _IDS),
    "faults_declared_twice": LogEvent("replan.faults", "warning", "entry_point package classes", _IDS),
    # MCP servers.
    "mcp_entries_left_out": LogEvent("replan.mcp", "warning", "server reason"),
    "mcp_tool_left_out": LogEvent("replan.mcp", "warning", "kind reason"),
    "mcp_server_ended": LogEvent("replan.mcp", "warning", "server reason wait line", _IDS),
    "mcp_output_dropped": LogEvent("replan.mcp", "warning", "server lines"),
    "mcp_stderr": LogEvent("replan.mcp", "info", "server line"),
    # The gateway, in a log of its state folder.
    "gateway_no_tools": LogEvent("replan.gateway", "warning", "reason"),
    "gateway_answer_refused": LogEvent("replan.gateway", "warning", "task reason"),
    "gateway_tools": LogEvent("replan.gateway", "info", "tools"),
    "gateway_agent_failed": LogEvent("replan.gateway", "warning", "error"),
    "gateway_failed": LogEvent("replan.gateway", "error", "error"),
    "gateway_idle": LogEvent("replan.gateway", "info", "seconds"),
    "gateway_cannot_serve": LogEvent("replan.gateway", "error", "reason"),
    "gateway_other_version": LogEvent("replan.gateway", "info", "reason"),
    "gateway_hello_not_understood": LogEvent("replan.gateway", "warning", "reason"),
}
