"""What an audit found, as text for a terminal and as an HTML page."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from client.text import one_line
from client.wording import count
from console.render.report import NOTHING, Column, Section, printed_sections, without_empty
from extras.audit.findings import ran_again_after_unknown_outcome
from extras.audit.report import AuditReport, FindingCount, FindingExample
from extras.audit.tools import Confidence

if TYPE_CHECKING:  # it needs an extra
    from console.render import report_page

EXAMPLES = 3
"""The most places of a finding that the terminal shows; the JSON document and the page have more."""
MAX_NAMED = 8
"""The most activities that a finding with many places names."""
ROWS = 15
"""The most types of activities that the terminal shows."""
LINE = "The line that spares these retries"
DRY_RUN = "Add it where the worker is made. With dry_run=True it only counts, and changes nothing: docs/faults.md"
CODE_WIDTH = 100
"""The most characters of a line of code on the page."""
FOOT = "Made by replan audit, which reads histories, changes nothing, and sends nothing anywhere."
RAN_AGAIN = ran_again_after_unknown_outcome.__name__
"""The name of the finding about writes that may have been done twice."""
LABELS = {Confidence.CERTAIN: "bad", Confidence.LIKELY: "middling", Confidence.GUESSED: "calm"}


def printed(report: AuditReport, width: int) -> str:
    """The audit for a terminal of this width."""
    text = printed_sections(heading(report), sections(report, ROWS), width)
    code = [f"    {one}" for one in line(report, width - 4)]
    added = ["", f"{LINE}:", "", *code] if code else []
    return "\n".join([text, *added, "", *_findings(report, width)])


def heading(report: AuditReport) -> list[str]:
    """The sentences above the tables: what was read, sums of retries, times and tokens, and what the line spares."""
    running = f", {report.running} of them without an end" if report.running else ""
    events = count(report.events, "event")
    lines = [f"{count(report.histories, 'history', 'histories')} with {events}{running}."]
    if report.unreadable:
        name, reason = report.unread[0]
        more = f", and {report.unreadable - 1} more" if report.unreadable > 1 else ""
        lines.append(f"Not read: {name} {reason}{more}.")
    if report.opaque:
        lines.append(
            f"{report.opaque:,} of {count(report.payloads, 'payload')} are encrypted: their arguments, results, tokens"
            " and secrets are not read, and equal calls are not found. Retries, errors by type, timeouts and sizes are."
        )
    if report.unknown_events:
        lines.append(f"{count(report.unknown_events, 'event')} of types that are not known were passed over.")
    if not report.retries:
        lines.append(f"No retry in {count(report.calls, 'call')}.")
        return lines
    parts = {
        "helped": report.helped,
        "could have helped": report.could_have,
        "could not have": report.could_not,
        "nobody can know": report.not_known,
    }
    sizes = ", ".join(f"{number} {name}" for name, number in parts.items() if number)
    lines.append(
        f"{count(report.retries, 'retry', 'retries')} in {count(report.calls, 'call')}: {sizes}."
        f" {report.wasted_share:.0%} could not have helped."
    )
    tokens = f" Models used {report.tokens:,} tokens." if report.tokens is not None else ""
    lines.append(f"Failed attempts and waits before the last attempts: {report.seconds:,.1f} s.{tokens}")
    return [*lines, *_spared(report)]


def _spared(report: AuditReport) -> Iterator[str]:
    """Sentences on what one line more in the worker would have made of the retries; none for Replan's own workers."""
    if not (counted := report.spared + report.left):
        return
    if not report.line:
        left = count(counted, "retry", "retries")
        yield f"replan.FaultsPlugin, one line in a worker, would have left {left} as they are: docs/faults.md."
        return
    doubt = "; {} of the spared came after an unknown outcome, so that the effect may be there twice"
    yield (
        f"Of {count(counted, 'retry', 'retries')}, the line below would have spared {report.spared} and left"
        f" {report.left}{doubt.format(report.spared_doubtful) if report.spared_doubtful else ''}. docs/faults.md"
    )
    if report.spared_helped:
        yield (
            f"{report.spared_helped} of the spared did help. If such an error passes in your program, say so with"
            " raises=, or leave its activity out with only=; dry_run=True counts and changes nothing."
        )


def line(report: AuditReport, width: int) -> list[str]:
    """The line to add to a worker as code, on more lines if it is too long; empty if it would change nothing."""
    one = f"Worker(..., {report.line})"
    if not report.line or len(one) <= width or not report.effects:
        return [one] if report.line else []
    effects = [f"    {name!r}: {effect!r}," for name, effect in report.effects.items()]
    return ["Worker(..., plugins=[replan.FaultsPlugin(effects={", *effects, "})])"]


def sections(report: AuditReport, most: int) -> Iterator[Section]:
    """The tables that have rows: the first `most` activities, and what Replan's rules would have done."""
    names = ("calls", "failed", "retries", "helped", "could have", "could not", "not known", "seconds", "tokens")
    rows = [
        (
            row.activity,
            *(f"{number:,}" for number in (row.calls, row.failed, row.retries, row.helped)),
            *(f"{number:,}" for number in (row.could_have, row.could_not, row.not_known)),
            f"{row.seconds:,.1f}",
            NOTHING if row.tokens is None else f"{row.tokens:,}",
        )
        for row in report.activities
    ]
    left = f" (the first {most} of {len(rows)})" if len(rows) > most else ""
    columns = [Column("activity", False), *map(Column, names)]
    if rows:
        yield without_empty(Section("activities", f"Calls by activity, and their retries{left}", columns, rows[:most]))
    yield from _spared_section(report, most)
    instead = [(row.code, f"{row.calls:,}", f"{row.retries:,}", row.follows) for row in report.instead]
    columns = [Column("failed with", False), Column("calls"), Column("retries"), Column("Replan's rule", False)]
    if instead:
        yield Section("instead", "What Replan's rules would have done", columns, instead)


def _spared_section(report: AuditReport, most: int) -> Iterator[Section]:
    rows = [row for row in report.activities if row.spared]
    cells = [
        (row.activity, *(f"{number:,}" for number in (row.spared, row.spared_doubtful, row.spared_helped, row.left)))
        for row in rows[:most]
    ]
    left = f" (the first {most} of {len(rows)})" if len(rows) > most else ""
    names = ("spared", "in doubt", "helped", "left")
    columns = [Column("activity", False), *map(Column, names)]
    if cells:
        yield without_empty(Section("spared", f"Retries that the line would have spared{left}", columns, cells))


def _findings(report: AuditReport, width: int) -> Iterator[str]:
    if not report.findings:
        yield "Nothing was found." if report.histories else "There is no history to audit."
        return
    yield "Findings"
    for number, finding in enumerate(report.findings, start=1):
        yield ""
        yield from _wrapped(f"{number}. {finding.sentence}", width, "   ")
        yield from _wrapped(f"{how_many(finding)} [{finding.name}]", width, "   ", first="   ")
        for line in _common_activities(finding):
            yield from _wrapped(line, width, "   ", first="   ")
        yield from _wrapped(f"To change: {finding.remedy}", width, "   ", first="   ")
        for place in finding.examples[:EXAMPLES]:
            yield from _wrapped(f"- {place_text(place)}", width, "     ", first="   ")
        if finding.places > EXAMPLES:
            yield f"   - and {finding.places - EXAMPLES:,} more"


def how_many(finding: FindingCount) -> str:
    """A sentence with the number of places of a finding, and how many of the places are certain, likely or guessed."""
    numbers = {"certain": finding.certain, "likely": finding.likely, "guessed": finding.guessed}
    sure = ", ".join(f"{number} {name}" for name, number in numbers.items() if number)
    places = count(finding.places, "place")
    calls = f", {finding.times:,} calls" if finding.times > finding.places else ""
    return f"{places} in {count(finding.histories, 'history', 'histories')}{calls}: {sure}."


def place_text(place: FindingExample) -> str:
    """A place in one line."""
    activity = f"{place.activity}: " if place.activity else ""
    args = f"; arguments {place.args}" if place.args else ""
    return one_line(f"{place.confidence}: {place.history}, {_event_numbers(place)}: {activity}{place.detail}{args}")


def _event_numbers(place: FindingExample) -> str:
    return f"event{'s' if len(place.events) > 1 else ''} {', '.join(map(str, place.events))}"


def _wrapped(text: str, width: int, indent: str, first: str = "") -> list[str]:
    return textwrap.wrap(one_line(text), width, initial_indent=first, subsequent_indent=indent)


def page(report: AuditReport) -> str:
    """The audit as one HTML page, in which all untrusted text is escaped."""
    from console.render import report_page  # of an extra

    charts = []
    retried = [row for row in report.activities if row.retries][: report_page.MAX_BARS]
    if retried:
        series = [
            report_page.Series("helped", [row.helped for row in retried], report_page.GOOD),
            report_page.Series("could have helped", [row.could_have for row in retried], report_page.MIDDLING),
            report_page.Series("could not have", [row.could_not for row in retried], report_page.BAD),
            report_page.Series("nobody can know", [row.not_known for row in retried], report_page.CALM),
        ]
        charts.append(report_page.bars("Retries by activity", [row.activity for row in retried], series))
    articles = [*map(_article, report.findings)]
    if report.line:
        articles.insert(0, report_page.Article(LINE, [DRY_RUN], code=line(report, CODE_WIDTH)))
    parts = _tiles(report), charts, sections(report, 200), articles
    return report_page.rendered("Replan audit", heading(report), *parts, lead=_lead(report), foot=FOOT)


def _lead(report: AuditReport) -> str:
    """What a reader should know if they read no more."""
    if not report.histories:
        return ""
    sentences = [f"{report.could_not} of {count(report.retries, 'retry', 'retries')} could not have helped."]
    again = sum(finding.places for finding in report.findings if finding.name == RAN_AGAIN)
    return " ".join(
        [
            *(sentences if report.retries else ["No call was retried."]),
            *([f"{count(again, 'write')} may have been done twice."] if again else []),
            *([] if report.findings else ["Nothing was found."]),
        ]
    )


def _tiles(report: AuditReport) -> Iterator[tuple[str, str, str]]:
    """The figures at the top: name, value, and a class for its colour."""
    yield "histories", f"{report.histories:,}", ""
    yield "retries", f"{report.retries:,}", ""
    yield "helped", f"{report.helped:,}", "good" if report.helped else ""
    yield "could not have helped", f"{report.could_not:,}", "bad" if report.could_not else "good"
    yield "of all retries", f"{report.wasted_share:.0%}", "bad" if report.could_not else "good"
    if report.spared + report.left:
        yield "spared by the line", f"{report.spared:,}", "good" if report.spared else ""
    yield "seconds before last attempts", f"{report.seconds:,.0f}", ""
    if report.tokens is not None:
        yield "tokens", f"{report.tokens:,}", ""


def _article(finding: FindingCount) -> "report_page.Article":
    from console.render import report_page

    lines = [how_many(finding), *_common_activities(finding)]
    places = [
        report_page.Remark(
            label=place.confidence,
            colour=LABELS[place.confidence],
            subject=place.activity,
            text=place.detail,
            code=place.args,
            lines=[_where(place), *([f"Replan's rule: {place.instead}"] if place.instead else [])],
        )
        for place in finding.examples
    ]
    lines.append(f"How it is decided, and when it is wrong: {finding.page}")
    return report_page.Article(finding.sentence, lines, places, remedy=finding.remedy)


def _where(place: FindingExample) -> str:
    """The history and its events; for a history of a server also the run, since runs share the id of a workflow."""
    if place.history == place.workflow_id:
        return f"{place.history}, run {place.run_id}, {_event_numbers(place)}"
    id = "" if place.workflow_id in place.history else f", {place.workflow_id}"
    return f"{place.history}{id}, {_event_numbers(place)}"


def _common_activities(finding: FindingCount) -> list[str]:
    """A line with the activities that have the most places, if a finding has more than EXAMPLES places; else empty."""
    if finding.places <= EXAMPLES or len(finding.activities) < 2:
        return []
    named = [f"{name} ({number:,})" for name, number in list(finding.activities.items())[:MAX_NAMED]]
    more = len(finding.activities) - len(named)
    return [f"Activities: {', '.join(named)}{f', and {more:,} more' if more else ''}."]
