"""The words for the keys of the JSON document, and what other commands print instead."""

from collections.abc import Mapping, Sequence

from workflows.catalogue import Effect
from workflows.faults import Applied, Quadrant
from workflows.record import StepStatus
from workflows.task import TaskStatus


def _one_of(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


_FAULT: Mapping[str, str] = {
    "quadrant": f"the cell of the taxonomy: {_one_of(tuple(Quadrant))}",
    "code": "one of [these](errors.md#faults-of-a-step)",
    "reason": "what happened and what to do, one sentence",
    "observed": "the state of the world that contradicts the call",
    "retry_after": "seconds that the world asked us to wait",
    "effect": f"whether the failed call changed the world: {_one_of(tuple(Applied))}",
    "source": "the kind whose call failed",
    "attempt": "the attempt that failed; 0 when nothing was called",
    "waited": "seconds of backoff before the next attempt",
    "unsent": "whether the connection was never made",
    "lost": "answers of models that were lost in the attempts before, where a budget leaves no room for another",
    "uncounted": "whether the attempt does not count, since its worker went silent",
    "by_id": "whether the step's id alone stood in the way, and the call may be made under another one",
    "still_running": "whether the tool's thread outlived the attempt, so that its effect may be applied later",
    "model_use": "what the attempt used of models (`calls`, `tokens`, `usd`); null where nobody knows",
    "step_id": "the step",
    "revision": "the plan",
    "decision": "what followed: `retry`, `wait`, `fallback`, `replan`, `reconcile`, `escalate`",
    "reconciled": "what was found out about an unknown effect: `applied`, `not_applied`, `cannot_tell`; null before; "
    "`effect` is then what is known now",
    "at": "when",
}
_STEP: Mapping[str, str] = {
    "id": "unique in the task, over all plans",
    "title": "in words",
    "kind": "the tool; the fallback's, where that took over",
    "args": "with references resolved once it has started",
    "revision": "the plan that it belongs to",
    "needs": "ids of the steps before it",
    "status": _one_of(tuple(StepStatus)),
    "attempts": "over all schedulings",
    "effect": f"what the tool promises: {_one_of(tuple(Effect))}",
    "is_fallback": "whether a fallback did it",
    "replayed": "whether the effect had happened in an attempt whose answer was lost, and this is its result",
    "started": "when",
    "ended": "when",
    "result": "what the tool returned",
    "result_omitted": "whether the result was left out, because the document would be too large",
    "result_bytes": "its size where it was left out; `show ID --result STEP` prints it",
    "fault": "its last fault, or null",
}
_UNDO: Mapping[str, str] = {
    "step_id": "the step whose effect was to be taken back",
    "kind": "the tool that undoes it; empty where there is none",
    "done": "whether it is undone",
    "reason": "why not",
}
_REVISION: Mapping[str, str] = {
    "number": "from 1",
    "because": "the planner's reason",
    "refused": "ids of the steps whose faults led to it",
    "kept": "ids of the steps that were finished before",
    "looked": "kinds that looked at the world again",
    "planner": "who proposed it",
}
_COMPACTION: Mapping[str, str] = {
    "turn": "at which turn",
    "turns": "how many of the oldest turns the summary stands for",
    "planner": "who wrote it",
    "tokens": "of the conversation before it",
}
_FAILOVER: Mapping[str, str] = {
    "planner": "which one",
    "code": "why it could not be used: [a fault's](errors.md#faults-of-a-step)",
    "reason": "the same in one sentence",
    "turn": "at which turn",
}
_REJECTION: Mapping[str, str] = {
    "turn": "at which turn",
    "reasons": "why, each one sentence; the first few",
}
_SPENT: Mapping[str, str] = {
    "tool_calls": "attempts, observations included",
    "model_calls": "requests to a model",
    "tokens": "of models",
    "usd": "US dollars; null while no priced model was called, and as soon as one without a known price was",
    "seconds": "since the start",
    "unpriced": "requests to models whose price is not known",
}
_TASK: Mapping[str, str] = {
    "schema": "1",
    "task_id": "also the workflow id",
    "run_id": "Temporal's; a reset begins another",
    "task": "what was asked",
    "status": _one_of(tuple(TaskStatus)),
    "reason": "why it ended so, one sentence",
    "code": "the same for programs: [these](errors.md#endings-of-a-task), or a fault's; null when completed",
    "result": "the answer",
    "question": "what the planner asks, or null",
    "planner": "who planned",
    "strategy": "`plan` or `react`",
    "revisions": "the plans",
    "replans": "how many of them answered a fault",
    "steps": "the steps",
    "faults": "all faults, in order",
    "omitted": "finished steps of a long task that are not among `steps` any more",
    "undo": "what became of each effect, where they were to be taken back, the newest first",
    "compactions": "each time that older turns of the conversation were summarised",
    "failovers": "planners that could not be used, the newest for each turn",
    "rejections": "proposals of which nothing was carried out, such as a change that the task may not make; the newest",
    "is_tainted": "whether it read text that anybody may have written",
    "spent": "the account",
    "started_at": "when, in UTC",
    "ended_at": "when, or null",
    "ui_url": "where the web UI shows it; null where nobody said (`REPLAN_UI`)",
}
TASK: Mapping[str, Mapping[str, str]] = {
    "": _TASK,
    "steps[]": _STEP,
    "faults[]": _FAULT,
    "revisions[]": _REVISION,
    "undo[]": _UNDO,
    "compactions[]": _COMPACTION,
    "failovers[]": _FAILOVER,
    "rejections[]": _REJECTION,
    "spent": _SPENT,
}
"""Key to words, by the place of the object in the document."""

LISTED = ("task_id", "run_id", "task", "status", "reason", "started_at", "ended_at", "replans", "last_fault")
FAILING = ("cause", "message", "attempt", "since")
OTHERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "start --detach": dict.fromkeys(("task_id", "run_id", "status", "ui_url"), ()),
    "start --dry-run": dict.fromkeys(
        (
            *("dry_run", "task", "documents", "options", "planner", "proposal"),
            *("because", "reason", "code", "result", "question"),
        ),
        (),
    )
    | {"steps": ("id", "kind", "args", "needs", "title"), "effects": ()},
    "list": {"tasks": (*LISTED, "planner", "strategy", "ui_url", "failing")},
    "explain": {
        **dict.fromkeys(("task_id", "task", "status", "reason", "summary"), ()),
        "items": ("what", "why", "decision", "then", "steps", "cost", "run", "events"),
        "revisions": (),
        **dict.fromkeys(("kept", "changed", "cost", "steps", "never_started", "now", "todo", "notes", "result"), ()),
    },
    "tools": {"tools": ("spec", "description", "args_schema", "result_schema")},
    "effects": {
        **dict.fromkeys(("task_id", "unread", "deleted_runs"), ()),
        "effects": ("key", "step", "kind", "effect", "known", "at", "result", "undone_at", "undone_by", "undoes"),
    },
    "transcript": {
        **dict.fromkeys(("task_id", "run", "tasks"), ()),
        "turns": (
            *("turn", "branch", "task", "planner", "at", "results", "told", "said", "calls"),
            *("stop", "tokens", "rejected", "upto"),
        ),
    },
    "cancel": {"task_id": (), "cancel_requested": (), "undo": (), "failing": (*FAILING, "reason", "remedy")},
    "undo": {
        **dict.fromkeys(("task_id", "undo_id", "undone"), ()),
        "undo": ("step_id", "kind", "done", "reason"),
        "ui_url": (),
    },
    "reset": dict.fromkeys(("task_id", "run_id", "to", "event", "ui_url", "kept", "undone", "deleted_runs"), ()),
    "doctor": {"checks": ("name", "status", "found", "remedy")},
    "export": dict.fromkeys(("task_id", "run_id", "redacted", "explain", "events"), ()),
    "export ID FILE": dict.fromkeys(("task_id", "run_id", "file", "events", "redacted"), ()),
}
"""The keys beside `schema` that other commands print, each with those of the objects in its list."""

EVENTS: Mapping[str, str] = {
    "task": "once, when a worker knows it: id, text, planner, place",
    "plan": "each plan: the keys of `revisions[]`",
    "step": "whenever a step's status, attempts or kind is another: `id`, `kind`, `title`, `revision`, `status`, "
    "`attempts`",
    "fault": "each fault: the keys of `faults[]`",
    "failover": "a planner that could not be used, once for each reason: the keys of `failovers[]`",
    "compaction": "older turns were summarised: the keys of `compactions[]`",
    "rejection": "a proposal of which nothing was carried out: the keys of `rejections[]`",
    "worker": "no worker answers (`answers`: false), or one does again",
    "server": "the same of the server",
    "workflow_task": "it fails (`fails`: true, with `cause`, `message`, `attempt`, `since`, `reason`, `remedy`), or "
    "the task goes on again",
    "end": "the last one: `document` is what `--json` prints",
    "error": "instead of `end`, when the command cannot go on: `error`",
}
