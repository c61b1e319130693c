"""`audit` and `report`: what they print, pages that are one file and safe to open, and what they refuse."""

import json
import re
import subprocess
import sysconfig
import venv
import zipfile
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from audit.findings import FINDINGS
from audit.report import Audit
from client.problem import Problem
from client.report.report import FaultCount, Report
from client.report.row import OpenRequest, Recovery, TaskRow, row_of
from console.commands.report import read_since
from console.exits import Exit
from console.options import EXTRAS
from console.render import audit as rendering, report_page
from console.render.report import printed, usd
from runtime.dev_server import DevServer
from tests.audit.integrations import SAVED
from tests.audit.made import Made, audited, failure, timeout
from tests.console.histories import NAMES, explained
from tests.console.made import report_on
from tests.documentation import sections
from tests.processes import ROOT, Processes

CONFLICT = failure("HTTPStatusError", "Client error '409 Conflict' for url 'http://shop/<script>alert(1)</script>'")
SILENT = timeout("START_TO_CLOSE")


@activity.defn(name="charge")
async def charge(account: str) -> None:
    raise ApplicationError("the shop returned 409", type="ShopError")


@workflow.defn(name="Foreign")
class Foreign:
    """A workflow that is none of Replan's."""

    @workflow.run
    async def run(self) -> None:
        policy = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=10))
        most = timedelta(seconds=20)
        await workflow.execute_activity(
            charge, "ann", retry_policy=policy, start_to_close_timeout=most, schedule_to_close_timeout=most
        )


async def test_any_workflow_of_a_server_is_audited(client: Client, commands: Processes) -> None:
    """By a list filter; no worker of Replan is needed."""
    foreign = {"workflows": [Foreign], "activities": [charge], "workflow_runner": UnsandboxedWorkflowRunner()}
    async with Worker(client, task_queue="foreign", **foreign):  # type: ignore[arg-type]  # of several types
        handle = await client.start_workflow(Foreign.run, id="foreign-1", task_queue="foreign")
        with pytest.raises(Exception, match="Workflow execution failed"):
            await handle.result()
    done = commands.starter("audit", "--query", "WorkflowId = 'foreign-1'", "--json")
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert (report["histories"], report["retries"], report["could_not"]) == (1, 2, 2)
    assert [finding["name"] for finding in report["findings"]] == ["retried_for_nothing"]
    assert report["findings"][0]["examples"][0]["history"] == "foreign-1"
    assert (report["spared"], report["left"], report["line"]) == (0, 2, "")  # its own ApplicationError


def test_files_are_audited_without_a_server(tmp_path: Path) -> None:
    """As text: the sums, Replan's rules, and each finding with its events and what to change."""
    done = Processes("localhost:1", tmp_path).starter("audit", str(SAVED))
    text = " ".join(done.stdout.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert text.startswith("29 histories with ")
    assert "conflict" in text and "no retry: a new plan" in text
    assert re.search(
        r"- likely: \S+:home_made-conflict\.json, events 23, 24, 25: charge: 3 retries after conflict:", text
    )
    assert 'arguments {"account":"ann","amount":840}' in text
    assert "Of 50 retries, the line below would have spared 31 and left 19" in text
    assert "plugins=[replan.FaultsPlugin(effects={" in text and "'charge': 'unkeyed'," in text
    assert max(map(len, done.stdout.splitlines())) <= 80


MISTAKES = {
    (): "audit takes either files or --query",
    ("a.json", "--query", "x"): "audit takes either files or --query",
    ("a.json", "--limit", "3"): "--limit is for --query",
    ("nothing.json",): "There is no file 'nothing.json'",
    ("README.txt",): "The file 'README.txt' holds no history",
    ("broken.json",): "The file 'broken.json' is cut off in the middle of a text",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_what_cannot_be_audited_ends_in_a_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "README.txt").write_text("No history.")
    (tmp_path / "broken.json").write_text('{"events": [{"eventId": "1')
    names = [str(tmp_path / word) if word.endswith((".json", ".txt")) else word for word in words]
    done = Processes("localhost:1", tmp_path).starter("audit", *names)

    assert (done.returncode, done.stdout) == (2, "")
    assert MISTAKES[words] in done.stderr.replace(f"{tmp_path}/", "") and done.stderr.count("\n") == 1


def test_what_is_broken_is_named_beside_what_was_read(tmp_path: Path) -> None:
    """It does not stop the others."""
    archive = tmp_path / "mixed.zip"
    with zipfile.ZipFile(archive, "w") as writing:
        writing.writestr("a.bin", Made().call("find", attempt=2, last=SILENT).end().binary)
        writing.writestr("b.json", "{")
    done = Processes("localhost:1", tmp_path).starter("audit", str(archive))
    text = " ".join(done.stdout.split())

    assert done.returncode == 0
    assert text.startswith("1 history with 5 events.")
    assert "b.json is cut off: its last event is not complete." in text
    assert "1 retry in 1 call: 1 helped. 0% could not have helped." in text


class Tags(HTMLParser):
    """The tags and the addresses of a page, and what a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.addresses, self.text = set[str](), set[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses |= {value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_runs_nothing_and_shows_what_the_world_named_as_text() -> None:
    """A reader who reads one sentence, the worst, and copies one line, code as code, has what counts."""
    report = audited([Made().call("charge", "<b>", failed=CONFLICT, attempt=3, last=CONFLICT).end("FAILED")])
    page = rendering.page(report)
    read, nothing = Tags(page), audited([Made().end()])

    assert not read.tags & {"script", "link", "img", "iframe", "form", "object", "embed", "b>"}
    assert "<script>alert(1)</script>" in read.text and "<svg" in page
    assert "Activities were retried after an error that cannot pass." in read.text
    assert '<p class="lead">2 of 2 retries could not have helped.</p>' in page
    assert "<pre><code>Worker(..., plugins=[replan.FaultsPlugin()])\n</code></pre>" in page
    assert "<code>non_retryable_error_types</code>" in page and "`" not in page
    assert '<p class="lead">No call was retried. Nothing was found.</p>' in rendering.page(nothing)
    assert rendering.printed(nothing, 80).endswith("Nothing was found.")
    assert rendering.printed(Audit().report(), 80).endswith("There is no history to audit.")


def test_a_finding_with_many_places_names_its_activities_and_unfolds_on_the_page() -> None:
    """The first five places are shown, the others are behind one line; encrypted payloads are said."""
    made = Made()
    for name in ["charge"] * 4 + ["book"] * 3:
        made.call(name, 1, failed=CONFLICT, attempt=3, last=CONFLICT)
    report = audited([made.end()])
    page = Tags(rendering.page(report))
    blind = audited([Made().call("charge", "ann", attempt=2, last=SILENT, encoding="binary/encrypted").end()])
    text, hidden = (" ".join(rendering.printed(one, 80).split()) for one in (report, blind))

    assert "Activities: charge (4), book (3)." in text
    assert {"details", "summary", "li"} <= page.tags and "2 more" in page.text
    assert "2 of 2 payloads are encrypted" in hidden
    assert "Calls that write ran again although nobody knows what the attempt before did." in hidden


def test_docs_have_each_finding_in_the_order_of_the_table() -> None:
    """How it is decided, and when it is wrong."""
    page = sections((ROOT / "docs" / "audit.md").read_text(encoding="utf-8"))

    assert [name.strip("`") for name in page if name.startswith("`")] == [finding.name for finding in FINDINGS]
    for finding in FINDINGS:
        text = page[f"`{finding.name}`"]
        for words in ("**Decided by**", "**Wrong when**", f"**{finding.confidence}**"):
            assert words in text, finding.name


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


MISSING = {
    "report": (["report", "--html", "a.html"], "--html needs pygal and jinja2, which are"),
    "web": (["serve"], "`serve` needs fastapi and uvicorn and jinja2 and itsdangerous, which are"),
}


@pytest.mark.parametrize("extra", MISSING)
def test_without_its_extra_a_command_says_what_to_install(tmp_path: Path, extra: str) -> None:
    """In an environment that has all packages of this one but those of the extra; the tables of a report need none."""
    words, said = MISSING[extra]
    venv.create(tmp_path, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path), "platbase": str(tmp_path)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in EXTRAS[extra]:
            (packages / entry.name).symlink_to(entry)
    command = [str(tmp_path / "bin" / "python"), "starter.py", *words, "--address", "127.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    installs = f"run `pip install 'replan[{extra}]'`, in a checkout `pip install --editable '.[{extra}]'`."

    assert (done.returncode, done.stderr) == (Exit.BAD_USAGE, f"{said} not installed: {installs}\n")
