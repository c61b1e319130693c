"""The words for each problem of a command, by its code in `{"error": {"code": ...}}`."""

from collections.abc import Mapping
from typing import NamedTuple

from console.problem import Exit


class Stopped(NamedTuple):
    """Why a command could not do what was asked."""

    exits: tuple[Exit, ...]
    means: str


USAGE, FAILED, AWAY = (Exit.BAD_USAGE,), (Exit.FAILED,), (Exit.UNREACHABLE,)

PROBLEMS: Mapping[str, Stopped] = {
    "usage": Stopped(USAGE, "An option or an argument is wrong, missing, or does not go with another."),
    "no_task": Stopped(USAGE, "Neither `--task` nor `--plan` says what to do."),
    "no_plan": Stopped(USAGE, "The file of `--plan` cannot be read."),
    "bad_plan": Stopped(USAGE, "The file of `--plan` is no plan, or too large."),
    "no_schema": Stopped(USAGE, "The file of `--result-schema` cannot be read."),
    "bad_schema": Stopped(USAGE, "The file of `--result-schema` is no JSON schema, or too large."),
    "bad_settings": Stopped(USAGE, "The settings file cannot be read, or says something that is no setting."),
    "bad_arguments": Stopped(USAGE, "The arguments of `call` are no JSON object."),
    "unknown_kind": Stopped(USAGE, "The worker has no tool of this name."),
    "unknown_id": Stopped(USAGE, "No task has this id, or one that begins so."),
    "many_ids": Stopped(USAGE, "More than one id begins so."),
    "no_tasks": Stopped(USAGE, "No id was given, and there is no task yet."),
    "other_task": Stopped(USAGE, "A task with this `--id` runs and was asked something else."),
    "closed": Stopped(
        (Exit.FAILED, Exit.BAD_USAGE),
        "The task has ended: `cancel` cannot stop it (1), `start` needs `--again` (2).",
    ),
    "still_running": Stopped(
        (Exit.FAILED, Exit.BAD_USAGE),
        "The task runs: `undo` takes back what a closed one did (1), `start --continue` carries on an ended one (2).",
    ),
    "not_undone": Stopped((Exit.NEEDS_PERSON,), "The rollback ended before it could say what it had undone."),
    "unknown_status": Stopped(USAGE, "`--status` is none of the statuses."),
    "bad_query": Stopped(USAGE, "The server cannot read `--query`."),
    "unknown_step": Stopped(USAGE, "The task has no such step."),
    "not_started": Stopped(USAGE, "The step of `reset --to` never started."),
    "changed_world": Stopped(FAILED, "`reset` would do again what a later step changed in the world."),
    "effect_stands": Stopped(
        FAILED,
        "`reset` goes back over an effect that stands and could be applied again under another key, or that `--undo`"
        " cannot undo.",
    ),
    "by_hand": Stopped(FAILED, "`reset --undo` or `--keep` needs a planner, and the plan was written by hand."),
    "untold": Stopped(FAILED, "`reset` could not tell the task what stands, so it was not reset."),
    "deadline": Stopped(FAILED, "`reset` would bring back a task that is past its deadline."),
    "overtaken": Stopped(FAILED, "The task was reset, but its old run had gone on meanwhile."),
    "no_file": Stopped(USAGE, "The file of `export` cannot be written."),
    "file_exists": Stopped(USAGE, "The file of `export` exists, and `--force` was not given."),
    "misconfigured": Stopped(USAGE, "An address, the environment or a profile cannot be used."),
    "unreachable": Stopped(AWAY, "No server answers, or it refuses the namespace or the credentials."),
    "no_worker": Stopped(AWAY, "No worker answers on the queue."),
    "workflow_task_fails": Stopped(
        (Exit.NEEDS_PERSON,),
        "The task runs, but its workflow task fails: [what to do](operations.md#a-tasks-workflow-task-fails).",
    ),
    "no_answer": Stopped(FAILED, "The worker's planner took too long."),
    "payload_lost": Stopped(FAILED, "The store lacks a large result that the new run of a reset needs."),
    "old_worker": Stopped(FAILED, "The worker is older than this command."),
    "refused": Stopped((Exit.FAILED, Exit.BAD_USAGE), "The worker (1) or the server (2) does not take this."),
}
