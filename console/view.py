"""Where a follower tells what it sees; the lines, the live tree and the events are such views."""

import sys
from typing import TYPE_CHECKING

from console.cells import printable
from console.follow import Silent, View

if TYPE_CHECKING:  # they take half a second, which a mistake in the usage need not wait for
    from console.options import Common
    from console.workflow_task import FailingTask


class Aside(View):
    """Says only who is silent, and not on stdout: for what prints one document, or one result, at the end."""

    def __init__(self, common: "Common") -> None:
        """Name the queue of `common`."""
        self._common = common

    def silence(self, who: Silent) -> None:
        """Say who does not answer."""
        print(printable(words(who, self._common.queue, self._common.at_queue)), file=sys.stderr, flush=True)

    def answers(self, who: Silent) -> None:
        """Say who is back."""
        print(words_again(who), file=sys.stderr, flush=True)

    def failing(self, task: "FailingTask | None") -> None:
        """Say why it cannot go on, and the way out."""
        print(words_failing(task), file=sys.stderr, flush=True)


def words(who: Silent, queue: str, at_queue: str) -> str:
    """What is said of somebody's silence."""
    if who is Silent.SERVER:
        return "the server does not answer, still trying"
    return f"no worker answers on queue {queue}: python worker.py{at_queue}  (still waiting)"


def words_again(who: Silent) -> str:
    """What is said when it is over."""
    return "the server answers again" if who is Silent.SERVER else "a worker answers again"


def words_failing(task: "FailingTask | None") -> str:
    """What is said of a task whose workflow task fails, and when it goes on."""
    return printable(f"{task.problem()} (still waiting)") if task else "the task goes on again"
