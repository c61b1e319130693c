"""The plain view: a line for each thing that happens, once and in order, for files, pipes and simple terminals."""

from collections.abc import Callable, Hashable, Sequence

from console import closing, headings, notes, tree
from console.cells import printable
from console.follow import Silent, View
from console.options import Common
from console.sight import Sight
from console.step_lines import WIDTH, Columns
from console.view import words, words_again, words_failing
from console.workflow_task import FailingTask
from workflows.outcome import Outcome
from workflows.record import Revision


class Lines(View):
    """Says what is new about one task."""

    def __init__(self, common: Common, ui_url: str | None, say: Callable[[str], None], width: int = WIDTH) -> None:
        """Say each line through `say`; rows of steps are made for `width` columns."""
        self._common = common
        self._ui_url = ui_url
        self._say = say
        self._width = width
        self._plans = 0
        self._steps = set[tuple[str, int]]()
        self._notes = set[Hashable]()
        self._stays = 0
        self._began = self._undoing = False

    def see(self, sight: Sight) -> None:
        """Tell what is new."""
        self._tell(sight.outcome)

    def silence(self, who: Silent) -> None:
        """Say who does not answer."""
        self._say(f"  {printable(words(who, self._common.queue, self._common.at_queue))}")

    def answers(self, who: Silent) -> None:
        """Say who is back."""
        self._say(f"  {words_again(who)}")

    def failing(self, task: FailingTask | None) -> None:
        """Say why it cannot go on, and the way out."""
        self._say(f"  {words_failing(task)}")

    def end(self, outcome: Outcome) -> None:
        """Tell the rest, and how it ended."""
        self._tell(outcome)
        for line in closing.lines(outcome):
            self._say(line)

    def _tell(self, outcome: Outcome) -> None:
        if not outcome.planner and not outcome.ended_at:
            return
        if not self._began:
            self._began = True
            self._say(tree.heading(outcome, self._ui_url))
        columns = Columns(outcome, self._width)
        for what, told in notes.failovers(outcome).items():
            self._tell_once(what, told)
        for revision in [one for one in outcome.revisions if one.number > self._plans]:
            self._tell_steps(outcome, columns, before=revision.number)
            self._tell_notes(outcome, revision)
            for line in headings.lines(outcome, revision):
                self._say(line)
            self._plans = revision.number
        self._tell_steps(outcome, columns, before=self._plans + 1)
        self._tell_notes(outcome, None)
        self._tell_stays(outcome)

    def _tell_steps(self, outcome: Outcome, columns: Columns, before: int) -> None:
        for step in outcome.steps:
            told = (step.id, step.revision)
            if tree.has_ended(step) and step.revision < before and told not in self._steps:
                self._steps.add(told)
                self._begin_undo(wanted=tree.is_undo(step))
                for line in tree.step_lines(outcome, step, columns):
                    self._say(line)

    def _tell_notes(self, outcome: Outcome, before: Revision | None) -> None:
        for one, line in notes.above(outcome, before):
            self._tell_once(one, [line])

    def _tell_once(self, what: Hashable, lines: Sequence[str]) -> None:
        if what not in self._notes:
            self._notes.add(what)
            for line in lines:
                self._say(line)

    def _tell_stays(self, outcome: Outcome) -> None:
        for one in tree.not_tried(outcome)[self._stays :]:
            self._begin_undo(wanted=True)
            self._stays += 1
            self._say(tree.stays_line(one))

    def _begin_undo(self, *, wanted: bool) -> None:
        if wanted and not self._undoing:
            self._undoing = True
            self._say(tree.UNDO_HEADING)
