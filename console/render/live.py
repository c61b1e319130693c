"""The live view: a task as a tree at the end of a terminal, replaced by the complete tree when the task ends."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

from client.follow import Silent, Snapshot, View
from client.text import cut, one_line, printable, starter
from client.workflow_task import FailingTask
from console.options import Common
from console.render import tree
from console.render import tree as closing
from console.render.terminal import Keys, Paint, Screen, size, wrapped
from console.render.tree import Block, Columns, duration
from console.render.views import words, words_failing
from workflows.outcome import Outcome
from workflows.record import StepStatus

GIVE_UP = 6
"""Blocks in a row that find no room, after which no further one is tried."""
WORDS = {StepStatus.COMPLETED: "finished"}
FIRST = (StepStatus.RUNNING, StepStatus.WAITING)


def fitted(blocks: Sequence[Block], room: int) -> list[str]:
    """The lines of `blocks`, in order and at most `room` of them, with `... 143 finished above` for what is left out.

    Every block that is shown stands below its plan's line; one that finds no room for all its lines shows the first.
    """
    if sum(len(block.lines) for block in blocks) <= room:
        return [line for block in blocks for line in block.lines]
    chosen, misses = dict[int, int](), 0
    for index in _ranked(blocks):
        taken = _try(blocks, chosen, index, room)
        misses = 0 if taken else misses + 1
        if misses > GIVE_UP:
            break
    return _lines(blocks, chosen)[: max(room, 0)]


def _try(blocks: Sequence[Block], chosen: dict[int, int], index: int, room: int) -> bool:
    header = max(at for at in range(index + 1) if blocks[at].step is None)
    count = len(blocks[index].lines)
    ways = [{header: 1, **chosen, index: max(lines, chosen.get(index, 0))} for lines in (count, 1)]
    ways += [] if chosen else [{index: 1}]  # a tiny terminal shows at least one step that runs
    for way in ways:
        if _height(blocks, way) <= room:
            chosen.update(way)
            return True
    return False


def _height(blocks: Sequence[Block], chosen: dict[int, int]) -> int:
    gaps = sum(1 for at in range(len(blocks)) if at not in chosen and (at == 0 or at - 1 in chosen))
    return sum(chosen.values()) + gaps


def _ranked(blocks: Sequence[Block]) -> list[int]:
    """Indices, the most important first: what runs, the newest plan, failures, the last finished, the next pending."""
    newest = max((block.revision for block in blocks), default=0)
    ended = [at for at in range(len(blocks)) if _status(blocks[at]) is StepStatus.COMPLETED]
    ended.sort(key=lambda at: _ended(blocks[at]), reverse=True)
    age = {at: place for place, at in enumerate(ended)}
    pending = [at for at in range(len(blocks)) if _status(blocks[at]) is StepStatus.PENDING]
    turn = {at: place for place, at in enumerate(pending)}

    def rank(at: int) -> float:
        block, status = blocks[at], _status(blocks[at])
        if status in FIRST:
            return 0
        if status is None:
            return 1 if block.revision == newest else len(blocks) + 1
        if status is StepStatus.COMPLETED:
            return 3 + age[at] - (2 if len(block.lines) > 1 and block.revision == newest else 0)
        return 4 + 2 * turn[at] if status is StepStatus.PENDING else 2 + newest - block.revision

    return sorted(range(len(blocks)), key=rank)


def _ended(block: Block) -> float:
    return block.step.ended.timestamp() if block.step and block.step.ended else 0.0


def _status(block: Block) -> StepStatus | None:
    return block.step.status if block.step else None


def _lines(blocks: Sequence[Block], chosen: dict[int, int]) -> list[str]:
    lines, hidden = list[str](), list[int]()
    steps = [at for at in chosen if blocks[at].step]
    for at in range(len(blocks) + 1):
        if at < len(blocks) and at not in chosen:
            hidden.append(at)
            continue
        if len(hidden) == 1:
            lines.append(blocks[hidden[0]].lines[0])  # a line that says what is hidden would be as long
        elif hidden:
            lines.append(_gap([blocks[one] for one in hidden], _where(hidden, steps)))
        hidden = []
        if at < len(blocks):
            lines += blocks[at].lines[: chosen[at]]
    return lines


def _where(hidden: Sequence[int], shown: Sequence[int]) -> str:
    if hidden[-1] < min(shown, default=0):
        return " above"
    return " below" if hidden[0] > max(shown, default=0) else ""


def _gap(hidden: Sequence[Block], where: str) -> str:
    counts = Counter(block.step.status for block in hidden if block.step)
    plans = sum(block.step is None and block.lines[0].startswith("Plan") for block in hidden)
    said = [f"{plans} plan{'' if plans == 1 else 's'}"] if plans else []
    said += [f"{number} {WORDS.get(one, one.value)}" for one, number in counts.items()]
    return f"  ... {', '.join(said) or 'more'}{where}"


MAX_WHOLE = 100
"""Steps of which the last picture shows all; of more it shows what matters and says where the rest is."""


def waiting_picture(id: str, for_what: str, ui_url: str | None, notes: Sequence[str], width: int) -> list[str]:
    """A task of which nobody has told anything yet."""
    head = printable("  ".join(filter(None, [id, f"waiting for {for_what}", ui_url])))
    return [*wrapped(head, width).split("\n"), *_wrapped(notes, width)]


def running_picture(snapshot: Snapshot, ui_url: str | None, notes: Sequence[str], width: int, height: int) -> list[str]:
    """At most `height` lines: heading, the part of the tree that matters, how it stands, `notes`."""
    outcome, now = snapshot.outcome, tree.Now(datetime.now(UTC), snapshot.attempts)
    head = wrapped(tree.heading(outcome, ui_url), width).split("\n")
    doing = [f"  ● {one_line(what)}" for what in snapshot.doing]
    foot = [*doing, *_wrapped([_standing(outcome, now.at), *notes], width)]
    told = tree.blocks(outcome, Columns(outcome, width + 1), now)
    told = [replace(block, lines=_wrapped(block.lines, width)) for block in told]
    return head + fitted(told, height - len(head) - len(foot)) + foot


def final_picture(outcome: Outcome, ui_url: str | None, width: int) -> list[str]:
    """Heading and tree as they stay above the closing lines."""
    lines = [tree.heading(outcome, ui_url)]
    blocks = tree.blocks(outcome, Columns(outcome, width))
    steps = sum(block.step is not None for block in blocks)
    lines += fitted(blocks, MAX_WHOLE if steps > MAX_WHOLE else sum(len(block.lines) for block in blocks))
    if steps > MAX_WHOLE:
        lines.append(f"All {steps} steps: {starter('show', outcome.task_id)}")
    return lines


def fit(lines: Sequence[str], width: int, height: int) -> list[str]:
    """At most `height` lines of at most `width` cells; the last ones, which say how it stands, stay."""
    return [cut(line, width) for line in lines[max(0, len(lines) - height) :]]


def _standing(outcome: Outcome, at: datetime) -> str:
    steps = [step for step in outcome.steps if step.status is not StepStatus.SKIPPED and not tree.is_undo(step)]
    done = sum(tree.has_ended(step) for step in steps)
    counts = f"{done} of {closing.count(len(steps), 'step')}, " if steps else ""
    counts += closing.count(outcome.spent.tool_calls, "tool call")
    counts += f", {outcome.spent.tokens:,} tokens" if outcome.spent.model_calls else ""
    status = outcome.status.capitalize()
    time = duration((at - outcome.started_at).total_seconds(), digits=1)
    return f"{status} for {time}: {counts}  (Ctrl-C detaches)"


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    return [row for line in lines for row in wrapped(printable(line), width).split("\n")]


WAYS_TO_DIE = (signal.SIGTERM, signal.SIGHUP)


class Live(View):
    """Draws a task again whenever something changed or the clock ticked."""

    def __init__(self, common: Common, id: str, ui_url: str | None, out: TextIO) -> None:
        """Draw the task `id` on the terminal `out`."""
        self._common, self._id, self._ui_url, self._out = common, id, ui_url, out
        self._screen, self._keys, self._paint = Screen(out), Keys(), Paint.of(out)
        self._snapshot: Snapshot | None = None
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

    def see(self, snapshot: Snapshot) -> None:
        """Draw it."""
        self._snapshot = snapshot
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
        lines = final_picture(outcome, self._ui_url, width)
        self._out.write("".join(f"{line}\n" for line in self._paint.whole(lines, tree.closing_lines(outcome), width)))
        self._out.flush()

    def _draw(self) -> None:
        columns, rows = size(self._out)
        width, height = columns - 1, rows - 1  # the cursor stays below the picture and never in the last column
        self._screen.draw(fit(self._picture(width, height), width, height), self._painted)

    def _painted(self, line: str) -> str:
        return self._paint.headline(self._paint.body(line))

    def _picture(self, width: int, height: int) -> list[str]:
        common = self._common
        notes = [f"  {words(self._silent, common.queue, common.at_queue)}"] if self._silent else []
        notes += [f"  {words_failing(self._failing)}"] if self._failing else []
        if self._snapshot is None:
            for_what = "a worker that can go on" if self._failing else "a worker"
            return waiting_picture(self._id, for_what, self._ui_url, notes, width)
        return running_picture(self._snapshot, self._ui_url, notes, width, height)

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
