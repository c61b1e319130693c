"""The HTML page of a report: one file with its charts as SVG, without scripts and without a network."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from client.report.report import Report
from client.report.row import Recovery
from client.text import printable
from client.wording import count
from console.render.report import Section, heading, recoveries, sections, usd

TEMPLATE = Path(__file__).with_name("report.html")
GOOD, MIDDLING, BAD, CALM = "var(--good)", "var(--middling)", "var(--bad)", "var(--calm)"
COLOURS = ("var(--a)", "var(--b)", "var(--c)", "var(--d)", "var(--e)", "var(--f)", "var(--g)", "var(--h)", "var(--i)")
"""Colours are variables of the page, which has values for light and for dark."""
STATUS_COLOURS = {"completed": GOOD, "escalated": MIDDLING, "over_budget": "var(--d)", "failed": BAD, "cancelled": CALM}
RECOVERY_COLOURS: dict[str, str] = {
    Recovery.RETRY: "var(--a)",
    Recovery.FALLBACK: "var(--d)",
    Recovery.RECONCILE: "var(--c)",
    Recovery.REPLAN: GOOD,
}
RECOVERY_COLOURS |= {Recovery.PERSON: MIDDLING, Recovery.NONE: BAD, Recovery.OPEN: CALM}
MAX_BARS = 20
"""The most tools, codes or numbers in a chart, which shows the first ones; the table has all."""
MAX_REMARKS = 5
"""The most places of an article that are shown before a reader unfolds the rest."""
WIDTH, BAR = 480, 22
"""Pixels of a chart that is not scaled, and of each of its horizontal bars."""


class Series(NamedTuple):
    """The values of one colour in a chart, one for each label."""

    name: str
    values: Sequence[float]
    colour: str


class Chart(NamedTuple):
    """A drawn chart, and what its legend explains."""

    title: str
    svg: str
    legend: Sequence[Series]
    """The series, if there are several."""


class Remark(NamedTuple):
    """One of the places that an Article lists."""

    label: str
    colour: str
    """A class of the page: `bad`, `middling` or `calm`."""
    subject: str
    text: str
    code: str
    """What is shown as code; empty for nothing."""
    lines: Sequence[str]
    """Lines in small print below the text."""


class Article(NamedTuple):
    """A heading, sentences, and places, of which the first MAX_REMARKS are shown and the others unfold."""

    title: str
    lines: Sequence[str]
    places: Sequence[Remark] = ()
    code: Sequence[str] = ()
    """Lines of code below the sentences."""
    remedy: str = ""
    """What to change, with code between backticks."""


def page(report: Report) -> str:
    """The whole page, in which all untrusted text is escaped."""
    lines = [*heading(report), *([f"Query: {report.query}"] if report.query else [])]
    return rendered("Replan report", lines, _tiles(report), _charts(report), sections(report), lead=_lead(report))


def _lead(report: Report) -> str:
    """What a reader should know if they read no more."""
    ended = report.tasks - report.running
    completed = sum(ending.tasks for ending in report.exits if ending.status == "completed")
    if not ended:
        return f"{count(report.tasks, 'task')}, of which none has ended." if report.tasks else "No task was counted."
    wasted = f"{count(report.wasted, 'attempt')} could not help." if report.wasted else "No attempt was wasted."
    return f"{completed:,} of {count(ended, 'ended task')} completed. {wasted}"


def rendered(
    title: str,
    lines: Iterable[str],
    tiles: Iterable[tuple[str, str, str]],
    charts: Iterable[Chart],
    sections: Iterable[Section],
    articles: Iterable[Article] = (),
    *,
    lead: str = "",
    foot: str = "",
) -> str:
    """A page with lines, figures (name, value, a class for the colour), charts, articles, tables; all is escaped.

    `lead` is the sentence above all others, `foot` the one below them.
    """
    from jinja2 import Environment, StrictUndefined  # of the extra, like pygal below

    environment = Environment(autoescape=True, finalize=_without_controls, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["with_code"] = _with_code
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    parts = {"tiles": list(tiles), "charts": list(charts), "sections": list(sections), "articles": list(articles)}
    return template.render(title=title, heading=list(lines), lead=lead, foot=foot, SHOWN=MAX_REMARKS, **parts)


def _with_code(text: str) -> str:
    """The escaped text, in which what stands between two backticks is code."""
    from markupsafe import Markup, escape  # of Jinja

    parts = [escape(printable(part)) for part in text.split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def _without_controls(value: object) -> object:
    return printable(value) if type(value) is str else value  # and not of Markup, which is the charts


def _tiles(report: Report) -> Iterator[tuple[str, str, str]]:
    """The figures at the top: name, value, and a class for its colour."""
    ended = report.tasks - report.running
    completed = sum(ending.tasks for ending in report.exits if ending.status == "completed")
    yield "tasks", f"{report.tasks:,}", ""
    yield "completed", f"{completed / ended:.0%}" if ended else "-", ""
    if report.tool_calls:
        yield "tool calls per task, median / p99", f"{report.tool_calls.median:g} / {report.tool_calls.p99:g}", ""
    yield "new plans", f"{sum(replan.replans for replan in report.replans):,}", ""
    yield "wasted attempts", f"{report.wasted:,}", "bad" if report.wasted else "good"
    waiting = sum(wait.requests for wait in report.waiting)
    yield "open requests", f"{waiting:,}", "middling" if waiting else ""
    if report.paid:
        paid = sum(cost.usd for cost in report.paid)
        yield "tokens", f"{sum(cost.tokens for cost in report.paid):,}", ""
        yield "US dollars", usd(paid), ""


def _charts(report: Report) -> Iterator[Chart]:
    if report.timeline:
        names = dict.fromkeys(status for period in report.timeline for status in period.tasks)
        is_hourly = len(report.timeline) < 2 or report.timeline[1].at - report.timeline[0].at < timedelta(days=1)
        at = [f"{period.at:%H:%M}" if is_hourly else f"{period.at:%m-%d}" for period in report.timeline]
        statuses = dict.fromkeys(name for name in [*STATUS_COLOURS, *names] if name in names)
        numbers = {name: [period.tasks.get(name, 0) for period in report.timeline] for name in statuses}
        series = [Series(name.replace("_", " "), of, STATUS_COLOURS.get(name, CALM)) for name, of in numbers.items()]
        yield _chart(f"Tasks that ended, by {'hour' if is_hourly else 'day'} (UTC)", at, series)
    if report.calls_per_task:
        buckets = _buckets(report.calls_per_task)
        yield _chart("Tool calls per task", list(buckets), [Series("tasks", list(buckets.values()), "var(--a)")])
    if report.faults:
        shown = sorted(report.faults, key=lambda fault: -fault.faults)[:MAX_BARS]
        followed = [
            Series(label, [fault.followed.get(name, 0) for fault in shown], RECOVERY_COLOURS.get(name, "var(--e)"))
            for name, label in recoveries(shown).items()
        ]
        yield bars("Faults by code, and what followed", [fault.code for fault in shown], followed)
    if report.replans:
        plans = sorted({revision for replan in report.replans for revision in replan.revisions})
        series = [
            Series(f"of plan {plan}", [replan.revisions.get(plan, 0) for replan in report.replans[:MAX_BARS]], colour)
            for plan, colour in zip(plans, COLOURS, strict=False)
        ]
        yield bars("New plans by code of the fault", [replan.code for replan in report.replans[:MAX_BARS]], series)
    if report.retries:
        retries = report.retries[:MAX_BARS]
        useless = [retry.retries - retry.helped - retry.wasted for retry in retries]
        series = [
            Series("helped", [retry.helped for retry in retries], GOOD),
            Series("did not help", useless, MIDDLING),
            Series("wasted", [retry.wasted for retry in retries], BAD),
        ]
        yield bars("Retries by tool and fault", [f"{retry.tool}: {retry.code}" for retry in retries], series)
    if report.paid:
        tokens = Series("tokens", [cost.tokens for cost in report.paid], "var(--a)")
        yield bars("Tokens by purpose", [cost.purpose for cost in report.paid], [tokens])


def _buckets(numbers: Mapping[int, int]) -> dict[str, int]:
    """Numbers of tasks by their number of calls; by ranges such as `5-9` if there would be more than MAX_BARS bars."""
    size = max(1, -(-(max(numbers) + 1) // MAX_BARS))
    found = dict.fromkeys(range(max(numbers) // size + 1), 0)
    for number, tasks in numbers.items():
        found[number // size] += tasks
    return {
        f"{at * size}" if size == 1 else f"{at * size}-{at * size + size - 1}": total for at, total in found.items()
    }


def _pygal() -> Any:
    import pygal

    # It leaves a finder for its maps, in a form that Python warns of at each later import.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]
    return pygal


def _chart(title: str, labels: Sequence[str], series: Sequence[Series]) -> Chart:
    options = {"x_labels_major_every": max(1, -(-len(labels) // 8)), "show_minor_x_labels": False, "height": 200}
    return _draw(_pygal().StackedBar, title, labels, series, options)


def bars(title: str, labels: Sequence[str], series: Sequence[Series]) -> Chart:
    """A chart with a horizontal bar for each label, the first at the top, stacked from the values of all series."""
    rows = [Series(sery.name, sery.values[::-1], sery.colour) for sery in series]  # the first is at the top
    return _draw(_pygal().HorizontalStackedBar, title, labels[::-1], rows, {"height": 44 + BAR * len(labels)})


def _draw(
    chart_class: Any, title: str, labels: Sequence[str], series: Sequence[Series], options: Mapping[str, Any]
) -> Chart:
    from pygal.etree import etree
    from pygal.style import Style

    colours = tuple(dataset.colour for dataset in series)
    style = Style(
        background="transparent",
        plot_background="transparent",
        value_background="transparent",
        foreground="var(--text)",
        foreground_strong="var(--text)",
        foreground_subtle="var(--quiet)",
        guide_stroke_color="var(--line)",
        major_guide_stroke_color="var(--line)",
        font_family="inherit",
        label_font_size=12,
        major_label_font_size=12,
        value_font_size=11,
        opacity="1",
        opacity_hover="1",
        stroke_opacity="1",
        transition="0s",
        colors=colours,
        value_colors=("var(--text)",) * len(colours),
    )
    chart = chart_class(
        style=style,
        js=[],
        width=WIDTH,
        margin=4,
        show_legend=False,  # the page has one, in which lines break
        truncate_label=-1,
        disable_xml_declaration=True,
        show_x_guides=False,
        max_scale=6,
        order_min=0,  # no steps below 1, which would show as the same number
        value_formatter=lambda value: f"{value:,.0f}",
        **options,
    )
    chart.x_labels = [printable(label) for label in labels]  # XML has no control characters
    for dataset in series:
        chart.add(dataset.name, list(dataset.values))
    root = chart.render_tree()
    for element in list(root.iter()):
        for script in [child for child in element if str(child.tag).endswith("script")]:
            element.remove(script)  # its settings, which no script of the page reads
    return Chart(title, etree.tostring(root, encoding="unicode"), series if len(series) > 1 else ())
