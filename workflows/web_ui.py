"""The texts in Temporal's web UI: summaries, and the current details of a task as Markdown.

Made when a workflow, an activity or a timer starts, and whenever a step, a request or a wait of the task changes.

The titles of activities are made in `calls`, the names of timers in `ids`.

The UI renders no tables and no checkboxes. It passes on raw HTML, and characters that a terminal or a browser obeys. So
text from outside is escaped, with backslashes, because the UI does not decode an entity such as `&lt;`. Details travel
in a URL, so they stay below `MAX_DETAILS`.
"""

import json
import re
from collections.abc import Iterable
from itertools import chain
from urllib.parse import quote

from pydantic import JsonValue

from workflows import ids
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord, StepStatus
from workflows.commands import command
from workflows.faults.decision import what_follows
from workflows.json_values import canonical, text_of
from workflows.people.card import NEEDS, TO_PROVIDE, Asker, Fact, facts, needs_text, value_line
from workflows.people.requests import BUYS, answer_command
from workflows.plans.contract import contract_text
from workflows.text import legible, service_words, shorten, without_repeats

MAX_DETAILS = 2400
"""The most bytes of the current details."""
LAST = ("", "---")
"""The lines at the end of the details: a Markdown rule, because version 2.42 of the UI cuts the final line."""
MAX_SUMMARY = 190
"""The most bytes of a summary, before the ellipsis; the server cuts it at 200."""

SIGNS = {
    StepStatus.PENDING: "○",
    StepStatus.RUNNING: "●",
    StepStatus.WAITING: "◷",
    StepStatus.PAUSED: "‖",
    StepStatus.COMPLETED: "✓",
    StepStatus.FAILED: "✗",
    StepStatus.SKIPPED: "·",
    StepStatus.CANCELLED: "⊘",
    StepStatus.UNDONE: "↶",
}
"""The sign of each step status, the same in the web UI and in the terminal."""

MAX_REJECTIONS = 3
"""The details show at most this many rejected proposals: the newest."""
MANY = 30
"""With more steps than this, not all lines fit into the details; then the steps of the current plan come first."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$-])")


def escape(text: str, width: int | None = None) -> str:
    """The text on one line, cut to `width` (None: whole), with invisible characters and then markup escaped."""
    plain = legible(text, None if width is None else width + 1)  # one more, so that it is seen to be cut
    return _SPECIAL.sub(r"\\\1", plain if width is None else shorten(plain, width))


def _code(text: str) -> str:
    """The text as Markdown code, between more backticks than stand together anywhere in the text."""
    plain = legible(text)
    marks = "`" * (1 + max(map(len, re.findall("`+", plain)), default=0))
    return f"{marks} {plain} {marks}" if "`" in plain else f"`{plain}`"


def summary(text: str, most: int = MAX_SUMMARY) -> str:
    """The text on one line, cut to `most` bytes, because the server limits the length of a summary."""
    line = legible(text, most + 1)
    # The cut may be in the middle of a character.
    cut = line.encode()[:most].decode(errors="ignore")
    return line if cut == line else cut + "…"


def timer_name(text: str, number: int) -> str:
    """The name of a timer, on one line, with the number of its entry in the journal at the end: `book waits [12]`."""
    return ids.with_entry(summary(text, MAX_SUMMARY - len(ids.with_entry("", number))), number)


def details(progress: Progress) -> str:
    """The current details of a task, as Markdown of at most `MAX_DETAILS` bytes."""
    head = [_headline(progress), ""]
    if progress.ending is not None and progress.ending.result is not None:
        head += [f"**Result:** {escape(_plain_text(progress.ending.result), 600)}", ""]
    if requests := _request_lines(progress):
        head += [*requests, ""]
    if planning := _planning_lines(progress):
        head += [*planning, ""]
    current = [
        record
        for record in progress.records
        if record.revision == progress.revision or record.status is not StepStatus.SKIPPED
    ]
    if len(current) > MANY:  # the last lines are cut
        current.sort(key=lambda record: -record.revision)
    faults = [fault for fault in progress.faults if fault.decision != "retry"]
    steps = (_step_line(progress, record) for record in current)
    lines = chain(head, steps, [""], (f"- {_fault_line(progress, fault)}" for fault in faults))
    return _fit(lines, len(head) + len(current) + 1 + len(faults))


def _headline(progress: Progress) -> str:
    limits, spent = progress.budget.limits, progress.budget.spent
    what = f"Turn {progress.turn}" if _works_in_turns(progress) else f"Plan {progress.revision}"
    counts = f"{what}, {progress.replans} of {limits.replans} replans"
    counts += f", {_of_limit(spent.tool_calls, limits.tool_calls)} tool calls"
    counts += f", {_of_limit(spent.tokens, limits.tokens)} tokens" if spent.model_calls else ""
    counts += f", {_of_limit(spent.usd, limits.usd)} USD" if spent.usd is not None else ""
    status = progress.status.replace("_", " ").capitalize()
    ending = progress.ending
    reason = f": {escape(ending.reason, 400).rstrip('.')}" if ending and ending.reason else ""
    return f"**{status}**{reason}. {counts}. Planner: {escape(progress.planner or 'not known yet')}."


def _request_lines(progress: Progress) -> list[str]:
    opened = progress.open_requests
    if not opened or progress.ending is not None:
        return []
    first, task = opened[0], Asker(progress.task_id, progress.task.text, progress.task.by)
    more = f" {len(opened) - 1} more requests are open." if len(opened) > 1 else ""
    where = f"{escape(first.step)}: " if first.step else ""
    options = f" Options: {escape(', '.join(first.options), 400)}." if first.options else ""
    asked = "may this call be made?" if first.call else escape(first.reason, 600)
    words = f" {escape(service_words(first.words))}" if first.words else ""
    lines = [f"**Request {first.id}:** {where}{asked}{words}{options}", ""]
    if (call := first.call) is not None:
        lines += [*map(_fact_line, facts(first, task)), ""]
    elif needs := needs_text(first):
        lines += [_fact_line(Fact(TO_PROVIDE, needs)), ""]
    # Nobody can vouch for who sends an Update here.
    is_open_to_all = first.approvers is None
    if call is not None and is_open_to_all:
        lines += [f'To approve it, send the Update `approve` with `{{"call": "{call.code}"}}`.', ""]
    if call is not None and is_open_to_all and first.others:
        codes = json.dumps([other.code for other in first.others])
        all_of_them = f'`approve_all` with `{{"call": "{call.code}", "others": {codes}}}`'
        lines += [f"To approve all of them, send the Update {all_of_them}.", ""]
    choices = ", ".join(f"`{choice.value}`" for choice in first.choices if is_open_to_all or choice not in BUYS)
    answer = answer_command(progress.task_id, first.choices[0], first.code)
    resolve = command("resolve", first.cause)
    address = request_url(progress.page, progress.task_id, first.id)
    since, until = f"{first.since:%Y-%m-%d %H:%M}", f"{first.until:%Y-%m-%d %H:%M} UTC"
    return [
        f"**Waiting for a person** since {since}, until {until}.{more}",
        "",
        *lines,
        *([f"[Answer on the page]({address})", ""] if progress.page else []),
        f"More Actions > Send an Update: {choices}. Or: {_code(answer)}",
        *(["", f"For all tasks that wait for it: {_code(resolve)}"] if first.cause else []),
    ]


def request_url(page: str, task: str, request: str) -> str:
    """The address of a request on the page that people open at `page`."""
    return f"{page}/ui/tasks/{quote(task, safe='')}#{quote(request, safe='')}"


def _fact_line(fact: Fact) -> str:
    origin = f" ({escape(fact.origin_text, 100)})" if fact.origin else ""
    indent = "  " if fact.is_argument else ""
    width = 600 if fact.about in (NEEDS, TO_PROVIDE) and not fact.is_argument else 200
    return f"{indent}- **{escape(fact.about, 60)}:** {escape(value_line(fact.text), width)}{origin}"


def _of_limit(spent: float, limit: float | None) -> str:
    form = ",.2f" if isinstance(spent, float) else ","
    return f"{spent:{form}}" if limit is None else f"{spent:{form}} of {limit:{form}}"


def _works_in_turns(progress: Progress) -> bool:
    return progress.task.strategy == "react"


def _planning_lines(progress: Progress) -> list[str]:
    passed = {(failover.planner, failover.code): failover.reason for failover in reversed(progress.failovers)}
    lines = [
        f"- {escape(planner, 80)} could not be used: {escape(code)}. {escape(reason, 200)}"
        for (planner, code), reason in reversed(passed.items())
    ]
    for compaction in progress.compactions[-1:]:
        turns = "turn was" if compaction.turns == 1 else f"{compaction.turns} turns were"
        lines.append(f"- The oldest {turns} summarised at turn {compaction.turn}.")
    what = "Turn" if _works_in_turns(progress) else "Proposal"
    lines += [
        f"- {what} {rejection.turn} was not used: {escape('; '.join(rejection.reasons), 200)}"
        for rejection in progress.rejections[-MAX_REJECTIONS:]
    ]
    lines += [
        f"- Untrusted content may have ordered this call: {escape(f'{call.kind} {canonical(call.args)}', 200)}"
        for call in (progress.rejections[-1].withheld if progress.rejections else ())
    ]
    if progress.contract.is_tainted and progress.contract.effects:
        lines.append(f"- {escape(contract_text(progress.contract.effects), 400)}")
    if wait := progress.waiting:
        reason = escape(wait.reason, 200)
        until = f"{wait.until:%Y-%m-%d %H:%M} UTC"
        lines.append(
            f"- {SIGNS[StepStatus.WAITING]} Waits for the planner until {until}: {escape(wait.code)}. {reason}"
        )
    return lines


def _step_line(progress: Progress, record: StepRecord) -> str:
    fault = next((fault for fault in reversed(progress.faults) if fault.step_id == record.step.id), None)
    kind, title = without_repeats(record.step.id, record.kind, record.label)
    shown = [f"- {SIGNS[record.status]} **{escape(record.step.id)}**", escape(kind), escape(title, 60)]
    if record.status is StepStatus.COMPLETED:
        shown.append("→ " + escape(_plain_text(record.result), 60))
    if record.status is StepStatus.FAILED and fault is not None:
        shown.append(f"→ {escape(fault.code)}")
    if record.status is StepStatus.PENDING and record.step.dependencies:
        shown.append("needs " + escape(", ".join(sorted(record.step.dependencies))))
    return " ".join(filter(None, shown)) + _step_notes(progress, record)


def _step_notes(progress: Progress, record: StepRecord) -> str:
    notes = [f"{record.attempts} attempts"] if record.attempts > 1 else []
    notes += [f"instead of {escape(record.step.kind)}"] if record.is_fallback else []
    if record.revision < progress.revision and not _works_in_turns(progress):
        kept = "kept from " if record.status is StepStatus.COMPLETED else ""
        notes.append(f"{kept}plan {record.revision}")
    return f" ({', '.join(notes)})" if notes else ""


def _fault_line(progress: Progress, fault: FaultRecord) -> str:
    in_turns, is_over = _works_in_turns(progress), progress.ending is not None and fault.revision == progress.revision
    clauses = what_follows(fault.decision, fault, fault.reconciled, in_turns=in_turns, is_over=is_over)
    where = "" if in_turns else f"Plan {fault.revision}, "
    follows = escape(": ".join(filter(None, clauses)))
    words = f" {escape(service_words(fault.words), 200)}" if fault.words else ""
    return f"{where}{escape(fault.step_id)}: {fault.code}. {escape(fault.reason, 200)}{words} → {follows}"


def _plain_text(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain_text(item)}" for name, item in value.items())
    return text_of(value)


def _fit(lines: Iterable[str], count: int) -> str:
    """Join as many whole lines as `MAX_DETAILS` allows; a last line says how many of all `count` lines are left out."""
    kept, used = list[str](), 0
    for index, line in enumerate(lines):
        used += len(line.encode()) + 1
        if used > MAX_DETAILS - 60:  # 60 bytes are for the line about the others, and for LAST
            return "\n".join([*kept, f"- … {count - index} more lines", *LAST])
        kept.append(line)
    return "\n".join([*kept, *LAST])
