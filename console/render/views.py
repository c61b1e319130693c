"""How a followed task is printed: as lines (`LinesView`), as JSON events (`EventsView`), or only warnings on stderr.

The events of `--jsonl`, one JSON object per line: `task` once a worker has taken it up; `plan` for each revision;
`step` whenever the status, the attempts or the kind of a step has changed; `fault` with the decision; `failover` for a
planner that could not be used, `compaction` for a summary of older turns, `rejection` for a rejected proposal; `worker`
and `server` when one stops or starts answering; `workflow_task` when it fails and when the task goes on; `end` with the
document of `--json`. A task is read every quarter of a second, so a short status may be missed. A command that fails
ends with `error`.
"""

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TextIO

from client.follow import Silent, Snapshot, View
from client.problem import Problem
from client.text import printable, worker
from client.workflow_task import FailingTask
from console.options import Common
from console.render import document, tree
from console.render.tree import WIDTH, RowLayout
from workflows.outcome import Outcome

SCHEMA = 1


class StderrView(View):
    """Warns on stderr when a worker or the server does not answer; for a command whose stdout is one document."""

    def __init__(self, common: Common) -> None:
        self._common = common

    def silence(self, who: Silent) -> None:
        self._warn(no_answer(who, self._common.queue))

    def answers(self, who: Silent) -> None:
        self._warn("the server answers again" if who is Silent.SERVER else "a worker answers again")

    def failing(self, task: FailingTask | None) -> None:
        self._warn(workflow_task_state(task))

    def _warn(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)


class LinesView(StderrView):
    """Prints a task line by line: each step when it has ended."""

    def __init__(self, common: Common, ui_url: str | None, say: Callable[[str], None], width: int = WIDTH) -> None:
        super().__init__(common)
        self._ui_url, self._say, self._width = ui_url, say, width
        self._plans = 0
        self._told = set[Hashable]()
        self._stays = 0
        self._began = self._undoing = False

    def see(self, snapshot: Snapshot) -> None:
        self._report(snapshot.outcome)

    def _warn(self, sentence: str) -> None:
        self._say(f"  {sentence}")

    def end(self, outcome: Outcome) -> None:
        self._report(outcome)
        for line in tree.closing(outcome):
            self._say(line)

    def _report(self, outcome: Outcome) -> None:
        if not outcome.planner and not outcome.ended_at:
            return
        if not self._began:
            self._began = True
            self._say(tree.heading(outcome, self._ui_url))
        layout = RowLayout(outcome, self._width)
        for what, told in tree.failovers(outcome).items():
            self._print_once(what, told)
        for revision in [one for one in outcome.revisions if one.number > self._plans]:
            self._print_steps(outcome, layout, before=revision.number)
            for note, line in tree.notes_above(outcome, revision):
                self._print_once(note, [line])
            for line in tree.plan_heading(outcome, revision):
                self._say(line)
            self._plans = revision.number
        self._print_steps(outcome, layout, before=self._plans + 1)
        for note, line in tree.notes_above(outcome, None):
            self._print_once(note, [line])
        for one in tree.not_tried(outcome)[self._stays :]:
            self._begin_undo(wanted=True)
            self._stays += 1
            self._say(tree.stays_line(one))

    def _print_steps(self, outcome: Outcome, layout: RowLayout, before: int) -> None:
        for step in outcome.steps:
            told = (step.id, step.revision)
            if tree.has_ended(step) and step.revision < before and told not in self._told:
                self._begin_undo(wanted=tree.is_undo(step))
                self._print_once(told, tree.step_lines(outcome, step, layout))

    def _print_once(self, what: Hashable, lines: Sequence[str]) -> None:
        if what not in self._told:
            self._told.add(what)
            for line in lines:
                self._say(line)

    def _begin_undo(self, *, wanted: bool) -> None:
        if wanted and not self._undoing:
            self._undoing = True
            self._say(tree.UNDO_HEADING)


def line(event: str, **fields: Any) -> str:
    """An event on one line; the letters of all languages stay, line breaks do not."""
    return document.written({"schema": SCHEMA, "event": event, **fields}, indent=None)


def of_problem(problem: Problem) -> str:
    return line("error", error={"code": problem.code, "reason": problem.reason, "remedy": problem.remedy})


class EventsView(View):
    def __init__(self, common: Common, run_id: str | None, ui_url: str | None, out: TextIO) -> None:
        self._common = common
        self._place = {"run_id": run_id, "ui_url": ui_url}
        self._out = out
        self._began = False
        self._plans = 0
        self._written = set[tuple[str, object]]()
        self._steps = dict[tuple[str, int], tuple[Any, ...]]()

    def see(self, snapshot: Snapshot) -> None:
        attempts = {id: attempt.number for id, attempt in snapshot.attempts.items()}
        if snapshot.outcome.planner:
            self._report(snapshot.outcome, attempts)

    def silence(self, who: Silent) -> None:
        self._write(who, answers=False, queue=self._common.queue)

    def answers(self, who: Silent) -> None:
        self._write(who, answers=True, queue=self._common.queue)

    def failing(self, task: FailingTask | None) -> None:
        self._write("workflow_task", fails=task is not None, **(task.document() if task else {}))

    def end(self, outcome: Outcome) -> None:
        self._report(outcome, {})

    def close(self, whole: dict[str, Any]) -> None:
        """Write the last event, with the document of `--json`."""
        self._write("end", document=whole)

    def _report(self, outcome: Outcome, attempts: dict[str, int]) -> None:
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
            self._once("fault", which, fault.model_dump(mode="json"))
        for step in outcome.steps:
            count = attempts.get(step.id, step.attempts)
            stands, where = (step.status, count, step.kind), (step.id, step.revision)
            if self._steps.get(where) != stands:
                self._steps[where] = stands
                shown = step.model_dump(mode="json", include={"id", "kind", "title", "revision", "status"})
                self._write("step", **shown, attempts=count)

    def _once(self, event: str, which: object, fields: dict[str, Any]) -> None:
        if (event, which) not in self._written:
            self._written.add((event, which))
            self._write(event, **fields)

    def _write(self, event: str, **fields: Any) -> None:
        self._out.write(line(event, **fields) + "\n")
        self._out.flush()


def no_answer(who: Silent, queue: str) -> str:
    if who is Silent.SERVER:
        return "the server does not answer, still trying"
    return printable(f"no worker answers on queue {queue}: {worker(queue)}  (still waiting)")


def workflow_task_state(task: FailingTask | None) -> str:
    return printable(f"{task.problem()} (still waiting)") if task else "the task goes on again"
