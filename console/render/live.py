"""The live view: draws the tree of a running task in place on a terminal, and the complete tree when the task ends."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from types import FrameType
from typing import Any, Self, TextIO

from client import tree
from client.follow import Silent, View
from client.lines import cut_line, wrap
from client.snapshot import Snapshot
from client.tasks import UNTOLD
from client.text import printable
from client.tree import LineGroup, LiveState, RowLayout
from client.wording import count, tokens_used
from client.workflow_task import FailingTask
from console.options import Common
from console.render import requests
from console.render.closing import closing_lines
from console.render.command import starter
from console.render.terminal import Keyboard, Screen, terminal_size
from console.render.views import busy_state, no_answer, workflow_task_state
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.inquiries import Capacity

GIVE_UP = 6
"""The search for groups of lines to show ends when more than this number of groups, one after another, do not fit."""
MAX_STEPS = 100
"""If a task has more steps, only a part of its tree is printed at the end."""
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class LiveView(View):
    """Draws a task in place: at each change that its Follower reports, and every POLL_SECONDS."""

    def __init__(self, common: Common, id: str, ui_url: str | None, out: TextIO) -> None:
        self._common, self._id, self._ui_url, self._out = common, id, ui_url, out
        self._screen, self._keyboard = Screen(out), Keyboard()
        self._snapshot: Snapshot | None = None
        self._silent: Silent | None = None
        self._failing: FailingTask | None = None
        self._busy: Capacity | None = None
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> Self:
        self._keyboard.disable_echo()
        self._before = signal.signal(signal.SIGCONT, self._resume)  # a handler of the loop would run too late
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:  # without a handler, they would leave the terminal without echo
            loop.add_signal_handler(number, self._die, number)
        self._draw()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGCONT, self._before)
        self._keyboard.restore()
        self._screen.end_line()

    def see(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._draw()

    def silence(self, who: Silent) -> None:
        self._silent = who
        self._draw()

    def answers(self, who: Silent) -> None:
        self._silent = None
        self._draw()

    def failing(self, task: FailingTask | None) -> None:
        self._failing = task
        self._draw()

    def busy(self, capacity: Capacity | None) -> None:
        self._busy = capacity
        self._draw()

    def tick(self) -> None:
        self._draw()

    def end(self, outcome: Outcome) -> None:
        width, _ = terminal_size(self._out)
        lines = [*final_lines(outcome, self._ui_url, width), *closing_lines(outcome)]
        self._screen.replace(row for line in lines for row in wrap(line, width))

    def _draw(self) -> None:
        columns, rows = terminal_size(self._out)
        width, height = columns - 1, rows - 1  # the cursor stays below the frame and never in the last column
        self._screen.draw(fit_frame(self._frame(width, height), width, height), is_open=self._takes_keys)

    @property
    def _takes_keys(self) -> bool:
        return False

    def _frame(self, width: int, height: int) -> list[str]:
        if self._snapshot is None:
            for_what = "a worker that can go on" if self._failing else "a worker"
            head = printable("  ".join(filter(None, [self._id, f"waiting for {for_what}", self._ui_url])))
            return _wrapped([head, *self._notes()], width)
        below = [*self._notes(), *self._request_lines(self._snapshot.outcome, width, height)]
        return self._running(self._snapshot, below, width, height)

    def _running(self, snapshot: Snapshot, below: Sequence[str], width: int, height: int) -> list[str]:
        return running_frame(snapshot, self._ui_url, below, width, height)

    def _request_lines(self, outcome: Outcome, width: int, height: int) -> list[str]:
        """The lines of the open requests; people can answer them in a second terminal."""
        return requests.lines(outcome)

    def _notes(self) -> list[str]:
        notes = [f"  {no_answer(self._silent, self._common.queue)}"] if self._silent else []
        notes += [f"  {workflow_task_state(self._failing)}"] if self._failing else []
        return notes + ([f"  {busy_state(self._busy)}"] if self._busy else [])

    def _resume(self, number: int, frame: FrameType | None) -> None:
        # The process was suspended, and the shell had the terminal: its output stays, the next frame is drawn below.
        self._keyboard.disable_echo()
        self._screen.leave_frame()

    def _die(self, number: signal.Signals) -> None:
        try:
            self._keyboard.restore()
            self._screen.end_line()
        finally:  # also if the terminal is gone
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def call_frame(snapshot: Snapshot, below: Sequence[str], width: int) -> list[str]:
    """A frame for a running `call`: its step, the state and the lines `below`, without a plan."""
    outcome, live = snapshot.outcome, LiveState.of(snapshot)
    steps = [line for step in outcome.steps for line in tree.step_lines(outcome, step, live=live)]
    return _wrapped([*steps, _state_line(outcome, live.at), *below], width)


def running_frame(snapshot: Snapshot, ui_url: str | None, below: Sequence[str], width: int, height: int) -> list[str]:
    """A frame for a running task: the heading, as much of the tree as fits into `height` lines, the state, `below`."""
    outcome, live = snapshot.outcome, LiveState.of(snapshot)
    head = wrap(tree.heading(outcome, ui_url), width)
    waits = [*tree.waiting_lines(outcome), *tree.paused_lines(outcome)]
    doing = [*map(tree.activity_line, snapshot.doing), *_wrapped(waits, width)]
    doing += tree.words_lines(snapshot.words, width, height)
    foot = [*doing, *_wrapped([_state_line(outcome, live.at), *below], width)]
    # The rows are laid out for the columns of the terminal, of which `width` leaves out the last.
    groups = tree.line_groups(outcome, RowLayout(outcome, width + 1), live)
    groups = [replace(group, lines=_wrapped(group.lines, width)) for group in groups]
    return head + fit_groups(groups, height - len(head) - len(foot)) + foot


def final_lines(outcome: Outcome, ui_url: str | None, width: int) -> list[str]:
    """The heading and the tree that stay on the terminal, above the closing lines, when the task has ended."""
    groups = tree.line_groups(outcome, RowLayout(outcome, width))
    steps = sum(group.step is not None for group in groups)
    if steps <= MAX_STEPS:
        return tree.body(outcome, ui_url, width)
    rest = f"All {steps} steps: {starter('show', outcome.task_id)}"
    return [tree.heading(outcome, ui_url), *fit_groups(groups, MAX_STEPS), rest]


def fit_frame(lines: Sequence[str], width: int, height: int) -> list[str]:
    """The last `height` lines, cut to `width` cells."""
    # The last lines say how the task stands, so lines are dropped at the top.
    return [cut_line(line, width) for line in lines[max(0, len(lines) - height) :]]


def _state_line(outcome: Outcome, at: datetime) -> str:
    steps = [step for step in outcome.steps if step.status is not StepStatus.SKIPPED and not tree.is_undo(step)]
    done = sum(tree.has_ended(step) for step in steps)
    counts = f"{done} of {count(len(steps), 'step')}, " if steps else ""
    counts += count(outcome.spent.tool_calls, "tool call")
    counts += f", {tokens_used(outcome.spent)}" if outcome.spent.model_calls else ""
    time = tree.duration((at - outcome.started_at).total_seconds(), digits=1)
    known = "" if outcome.code == UNTOLD else f": {counts}"
    return tree.status_line(outcome.status, f"for {time}{known}  (Ctrl-C detaches)")


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    return [row for line in lines for row in wrap(line, width)]


def fit_groups(groups: Sequence[LineGroup], room: int) -> list[str]:
    """At most `room` lines of the groups, in order; hidden groups become a line such as `... 143 finished above`."""
    if sum(len(group.lines) for group in groups) <= room:
        return [line for group in groups for line in group.lines]
    chosen, misses = dict[int, int](), 0
    for index in _ranked(groups):
        taken = _try(groups, chosen, index, room)
        misses = 0 if taken else misses + 1
        if misses > GIVE_UP:
            break
    return _lines(groups, chosen)[: max(room, 0)]


def _try(groups: Sequence[LineGroup], chosen: dict[int, int], index: int, room: int) -> bool:
    """Add the group `index` to `chosen` (the number of shown lines by group); returns whether there is room for it."""
    header = max(at for at in range(index + 1) if groups[at].step is None)
    count = len(groups[index].lines)
    # The group is shown with the heading of its plan, and with its first line only if there is no room for all.
    ways = [{header: 1, **chosen, index: max(lines, chosen.get(index, 0))} for lines in (count, 1)]
    ways += [] if chosen else [{index: 1}]  # a tiny terminal shows at least one step that runs
    for way in ways:
        # Each row of hidden groups is replaced by one line.
        gaps = sum(at not in way and (at == 0 or at - 1 in way) for at in range(len(groups)))
        if sum(way.values()) + gaps <= room:
            chosen.update(way)
            return True
    return False


def _ranked(groups: Sequence[LineGroup]) -> list[int]:
    """The indices of the groups, the most important first: running steps, the newest plan, failures, then the rest.

    In the rest, two finished steps (the newest first) come for each pending step (the next first).
    """
    newest = max((group.revision for group in groups), default=0)
    ended = [at for at in range(len(groups)) if _status(groups[at]) is StepStatus.COMPLETED]
    ended.sort(key=lambda at: _end_timestamp(groups[at]), reverse=True)
    age = {at: position for position, at in enumerate(ended)}
    pending = [at for at in range(len(groups)) if _status(groups[at]) is StepStatus.PENDING]
    order = {at: position for position, at in enumerate(pending)}

    def rank(at: int) -> int:
        group, status = groups[at], _status(groups[at])
        if status in (StepStatus.RUNNING, StepStatus.WAITING, StepStatus.PAUSED):
            return 0
        if status is None:
            return 1 if group.revision == newest else len(groups) + 1
        if status is StepStatus.COMPLETED:
            # A finished step of the newest plan that needed more than one line met a fault, so it comes earlier.
            return 3 + age[at] - (2 if len(group.lines) > 1 and group.revision == newest else 0)
        return 4 + 2 * order[at] if status is StepStatus.PENDING else 2 + newest - group.revision

    return sorted(range(len(groups)), key=rank)


def _end_timestamp(group: LineGroup) -> float:
    return group.step.ended.timestamp() if group.step and group.step.ended else 0.0


def _status(group: LineGroup) -> StepStatus | None:
    return group.step.status if group.step else None


def _lines(groups: Sequence[LineGroup], chosen: dict[int, int]) -> list[str]:
    lines = list[str]()
    steps = [at for at in chosen if groups[at].step]
    for is_shown, run in groupby(range(len(groups)), key=chosen.__contains__):
        places = list(run)
        if is_shown:
            lines += [line for at in places for line in groups[at].lines[: chosen[at]]]
        elif len(places) == 1:
            lines.append(groups[places[0]].lines[0])  # a line about what is hidden needs as much room
        else:
            below = " below" if places[0] > max(steps, default=0) else ""
            where = " above" if places[-1] < min(steps, default=0) else below
            lines.append(_gap_line([groups[at] for at in places], where))
    return lines


def _gap_line(hidden: Sequence[LineGroup], where: str) -> str:
    counts = Counter(group.step.status for group in hidden if group.step)
    plans = sum(group.step is None and group.lines[0].startswith("Plan") for group in hidden)
    parts = [count(plans, "plan")] if plans else []
    parts += [
        f"{number} {'finished' if status is StepStatus.COMPLETED else status.value}"
        for status, number in counts.items()
    ]
    return f"  ... {', '.join(parts) or 'more'}{where}"
