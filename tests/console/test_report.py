"""`report`: what it prints, a page that is one file and safe to open, and what it refuses."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from client.problem import Problem
from client.report.report import FaultCount, Report
from client.report.row import OpenRequest, Recovery, TaskRow, row_of
from console.commands.report import read_since
from console.exits import Exit
from console.render import report_page
from console.render.report import printed, usd
from runtime.dev_server import DevServer
from tests.console.histories import NAMES, explained
from tests.console.made import Tags, report_on
from tests.processes import Processes

EVIL = '<script>alert("1")</script>\x1b[31m'
"""A text of the world that may not reach a page or a terminal as it is."""


@pytest.fixture(scope="module")
async def rows() -> list[TaskRow]:
    return [row_of((await explained(name)).story.history) for name in NAMES]


@pytest.fixture(scope="module")
def report(rows: list[TaskRow]) -> Report:
    """The report on all saved histories, one of which has a tool and waits in a task with evil names."""
    evil = rows[0].model_copy(
        update={
            "counters": (("replan_tool_calls", (EVIL,), 1), ("replan_retries", (EVIL, "busy"), 1)),
            "waiting": (OpenRequest(task_id=EVIL, kind=EVIL, since=datetime(2026, 11, 22, tzinfo=UTC)),),
            "unreadable": (EVIL,),
        }
    )
    return report_on([*rows, evil])


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_a_terminal(report: Report, width: int) -> None:
    """No line is longer, nothing of the world moves the cursor, and codes are whole whatever followed. The heading says
    which tasks are counted, one or several."""
    lines = printed(report, width).splitlines()
    codes, everything = ("circuit_open", "server_error", "unauthorized", "rate_limited"), dict.fromkeys(Recovery, 10)
    many = [FaultCount(quadrant="transient_semantic", code=one, faults=70, followed=everything) for one in codes]
    asked = {"running": 0, "query": "a = 1", "since": datetime(2026, 11, 22, tzinfo=UTC), "faults": tuple(many)}
    [one, *below], [two, *_] = (
        printed(report.model_copy(update={"tasks": tasks, **asked}), width).splitlines() for tasks in (1, 2)
    )

    assert max(map(len, lines)) <= width and "\x1b" not in "".join(lines)
    assert "Faults, and what followed" in lines and "Wasted attempts: 0." in lines
    assert all(any(line.startswith(f"    {code} ") for line in below) for code in codes)
    ran = "that matched the query and ran since 2026-11-22 00:00:00Z."
    assert (one, two) == (f"1 task {ran}", f"2 tasks {ran}")


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report_page.page(report)


def test_the_page_is_one_file_that_loads_and_runs_nothing(page: str) -> None:
    """No script, no address, no form; the browser is told so, too. What the world named is text, also in charts."""
    read = Tags(page)

    assert not read.tags & {"script", "link", "img", "iframe", "form", "object", "embed"}
    assert read.addresses == set() and "<script" not in page.lower()
    assert "default-src 'none'" in page and "@import" not in page and "url(" not in page
    assert '<script>alert("1")</script>' in read.text


def test_the_page_has_the_tables_of_the_terminal_and_charts(page: str, report: Report) -> None:
    """Each figure of a chart is in a table, too; charts have the colours of the page, for light and dark."""
    charts = "".join(part.partition("</svg>")[0] for part in page.split("<svg")[1:])
    colours = {word.removesuffix(" !important") for word in re.findall(r"(?:fill|stroke): ?([^;}]+)", charts)}

    assert page.count("<svg") == 6
    for title in ("How tasks ended", "Per task", "Retries", "New plans", "Models"):
        assert f"<h2>{title}</h2>" in page
    assert all(f">{one.code}<" in page for one in report.replans)
    assert {one for one in colours if not one.startswith("var(--")} <= {"none", "transparent"}
    assert "prefers-color-scheme: dark" in page and "var(--good)" in colours


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_scale_of_a_chart_names_each_number_once(rows: list[TaskRow], most: int) -> None:
    """Also where the numbers are small."""
    counted = (("replan_replans", ("conflict", "1"), most),)
    page = report_page.page(report_on([rows[0].model_copy(update={"counters": counted})]))
    chart = page.partition("<h2>New plans by code of the fault</h2>")[2].partition("</svg>")[0]
    scale = [label for label in re.findall(r"<text[^>]*>([^<]+)</text>", chart) if label.isdecimal()]

    assert scale == [f"{number}" for number in range(most + 1)]


def test_a_sum_of_nothing_is_not_said_to_be_free() -> None:
    """Tokens of a model without a known price add 0, as those of a model that costs nothing. Where nothing ran there is
    no chart and no table."""
    page = report_page.page(report_on([]))

    assert [usd(paid) for paid in (0.0, 0.0005, 1234.5)] == ["0 or unknown", "0.0005", "1,234.50"]
    assert "0 tasks." in page and "<svg" not in page and "<table" not in page


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "1e30", "yesterday", ""])
def test_a_time_that_is_none_is_bad_usage(text: str) -> None:
    """One sentence with what to write."""
    with pytest.raises(Problem) as wrong:
        read_since(text)

    assert (wrong.value.code, "24h" in str(wrong.value) or "1h30m" in str(wrong.value)) == ("usage", True)


def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    """With the exit code of every command; a file that cannot be written is found out before."""
    processes = Processes("127.0.0.1:1", tmp_path)
    done, folder = processes.starter("report"), processes.starter("report", "--html", str(tmp_path / "no" / "a.html"))

    assert (done.returncode, done.stdout) == (Exit.UNREACHABLE, "")
    assert folder.returncode == Exit.BAD_USAGE and "there is no folder" in folder.stderr


def test_a_bad_query_and_an_empty_list_are_sentences(server: DevServer, tmp_path: Path) -> None:
    """The one is a mistake, the other none; JSON is a document in both cases."""
    processes = Processes(server.address, tmp_path)
    bad = processes.starter("report", "--query", "Nonsense = 1", "--json")
    empty = processes.starter("report", "--query", "TaskQueue = 'never-served'", "--html", str(tmp_path / "a.html"))

    assert (bad.returncode, json.loads(bad.stdout)["error"]["code"]) == (Exit.BAD_USAGE, "bad_query")
    assert empty.stdout.startswith("No task that the query finds ran in this time: `--since all`")
    assert empty.stdout.endswith(f"\nWith charts: {tmp_path / 'a.html'}\n")
    assert empty.returncode == 0 and (tmp_path / "a.html").read_text().startswith("<!doctype html>")
