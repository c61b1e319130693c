"""The last lines about a task, with the commands that tell more."""

from client.lines import Line
from client.tasks import CLOSED, UNTOLD
from client.text import cut, one_line, printable
from client.tree import headline, rejections
from client.wording import withheld_calls
from console.render.command import starter
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code
from workflows.json_values import text_of

MAX_RESULT = 4000
"""Characters to which a result is cut, on a terminal and elsewhere; `--json` has the whole result."""
MAX_ROWS = 60
MAX_CLOSING_REASON = 600
"""The most terminal cells for the reason why a task ended; the rest is cut off."""


def closing_lines(outcome: Outcome) -> list[str]:
    """The last lines of a task: status, time and counts; the reason; the result; the command that explains faults."""
    lines: list[str] = [headline(outcome)]
    if outcome.reason:
        lines.append(cut(one_line(outcome.reason), MAX_CLOSING_REASON))
    lines += [Line(f"Untrusted content may have ordered: {call}", "yellow") for call in withheld_calls(outcome)]
    if outcome.result is not None:
        lines += ["The answer from what was finished by then:"] if outcome.status is TaskStatus.OVER_BUDGET else []
        lines += _result(outcome)
    is_unclear = outcome.status in (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET) or outcome.code in (CLOSED, UNTOLD)
    faults = [fault for fault in outcome.faults if fault.code is not Code.NEEDS_APPROVAL]
    if faults or rejections(outcome) or is_unclear:
        lines.append(f"Why: {starter('explain', outcome.task_id)}")
    return lines


def _result(outcome: Outcome) -> list[str]:
    text = text_of(outcome.result)
    kept = text[:MAX_RESULT].splitlines()[:MAX_ROWS]
    lines = [printable(line) for line in kept]
    if len(text) > MAX_RESULT or len(text.splitlines()) > MAX_ROWS:
        where = starter("show", outcome.task_id, "--json")
        lines.append(printable(f"... cut here; all {len(text):,} characters: {where}"))
    return lines
