"""The pictures of the live view: before anybody has begun, while a task runs, and the last one, which stays."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from console import closing, tree
from console.cells import cut, one_line, printable, wrapped
from console.shown import starter
from console.sight import Sight
from console.step_lines import Columns, duration
from console.window import fitted
from workflows.outcome import Outcome
from workflows.record import StepStatus

MAX_WHOLE = 100
"""Steps of which the last picture shows all; of more it shows what matters and says where the rest is."""


def waiting(id: str, for_what: str, ui_url: str | None, notes: Sequence[str], width: int) -> list[str]:
    """A task of which nobody has told anything yet."""
    head = printable("  ".join(filter(None, [id, f"waiting for {for_what}", ui_url])))
    return [*wrapped(head, width).split("\n"), *_wrapped(notes, width)]


def running(sight: Sight, ui_url: str | None, notes: Sequence[str], width: int, height: int) -> list[str]:
    """At most `height` lines: heading, the part of the tree that matters, how it stands, `notes`."""
    outcome, now = sight.outcome, sight.now()
    head = wrapped(tree.heading(outcome, ui_url), width).split("\n")
    doing = [f"  ● {one_line(what)}" for what in sight.doing]
    foot = [*doing, *_wrapped([_standing(outcome, now.at), *notes], width)]
    told = tree.blocks(outcome, Columns(outcome, width + 1), now)
    told = [replace(block, lines=_wrapped(block.lines, width)) for block in told]
    return head + fitted(told, height - len(head) - len(foot)) + foot


def ended(outcome: Outcome, ui_url: str | None, width: int) -> list[str]:
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
