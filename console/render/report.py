"""The tables of a report, as data for the terminal and for the HTML page, and how a terminal shows them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from client.explain.prose import listed, moment, seconds
from client.report.report import CLAIMED, FaultCount, Report, Spread
from client.report.row import Recovery
from client.text import one_line, printable
from client.wording import count
from workflows.faults.decision import DECISIONS, texts_of

NOTHING = "-"
ROUNDED_USD = 1.0
"""From this sum on, US dollars are shown with two decimals instead of four."""


class Column(NamedTuple):
    """A column of a table; numbers are aligned to the right."""

    name: str
    is_number: bool = True


class Section(NamedTuple):
    """A table with its heading; `key` names it for charts."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def recoveries(faults: Iterable[FaultCount]) -> dict[str, str]:
    """The headings of the columns for what followed these faults, by the name of the decision or Recovery."""
    found = {name for fault in faults for name in fault.followed}
    return {name: texts_of(name).column or name for name in (*DECISIONS, *Recovery, *found) if name in found}


def heading(report: Report) -> list[str]:
    """The sentences above the tables: which tasks are counted, what is left out or unread, the wasted attempts."""
    conditions = ["matched the query"] if report.query else []
    conditions += [f"ran since {moment(report.since)}"] if report.since else []
    that = f" that {' and '.join(conditions)}" if conditions else ""
    running = f", {report.running} of them still running" if report.running else ""
    sentences = [f"{count(report.tasks, 'task')}{that}{running}."]
    if report.more:
        sentences.append(f"{report.more} more were left out: the {report.tasks} that ended last are counted (--limit).")
    if report.in_part:
        named = listed((f"{task.task_id} ({task.why})" for task in report.unread), 3)
        more = f" and {report.in_part - 3} more" if report.in_part > 3 and len(report.unread) <= 3 else ""
        sentences.append(f"{count(report.in_part, 'task')} could be read only in part: {named}{more}.")
    sentences.append(f"Wasted attempts: {report.wasted}.")
    return sentences


def sections(report: Report) -> Iterator[Section]:
    """The tables that have rows."""
    return (section for section in _all_sections(report) if section.rows)


def _all_sections(report: Report) -> Iterator[Section]:
    exits = [(ending.status.replace("_", " "), ending.code or NOTHING, f"{ending.tasks}") for ending in report.exits]
    yield Section("exits", "How tasks ended", (Column("status", False), Column("code", False), Column("tasks")), exits)
    yield Section("spreads", "Per task", _columns("", "median", "p99", "least", "most"), list(_spread_rows(report)))
    followed = recoveries(report.faults)
    names = _columns("", "faults", *followed.values(), "recovered")
    yield Section("faults", "Faults, and what followed", names, list(_fault_rows(report, followed)))
    retries = [
        (retry.tool, retry.code, f"{retry.retries}", f"{retry.helped}", f"{retry.wasted}") for retry in report.retries
    ]
    columns = (Column("tool", False), Column("after", False), *map(Column, ("retries", "helped", "wasted")))
    yield Section("retries", "Retries", columns, retries)
    replans = [
        (replan.code, f"{replan.replans}", ", ".join(f"{of}: {number}" for of, number in replan.revisions.items()))
        for replan in report.replans
    ]
    columns = (Column("after", False), Column("replans"), Column("by plan", False))
    yield Section("replans", "New plans", columns, replans)
    yield without_empty(_tools(report))
    people = [
        (what, name, f"{number}")
        for what, of in (("asked", report.requests), ("answered", report.answers), ("needed for", report.escalations))
        for name, number in of.items()
    ]
    if set(report.known) - {CLAIMED}:  # else there are only names
        people += [("known by", how, f"{number}") for how, number in report.known.items()]
    yield Section("people", "People", (Column("", False), Column("what", False), Column("times")), people)
    waits = [
        (wait.kind, f"{wait.requests}", seconds(max(0.0, (report.until - wait.oldest).total_seconds())), wait.example)
        for wait in report.waiting
    ]
    columns = (Column("about", False), Column("open"), Column("oldest"), Column("task", False))
    yield Section("waiting", "Open requests", columns, waits)
    tokens = sum(cost.tokens for cost in report.paid)
    paid = [
        (cost.purpose, f"{cost.tokens:,}", f"{cost.tokens / tokens:.0%}" if tokens else NOTHING, usd(cost.usd))
        for cost in report.paid
    ]
    yield Section("paid", "Models", _columns("for", "tokens", "share", "USD"), paid)


def usd(paid: float) -> str:
    """A sum of US dollars. A sum of 0 does not say whether a price was 0, or was not known."""
    if not paid:
        return "0 or unknown"
    return f"{paid:,.2f}" if paid >= ROUNDED_USD else f"{paid:.4f}"


def _columns(*names: str) -> list[Column]:
    return [Column(names[0], False), *map(Column, names[1:])]


def _spread_rows(report: Report) -> Iterator[tuple[str, ...]]:
    numbers = {"tool calls": report.tool_calls, "steps": report.steps}
    times = {"time": report.seconds, "time to a new plan": report.time_to_replan, "wait of a retry": report.retry_delay}
    for name, spread in numbers.items():
        if spread:
            yield name, *(f"{value:g}" for value in _spread_values(spread))
    for name, spread in times.items():
        if spread:
            yield name, *map(seconds, _spread_values(spread))
    for name, left in report.budget_left.items():
        limit = name.replace("_", " ")
        yield f"left of its {limit}", *(f"{value:.0%}" for value in _spread_values(left))


def _spread_values(spread: Spread) -> tuple[float, ...]:
    return spread.median, spread.p99, spread.least, spread.most


def _fault_rows(report: Report, names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """A row for each quadrant, and below it a row for each of its codes."""
    for quadrant, of in groupby(report.faults, key=lambda fault: fault.quadrant):
        codes = list(of)
        followed = Counter[str]()
        for code in codes:
            followed.update(code.followed)
        yield quadrant.replace("_", " "), *_fault_cells(sum(code.faults for code in codes), followed, names)
        for code in codes:
            yield f"  {code.code}", *_fault_cells(code.faults, code.followed, names)


def _fault_cells(faults: int, followed: Mapping[str, int], names: Iterable[str]) -> tuple[str, ...]:
    decided = faults - followed.get(Recovery.OPEN, 0)
    recovered = f"{(decided - followed.get(Recovery.NONE, 0)) / decided:.0%}" if decided else NOTHING
    return f"{faults}", *(f"{followed[name]}" if followed.get(name) else "" for name in names), recovered


def without_empty(section: Section) -> Section:
    """The section without columns of numbers that are all zero or missing."""
    kept = [
        index
        for index, column in enumerate(section.columns)
        if not column.is_number or any(row[index] not in ("", "0", "0.0", NOTHING) for row in section.rows)
    ]
    rows = [[row[index] for index in kept] for row in section.rows]
    return section._replace(columns=[section.columns[index] for index in kept], rows=rows)


def _tools(report: Report) -> Section:
    rows = [
        (
            tool.tool,
            *(f"{number}" if number else "" for number in (tool.calls, tool.retries, tool.most_retries, tool.replayed)),
            *(f"{number}" if number else "" for number in (tool.reconciled, sum(tool.unknown.values()), tool.not_made)),
        )
        for tool in report.tools
    ]
    names = ("calls", "retries", "most a task", "replayed", "found", "unknown", "not made")
    return Section("tools", "Tools", (Column("tool", False), *map(Column, names)), rows)


def printed(report: Report, width: int) -> str:
    """The report for a terminal of this width."""
    return printed_sections(heading(report), sections(report), width)


def printed_sections(lines: Iterable[str], sections: Iterable[Section], width: int) -> str:
    """Lines, and tables below them, for a terminal of this width."""
    to = StringIO()
    console = Console(file=to, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    for line in lines:
        console.print(Text(one_line(line)))
    for section in sections:
        console.print()
        console.print(Text(section.title))
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="", pad_edge=False)
        for column in section.columns:
            table.add_column(Text(column.name), justify="right" if column.is_number else "left", overflow="fold")
        for row in section.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        if console.measure(table, options=console.options.update(width=10 * width)).maximum > width - 2:
            table.padding = (0, 1, 0, 0)  # rather than folding words
        console.print(Padding(table, (0, 0, 0, 2)))
    return "\n".join(line.rstrip() for line in to.getvalue().splitlines())
