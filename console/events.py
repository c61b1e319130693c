"""The view for programs: one JSON object a line for each thing that happens, `--jsonl`.

`task` once a worker knows it; `plan` for each revision; `step` whenever a step's status, attempts or kind is another
than before; `fault` with what followed it; `failover` for a planner that could not be used, `compaction` for older
turns that were summarised, `rejection` for a proposal of which nothing was carried out; `worker` and `server` when one
falls silent or answers again; `workflow_task` when it fails and when the task goes on; `end` with the whole document of
`--json`. Between two looks at a task (a quarter of a second) a status may be passed over. A command that cannot do what
was asked ends with `error`.
"""

from typing import TYPE_CHECKING, Any, TextIO

from console import document
from console.follow import Silent, View
from console.problem import Problem

if TYPE_CHECKING:
    from console.options import Common
    from console.sight import Sight
    from console.workflow_task import FailingTask
    from workflows.outcome import Outcome

SCHEMA = 1


def line(event: str, **fields: Any) -> str:
    """An event on one line; the letters of all languages stay, line breaks do not."""
    return document.written({"schema": SCHEMA, "event": event, **fields}, indent=None)


def of_problem(problem: Problem) -> str:
    """The event of a command that could not do what was asked."""
    return line("error", error={"code": problem.code, "reason": problem.reason, "remedy": problem.remedy})


class Events(View):
    """Writes one line for each thing that happens."""

    def __init__(self, common: "Common", run_id: str | None, ui_url: str | None, out: TextIO) -> None:
        """Write to `out`; `run_id` and `ui_url` are told with the task."""
        self._common = common
        self._place = {"run_id": run_id, "ui_url": ui_url}
        self._out = out
        self._began = False
        self._plans = 0
        self._told = set[tuple[str, object]]()
        self._faults = set[tuple[Any, ...]]()
        self._steps = dict[tuple[str, int], tuple[Any, ...]]()

    def see(self, sight: "Sight") -> None:
        """Tell what is new."""
        attempts = {id: attempt.number for id, attempt in sight.attempts.items()}
        if sight.outcome.planner:
            self._tell(sight.outcome, attempts)

    def silence(self, who: Silent) -> None:
        """Say who does not answer."""
        self._write(who, answers=False, queue=self._common.queue)

    def answers(self, who: Silent) -> None:
        """Say who is back."""
        self._write(who, answers=True, queue=self._common.queue)

    def failing(self, task: "FailingTask | None") -> None:
        """Say why it cannot go on, and the way out."""
        self._write("workflow_task", fails=task is not None, **(task.document() if task else {}))

    def end(self, outcome: "Outcome") -> None:
        """Tell the rest; the event `end` follows with the document, whose fields only the server knows."""
        self._tell(outcome, {})

    def close(self, whole: dict[str, Any]) -> None:
        """The last event, with the document of `--json`."""
        self._write("end", document=whole)

    def _tell(self, outcome: "Outcome", attempts: dict[str, int]) -> None:
        if not self._began:
            self._began = True
            chosen = {"task_id", "task", "planner", "strategy", "started_at"}
            self._write("task", **outcome.model_dump(mode="json", include=chosen), **self._place)
        for revision in [one for one in outcome.revisions if one.number > self._plans]:
            self._plans = revision.number
            self._write("plan", **revision.model_dump(mode="json"))
        for one in outcome.failovers:
            self._once("failover", (one.planner, one.code), one.model_dump(mode="json"))
        for compaction in outcome.compactions:
            self._once("compaction", compaction.turn, compaction.model_dump(mode="json"))
        for rejection in outcome.rejections:
            self._once("rejection", rejection.turn, rejection.model_dump(mode="json"))
        for fault in outcome.faults:
            which = (fault.step_id, fault.revision, fault.attempt, fault.decision, fault.at)
            if which not in self._faults:
                self._faults.add(which)
                self._write("fault", **fault.model_dump(mode="json"))
        for step in outcome.steps:
            count = attempts.get(step.id, step.attempts)
            stands, where = (step.status, count, step.kind), (step.id, step.revision)
            if self._steps.get(where) != stands:
                self._steps[where] = stands
                shown = step.model_dump(mode="json", include={"id", "kind", "title", "revision", "status"})
                self._write("step", **shown, attempts=count)

    def _once(self, event: str, which: object, fields: dict[str, Any]) -> None:
        if (event, which) not in self._told:
            self._told.add((event, which))
            self._write(event, **fields)

    def _write(self, event: str, **fields: Any) -> None:
        self._out.write(line(event, **fields) + "\n")
        self._out.flush()
