"""What an audit says of `replan.FaultsPlugin`: which retries of a history it would have spared, and which it leaves."""

import ast
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from evals.fakes.http_server import SILENCE, reply, serving
from extras.audit import rendering
from extras.audit.errors import fault_of, verdict
from extras.audit.record import failing_of
from extras.audit.report import Audit, AuditReport
from extras.audit.sources import Extent, of_files
from extras.audit.tests.integrations import SAVED
from extras.audit.tests.made import WITH_LIBRARIES, Made, audited
from extras.audit.tools import Confidence
from replan import FaultsPlugin
from runtime.dev_server import DevServer
from tests.faults.program import Place
from tests.made_histories import failure, payloads, timeout
from workflows.faults.fault import Applied, Code

CONFLICT = failure("HTTPStatusError", "Client error '409 Conflict' for url 'http://shop/charge'")
DOWN = failure("HTTPStatusError", "Server error '503 Service Unavailable' for url 'http://shop/charge'")
ODD = failure("OddError", "row 7 is odd")
GUESSED = failure("ShopError", "the shop returned 409")
SILENT = timeout("START_TO_CLOSE")


def sums(report: AuditReport) -> tuple[int, int, int, int]:
    """Spared, of these in doubt, of these helped, left."""
    return report.spared, report.spared_doubtful, report.spared_helped, report.left


def test_retries_after_what_cannot_pass_are_spared() -> None:
    """All of them where the failure was the same each time, else the one that is known."""
    alike = Made().call("charge", 1, failed=CONFLICT, attempt=4, last=CONFLICT)
    other = Made().call("find", 1, failed=DOWN, attempt=4, last=CONFLICT)
    report = audited([alike.end(), other.end()])

    assert sums(report) == (4, 0, 0, 2)
    assert {row.activity: (row.spared, row.left) for row in report.activities} == {"charge": (3, 0), "find": (1, 2)}
    assert report.line == "plugins=[replan.FaultsPlugin()]"


@pytest.mark.parametrize("last", [DOWN, ODD, GUESSED, failure("KeyError", "'a'"), failure("", "404 Not Found")])
def test_retries_of_which_nobody_knows_it_are_left(last: object) -> None:
    """Those that may help, those after a class that no table has, and those whose meaning is a guess."""
    report = audited([Made().call("find", 1, failed=last, attempt=3, last=last).end()])  # type: ignore[arg-type]

    assert (sums(report), report.line) == ((0, 0, 0, 2), "")
    assert "would have left 2 retries as they are" in " ".join(rendering.printed(report, 80).split())


def test_failures_of_the_program_are_left() -> None:
    """An ApplicationError passes the plugin as it is, and other SDKs have no such line."""
    details, delayed, benign, foreign, raised = (failure("FileNotFoundError", "no such file") for _ in range(5))
    details.application_failure_info.details.CopyFrom(payloads({"mine": 1}))
    delayed.application_failure_info.next_retry_delay.seconds = 1
    benign.application_failure_info.category = 1  # type: ignore[assignment]  # of the wire
    foreign.source = "GoSDK"
    raised.stack_trace = '  File "/app/a.py", line 3, in find\n    raise ApplicationError("no such file", type=KIND)\n'
    found = [
        sums(audited([Made().call("find", 1, failed=last, attempt=3, last=last).end()]))
        for last in (details, delayed, benign, foreign, raised)
    ]

    assert found == [(0, 0, 0, 2)] * 5


def test_a_retry_that_helped_although_it_was_spared_is_said() -> None:
    """The line would have ended this call: the error passes in this program."""
    report = audited([Made().call("find", 1, attempt=2, last=failure("FileNotFoundError", "no")).end()])

    assert sums(report) == (1, 0, 1, 0)
    assert "1 of the spared did help." in " ".join(rendering.printed(report, 80).split())


def test_calls_that_ran_again_after_an_unknown_outcome_are_named_in_the_line() -> None:
    """By the type of the activity, which the plugin knows; those with a key of their own, and guesses, are not."""
    made = Made().call("charge", 1, attempt=2, last=SILENT).call("get_price", 1, attempt=2, last=SILENT)
    made.call("run_tool", {"name": "book_room", "arguments": {"room": 7}}, attempt=2, last=SILENT)
    made.call("send_mail", {"idempotency_key": "a-7"}, attempt=2, last=SILENT)
    report = audited([made.end()])

    assert report.effects == {"charge": "unkeyed", "run_tool": "unkeyed"}
    assert report.line == "plugins=[replan.FaultsPlugin(effects={'charge': 'unkeyed', 'run_tool': 'unkeyed'})]"
    assert sums(report) == (2, 2, 0, 2)


def test_calls_before_the_first_unknown_outcome_count_with_the_declared_effect() -> None:
    """The line is for all of them, whatever the order in which the histories are read."""
    quiet = Made().call("charge", 1, failed=SILENT, attempt=2, last=failure("ConnectTimeout", "no connection"))
    lost = Made().call("charge", 2, attempt=2, last=failure("RemoteProtocolError", "Server disconnected"))

    assert sums(audited([quiet.end(), lost.end()])) == sums(audited([lost.end(), quiet.end()])) == (1, 1, 0, 1)


def test_histories_of_replan_are_not_counted() -> None:
    """Their workers have it."""
    own = failure("persistent_semantic", "This word is taken.")
    report = audited([Made().call("find", 1, failed=own, attempt=3, last=own).call("charge", 1, attempt=2).end()])

    assert (report.retries, sums(report), report.line) == (3, (0, 0, 0, 0), "")
    assert "FaultsPlugin" not in rendering.printed(report, 80)


@WITH_LIBRARIES
def test_agents_of_others_would_have_been_spared_what_they_wasted() -> None:
    """Each retry after a rejection or a wrong key, and each that may have charged twice."""
    audit = Audit()
    for item in of_files([SAVED], Extent()):
        audit.take(item)
    report = audit.report()

    assert sums(report) == (31, 7, 0, 19)
    assert set(report.effects) == {
        "charge",
        "agent__clerk__toolset__<agent>__call_tool",
        "temporalio.mcp.shop.call-tool",
    }


def test_the_line_is_text_and_can_be_copied() -> None:
    """Names of activities are anybody's: on a terminal and on the page they are literals of Python."""
    hostile = "send_\x1b[2J<script>\n'x'"
    report = audited([Made().call(hostile, 1, attempt=2, last=SILENT).end()])
    printed, page = rendering.printed(report, 80), rendering.page(report)

    copied = printed.partition("effects=")[2].partition(")])")[0]
    assert ast.literal_eval(copied) == {hostile: "unkeyed"}
    assert "\x1b" not in printed and "<script>" not in page and "The line that spares these retries" in page


# --- against the plugin itself


@pytest.fixture
async def place(server: DevServer, tmp_path: Path) -> Place:
    """A program beside the shared server."""
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    return Place(client, tmp_path)


async def test_the_audit_foretells_what_the_line_spares(place: Place) -> None:
    """The histories were made without it; the same calls with it make as many attempts less as the audit says."""
    odd = ("permission", "from", "in_except", "empty", "group", "reset", "refused", "key", "shop", "own", "own_final")
    async with place.worker():
        without = {raises: await place.call("fail", raises=raises) for raises in odd}
    async with place.worker(FaultsPlugin()):
        within = {raises: await place.call("fail", raises=raises) for raises in odd}
    spared = {raises: without[raises].attempts - within[raises].attempts for raises in odd}

    assert {raises: audited([done.history]).spared for raises, done in without.items()} == {**spared, "group": 0}
    assert spared["permission"] == spared["group"] == 2  # what is in a group is not in a history


async def test_the_audit_foretells_what_the_line_spares_of_requests(place: Place) -> None:
    """Of an unkeyed activity too, which is named."""
    plugins = [[], [FaultsPlugin(effects={"charge": "unkeyed"})]]
    attempts = list[list[int]]()
    histories = list[WorkflowHistory]()
    for answer in (reply(409), reply(503), reply(429, retry_after="0.05"), SILENCE):
        attempts.append([])
        for line in plugins:
            async with serving(answer) as url, place.worker(*line):
                done = await place.call("charge", url=url)
            attempts[-1].append(done.attempts)
            histories += [] if line else [done.history]
    report = audited(histories)

    assert attempts == [[3, 1], [3, 1], [3, 3], [3, 1]]
    assert report.effects == {"charge": "unkeyed"}
    assert sums(report) == (6, 4, 0, 2)


async def test_what_the_plugin_said_is_read_from_the_history(place: Place) -> None:
    """Its Fault is the detail of the failure, and so certain; what the program declared of its errors counts."""
    async with place.worker(FaultsPlugin(raises={KeyError: "busy"})):
        retried = await place.call("fail", raises="key")
        ended = await place.call("fail", raises="permission")
    recorded = [failing_of(done.failure) for done in (retried, ended)]
    found = [verdict(failing) for failing in recorded]

    assert [(one.code, one.confidence) for one in found if one] == [
        (Code.BUSY, Confidence.CERTAIN),
        (Code.FORBIDDEN, Confidence.CERTAIN),
    ]
    assert [fault_of(failing).applied for failing in recorded] == [Applied.UNKNOWN, Applied.NONE]
    assert sums(audited([retried.history, ended.history])) == (0, 0, 0, 2)


@pytest.mark.parametrize(
    "detail",
    [
        {},
        {"quadrant": "what"},
        {"quadrant": "persistent_semantic", "code": "conflict", "applied": "none", "reason": []},
        {"quadrant": 1, "code": [], "applied": {}},
        ["conflict"],
        "conflict",
        None,
        7,
    ],
)
def test_a_detail_that_is_none_of_the_plugin_is_the_programs_own(detail: object) -> None:
    """In a hostile file it is anything."""
    last = failure("PermissionError", "no")
    last.application_failure_info.details.CopyFrom(payloads(detail))
    (call,) = Made().call("find", 1, failed=last, attempt=3, last=last).end().record.calls

    assert call.last and call.last.fault is None and call.last.is_made
