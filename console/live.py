"""The live view: a task as a tree at the end of a terminal, replaced by the complete tree when the task ends."""

import asyncio
import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

from console import closing, picture
from console.follow import Silent, View
from console.options import Common
from console.paint import Paint
from console.screen import Keys, Screen, size
from console.sight import Sight
from console.view import words, words_failing
from console.workflow_task import FailingTask
from workflows.outcome import Outcome

WAYS_TO_DIE = (signal.SIGTERM, signal.SIGHUP)


class Live(View):
    """Draws a task again whenever something changed or the clock ticked."""

    def __init__(self, common: Common, id: str, ui_url: str | None, out: TextIO) -> None:
        """Draw the task `id` on the terminal `out`."""
        self._common, self._id, self._ui_url, self._out = common, id, ui_url, out
        self._screen, self._keys, self._paint = Screen(out), Keys(), Paint.of(out)
        self._sight: Sight | None = None
        self._silent: Silent | None = None
        self._failing: FailingTask | None = None
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> Self:
        """Take the keys, and the first picture: a task that nobody has begun."""
        self._keys.hide()
        self._before = signal.signal(signal.SIGCONT, self._resume)  # not the loop's, which may draw once before
        loop = asyncio.get_running_loop()
        for number in WAYS_TO_DIE:
            loop.add_signal_handler(number, self._die, number)
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the keys back."""
        loop = asyncio.get_running_loop()
        for number in WAYS_TO_DIE:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGCONT, self._before)
        self._keys.show()

    def see(self, sight: Sight) -> None:
        """Draw it."""
        self._sight = sight
        self._draw()

    def silence(self, who: Silent) -> None:
        """Say so below the tree for as long as it lasts."""
        self._silent = who
        self._draw()

    def answers(self, who: Silent) -> None:
        """Take that away again."""
        self._silent = None
        self._draw()

    def failing(self, task: FailingTask | None) -> None:
        """Say why it cannot go on for as long as it cannot."""
        self._failing = task
        self._draw()

    def tick(self) -> None:
        """Let the clocks go on."""
        self._draw()

    def end(self, outcome: Outcome) -> None:
        """Replace the picture by the complete tree, which stays."""
        width, _ = size(self._out)
        self._screen.clear()
        lines = picture.ended(outcome, self._ui_url, width)
        self._out.write("".join(f"{line}\n" for line in self._paint.whole(lines, closing.lines(outcome), width)))
        self._out.flush()

    def _draw(self) -> None:
        columns, rows = size(self._out)
        width, height = columns - 1, rows - 1  # the cursor stays below the picture and never in the last column
        self._screen.draw(picture.fit(self._picture(width, height), width, height), self._painted)

    def _painted(self, line: str) -> str:
        return self._paint.headline(self._paint.body(line))

    def _picture(self, width: int, height: int) -> list[str]:
        common = self._common
        notes = [f"  {words(self._silent, common.queue, common.at_queue)}"] if self._silent else []
        notes += [f"  {words_failing(self._failing)}"] if self._failing else []
        if self._sight is None:
            for_what = "a worker that can go on" if self._failing else "a worker"
            return picture.waiting(self._id, for_what, self._ui_url, notes, width)
        return picture.running(self._sight, self._ui_url, notes, width, height)

    def _resume(self, number: int, frame: FrameType | None) -> None:
        """The shell had the terminal: leave what it shows, and draw below."""
        self._keys.hide()
        self._screen.forget()

    def _die(self, number: signal.Signals) -> None:
        """End as the signal asks, with the keys given back; a terminal that is gone takes nothing."""
        try:
            self._keys.show()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
