"""How a followed task is printed: as lines (`LinesView`), as JSON events (`EventsView`), or only warnings on stderr."""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from client import document, tree
from client.events import Events, Listener, ModelSays, TaskEvent, event_fields
from client.follow import Silent, View
from client.lines import Line, wrap
from client.remedy import as_command
from client.snapshot import Snapshot
from client.text import one_line, printable, worker
from client.tree import WIDTH, RowLayout
from client.wording import pause_text
from client.workflow_task import FailingTask
from console.options import Common
from console.render import requests
from console.render.closing import closing_lines
from workflows.account.outcome import Outcome
from workflows.inquiries import Capacity
from workflows.text import legible
from workflows.unfinished import Unfinished

MAX_WORD = 1_000
"""The most characters without a blank that are printed as one line."""


class StderrView(View):
    """Warns on stderr if no worker or server answers; for a command whose stdout is one document."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._pauses = set[tuple[str | None, datetime | None]]()

    def see(self, snapshot: Snapshot) -> None:
        """Warn once about each pause of the task or of an activity."""
        for pause in snapshot.outcome.paused:
            if (which := (pause.activity, pause.since)) not in self._pauses:
                self._pauses.add(which)
                name = one_line(pause.activity or "the task")
                self._warn(f"{name} is {pause_text(pause)}; resume: {pause.resume}")

    def silence(self, who: Silent) -> None:
        self._warn(no_answer(who, self._common.queue))

    def answers(self, who: Silent) -> None:
        self._warn("the server answers again" if who is Silent.SERVER else "a worker answers again")

    def failing(self, task: FailingTask | None) -> None:
        self._warn(workflow_task_state(task))

    def busy(self, capacity: Capacity | None) -> None:
        self._warn(busy_state(capacity))

    def _warn(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)


class LinesView(StderrView):
    """Prints a task line by line: each plan when it is accepted, and each step when it has ended."""

    def __init__(self, common: Common, ui_url: str | None, say: Callable[[str], None], width: int = WIDTH) -> None:
        super().__init__(common)
        self._ui_url, self._say, self._width = ui_url, say, width
        self._plans = 0
        self._printed = set[Hashable]()
        self._stays = 0
        self._words = WordLines(say, width)

    def see(self, snapshot: Snapshot) -> None:
        self._words.see(snapshot.words)
        self._report(snapshot.outcome)
        super().see(snapshot)

    def _warn(self, sentence: str) -> None:
        self._say(f"  {sentence}")

    def end(self, outcome: Outcome) -> None:
        self._words.see({})
        self._report(outcome)
        for line in closing_lines(outcome):
            self._say(line)

    def _report(self, outcome: Outcome) -> None:
        if not outcome.planner and not outcome.ended_at:
            return  # no worker has taken the task up, so even the heading is not known
        self._print_once("heading", [tree.heading(outcome, self._ui_url)])
        layout = RowLayout(outcome, self._width)
        for what, lines in tree.failovers(outcome).items():
            self._print_once(what, lines)
        for revision in [revision for revision in outcome.revisions if revision.number > self._plans]:
            self._print_steps(outcome, layout, before_plan=revision.number)  # steps of earlier plans come first
            for note, line in tree.notes_above(outcome, revision):
                self._print_once(note, [line])
            for line in tree.plan_heading(outcome, revision):
                self._say(line)
            self._plans = revision.number
        self._print_steps(outcome, layout, before_plan=self._plans + 1)
        for note, line in tree.notes_above(outcome, None):
            self._print_once(note, [line])
        self._print_once(outcome.waiting, tree.waiting_lines(outcome))
        opened = [request for request in outcome.requests if request.is_open]
        for request in outcome.requests:
            asker, asked = requests.asker(outcome), ("asked", request.id)
            if request.is_open:
                self._print_once(asked, requests.request_lines(request, asker, is_alone=len(opened) <= 1))
            else:
                self._print_once(asked, requests.closed_lines(outcome, request))
            for number, line in enumerate(requests.endorsed(request)):
                self._print_once(("endorsed", request.id, number), [line])
            if not request.is_open:
                self._print_once(("answered", request.id), requests.answered(request))
        for record in tree.not_tried(outcome)[self._stays :]:
            self._print_once(tree.UNDO_HEADING, [tree.UNDO_HEADING])
            self._stays += 1
            self._say(tree.stays_line(record))

    def _print_steps(self, outcome: Outcome, layout: RowLayout, before_plan: int) -> None:
        for step in outcome.steps:
            key = (step.id, step.revision)
            if tree.has_ended(step) and step.revision < before_plan and key not in self._printed:
                if tree.is_undo(step):
                    self._print_once(tree.UNDO_HEADING, [tree.UNDO_HEADING])
                self._print_once(key, tree.step_lines(outcome, step, layout))

    def _print_once(self, what: Hashable, lines: Sequence[str]) -> None:
        if what not in self._printed:
            self._printed.add(what)
            for line in lines:
                self._say(line)


class WordLines:
    """Prints the replies of models line by line as they arrive, each reply below a line that calls it unfinished."""

    def __init__(self, say: Callable[[str], None], width: int) -> None:
        self._say, self._width = say, width - 4
        self._listener = Listener()
        self._rests = dict[str, tuple[ModelSays, str]]()
        """By activity that waits for a model: the newest event, and the part of the next line that has arrived."""
        self._speaker: tuple[str, str] | None = None
        """The activity and the reply of the last line that was printed."""

    def see(self, words: Mapping[str, Unfinished]) -> None:
        """Print the lines that are complete now; `words` are those of a Snapshot."""
        for said in self._listener.news(words):
            before, rest = self._rests.pop(said.activity, (said, ""))
            if said.is_over or before.reply != said.reply:
                self._print(before, rest)
                rest = ""
            if not said.is_over:
                *lines, rest = self._rows(rest + said.text)
                for line in lines:
                    self._print(said, line)
                self._rests[said.activity] = (said, rest)

    def _rows(self, text: str) -> list[str]:
        """The text split into lines; the last line is not complete yet."""
        *lines, last = text.split("\n")
        *rows, rest = wrap(last, self._width) if last.strip() else [last]
        if len(rest) > MAX_WORD:  # no blank to break it at
            return [*lines, *rows, rest, ""]
        return [*lines, *rows, rest + " " * (last[-1:].isspace() and not rest[-1:].isspace())]

    def _print(self, said: ModelSays, line: str) -> None:
        shown = legible(line)
        if not shown:
            return
        if self._speaker != (said.activity, said.reply):
            self._speaker = (said.activity, said.reply)
            self._say(tree.says_line(said.activity))
        self._say(Line(f"    {shown}", "dim"))


class EventsView(Events):
    """Writes the events of `--jsonl`, one JSON object per line; docs/console.md lists them."""

    def __init__(self, common: Common, run_id: str | None, ui_url: str | None, out: TextIO) -> None:
        super().__init__(self._write)
        self._common = common
        self._links = {"run_id": run_id, "ui_url": ui_url}
        self._out = out

    def close(self, whole: dict[str, Any]) -> None:
        """Write the last event, with the document of `--json`."""
        self._write_line("end", document=whole)

    def _write(self, event: TaskEvent, cursor: str) -> None:
        if event_row := event_fields(event, self._common.queue, as_command):
            name, fields = event_row
            self._write_line(name, **fields, **(self._links if name == "task" else {}))

    def _write_line(self, event: str, **fields: Any) -> None:
        self._out.write(document.of_event(event, **fields) + "\n")
        self._out.flush()


def no_answer(who: Silent, queue: str) -> str:
    """The words for the fact that the server, or every worker of `queue`, does not answer."""
    if who is Silent.SERVER:
        return "the server does not answer, still trying"
    return printable(f"no worker answers on queue {queue}: {worker(queue)}  (still waiting)")


def busy_state(capacity: Capacity | None) -> str:
    """The words for a worker whose slots are all in use or, with None, that has free slots again."""
    if capacity is None:
        return "the worker has free slots again"
    return f"the worker is busy: {capacity}; a step waits for a slot (--slots of the worker, or another worker)"


def workflow_task_state(task: FailingTask | None) -> str:
    """The words for a task whose workflow task fails or, with None, that goes on again."""
    return printable(f"{task.problem().sentence(as_command)} (still waiting)") if task else "the task goes on again"
