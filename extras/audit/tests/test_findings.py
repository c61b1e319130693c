"""Each finding: in a history that has it, and not in one that nearly has."""

import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent

from extras.audit.findings import FINDINGS, FoundPlace, findings_in
from extras.audit.record import Recording
from extras.audit.report import MAX_ACTIVITIES
from extras.audit.sources import Begin, Extent, files_of, of_files
from extras.audit.tests.integrations import EXPECTED, SAVED, found_in
from extras.audit.tests.made import Made, audited
from extras.audit.tools import Confidence
from tests.console.replaying import HISTORIES
from tests.made_histories import failure, timeout

CONFLICT = failure("HTTPStatusError", "Client error '409 Conflict' for url 'http://shop/charge'")
LIMITED = failure("HTTPStatusError", "Client error '429 Too Many Requests', retry after 30 s")
SILENT = timeout("START_TO_CLOSE")
LOST = failure("RemoteProtocolError", "Server disconnected without sending a response.")
ODD = failure("OddError", "row 7 is odd")
MODEL, USAGE = "call_model", {"usage": {"total_tokens": 12}}
SECRET = "sk-" + "live-4f9a8b7c6d5e4f3a2b1c"
LONG = ["word"] * 30_000


def agent() -> Made:
    """A history that begins as those of agents do."""
    return Made().call(MODEL, "go", result=USAGE)


HAVE: dict[str, list[Made]] = {
    "retried_for_nothing": [
        agent().call("charge", 1, failed=CONFLICT, attempt=4, last=CONFLICT),
        Made().call("charge", 1, failed=LOST, attempt=3, last=CONFLICT),
        Made().call("parse", 1, failed=failure("KeyError"), attempt=2, last=failure("KeyError")),
    ],
    "same_failure_each_time": [Made().call("parse", 1, failed=ODD, attempt=4, last=ODD)],
    "limit_not_waited_for": [Made().call("get_price", 1, failed=LIMITED, attempt=3, last=LIMITED)],
    "ran_again_after_unknown_outcome": [
        Made().call("charge", 1, attempt=2, last=SILENT),
        Made().call("charge", 1, attempt=2, last=LOST),
        Made().call("send_mail", 1, attempt=2, last=timeout("HEARTBEAT")),
        Made().call("charge", 1, failed=SILENT).call("charge", 1),
        Made().call("http_request", {"method": "POST", "url": "http://shop"}, attempt=2, last=SILENT),
        Made().call("run_tool", {"name": "book_room", "arguments": {"room": 7}}, attempt=2, last=SILENT),
    ],
    "workflow_ran_again": [],
    "repeated_call": [
        agent().call("find", 1, result=[]).call(MODEL, "more", result=USAGE).call("find", 1, result=[]),
        agent().call("find", 1, failed=CONFLICT).call(MODEL, "more", result=USAGE).call("find", 1, failed=CONFLICT),
    ],
    "turns_after_cap": [
        Made().call(MODEL, 1, failed=failure("UsageLimitExceeded", "the limit is 5")).call(MODEL, 2, result=USAGE),
    ],
    "no_new_plan": [agent().call("charge", 1, failed=CONFLICT).end("FAILED")],
    "unbounded_retries": [Made().call("find", 1, options={"maximum_attempts": 0, "schedule_to_close": 0})],
    "no_timeout": [Made().call("find", 1, options={"start_to_close": 86_400})],
    "long_without_heartbeat": [Made().call("find", 1, seconds=61)],
    "secret_in_payload": [Made().call("find", {"note": SECRET}), Made().call("find", {"password": "hunter22"})],
    "near_limit": [Made().call("find", "x" * (1 << 20))],
    "carried_conversation": [
        agent().call(MODEL, LONG).call(MODEL, [*LONG, "more"]).call(MODEL, [*LONG, "more", "and more"]),
    ],
    "no_continue_as_new": [],
    "stuck_workflow_task": [
        Made().add("WORKFLOW_TASK_FAILED", cause=24, failure=failure("KeyError")),
    ],
}
HAVE_NOT: dict[str, list[Made]] = {
    "retried_for_nothing": [
        Made().call("charge", 1, attempt=4, last=CONFLICT),  # it passed after all
        Made().call("charge", 1, failed=CONFLICT),
        Made().call("find", 1, failed=LOST, attempt=4, last=LOST),
        Made().call("find", 1, failed=ODD, attempt=2, last=ODD),
    ],
    "same_failure_each_time": [
        Made().call("parse", 1, failed=ODD, attempt=2, last=ODD),
        Made().call("parse", 1, attempt=4, last=ODD),
        Made().call("parse", 1, failed=failure("OddError", "another"), attempt=4, last=ODD),
    ],
    "limit_not_waited_for": [Made().call("get_price", 1, attempt=3, last=LIMITED)],
    "ran_again_after_unknown_outcome": [
        Made().call("get_price", 1, attempt=2, last=SILENT),
        Made().call("charge", 1, attempt=2, last=CONFLICT),
        Made().call("charge", 1, attempt=2, last=timeout("SCHEDULE_TO_START")),
        Made().call("charge", 1, attempt=2, last=failure("ConnectTimeout", "no connection")),
        Made().call("charge", 1, failed=SILENT).call("charge", 2),
        Made().call("order_status", 1, attempt=2, last=SILENT),
        Made().call(MODEL, 1, attempt=2, last=SILENT),
    ],
    "repeated_call": [
        agent().call("find", 1, result=[]).call(MODEL, "more", result=USAGE).call("find", 1, result=[7]),
        agent().call("find", 1, result=[]).call(MODEL, 2, result=USAGE).call("add", 1).call("find", 1, result=[]),
        Made().call("find", 1, result=[]).call("find", 1, result=[]),
    ],
    "no_new_plan": [
        agent().call("charge", 1, failed=CONFLICT).call(MODEL, "rejected", result=USAGE).end("FAILED"),
        Made().call("charge", 1, failed=CONFLICT).end("FAILED"),
    ],
    "long_without_heartbeat": [Made().call("find", 1, seconds=61, options={"heartbeat": 5})],
    "unbounded_retries": [Made().call("find", 1, options={"maximum_attempts": 0})],
    "secret_in_payload": [
        Made().call("find", {"key": "01a2b3c4-1111-2222-3333-444455556666/step"}),
        Made().call("find", {"max_tokens": 4096, "page_token": "CAUQAA4f9a8b7c6d5e"}),
        Made().call("find", {"api_key": "${SHOP_API_KEY_2}"}),
        Made().call("find", "basic research on tokens and keys, 2026"),
    ],
    "carried_conversation": [agent().call(MODEL, LONG, result=USAGE)],
    "stuck_workflow_task": [
        Made().add("WORKFLOW_TASK_FAILED", cause=24, failure=failure("KeyError")).add("WORKFLOW_TASK_COMPLETED"),
    ],
}


def test_a_history_has_what_it_is_made_for_and_one_that_is_only_near_has_not() -> None:
    """Every row of the table, in each of its forms; near are what helped, is known, reads, or changed between."""
    missing = [
        (name, number) for name, made in HAVE.items() for number, one in enumerate(made) if name not in one.found
    ]
    wrong = [(name, number) for name, made in HAVE_NOT.items() for number, one in enumerate(made) if name in one.found]

    assert (missing, wrong) == ([], [])
    assert set(HAVE) == {finding.name for finding in FINDINGS}


def test_a_finding_is_at_the_most_as_sure_as_its_row_says() -> None:
    """The table promises it to readers of docs/audit.md."""
    most, order = {finding.name: finding.confidence for finding in FINDINGS}, tuple(Confidence)
    found = [made.found for histories in HAVE.values() for made in histories]
    sure = [(name, place.confidence) for one in found for name, places in one.items() for place in places]

    assert [name for name, confidence in sure if order.index(confidence) < order.index(most[name])] == []


def test_the_same_failure_at_the_end_stands_for_the_attempts_before() -> None:
    """Only the failure before the last attempt is in a history; of a long one the server keeps it as a cause."""
    cut = failure("", "Failure exceeds size limit.", cause=CONFLICT)
    cut.server_failure_info.SetInParent()
    pairs = [(CONFLICT, CONFLICT), (LOST, CONFLICT), (CONFLICT, cut)]
    found = [Made().call("charge", 1, failed=end, attempt=4, last=last).found for end, last in pairs]

    assert [place.times for one in found for place in one["retried_for_nothing"]] == [3, 1, 3]


def test_a_workflow_that_was_retried_is_found() -> None:
    """Every effect of the run before may be made again."""
    made = Made()
    started = made.events[0].workflow_execution_started_event_attributes
    started.attempt = 2
    started.continued_failure.CopyFrom(CONFLICT)

    assert set(made.found) == {"workflow_ran_again"}


@pytest.mark.parametrize(("end", "found"), [("COMPLETED", {"no_continue_as_new"}), ("CONTINUED_AS_NEW", set())])
def test_a_suggestion_to_continue_as_new_that_is_not_followed_is_found(end: str, found: set[str]) -> None:
    """Ten workflow tasks later it is overdue."""
    made = Made().add("WORKFLOW_TASK_STARTED", suggest_continue_as_new=True)
    for _ in range(10):
        made.add("WORKFLOW_TASK_COMPLETED")

    assert set(made.end(end).found) == found


def place_of(made: Made, name: str = "ran_again_after_unknown_outcome") -> FoundPlace:
    """The only place where a history has this finding."""
    [place] = made.found[name]
    return place


def test_the_arguments_of_a_call_that_may_have_happened_twice_are_shown_without_secrets() -> None:
    """So that a person can look; of a secret, four characters and how long it is."""
    place = place_of(Made().call("charge", {"account": "ann", "token": SECRET}, attempt=2, last=SILENT))
    masked = place_of(Made().call("find", {"note": SECRET}), "secret_in_payload").detail

    assert '"account":"ann"' in place.args and SECRET not in place.args
    assert place.events == (2, 3, 4)
    assert masked == f"a key in a known format in input: sk-l*** ({len(SECRET)} characters)"


def test_an_idempotency_key_makes_a_repetition_a_guess() -> None:
    """A service may know the call again, if it looks at the key."""
    made = Made().call("charge", {"idempotency_key": "order-7"}, attempt=2, last=SILENT)

    assert place_of(made).confidence is Confidence.GUESSED


def test_encrypted_arguments_leave_what_types_and_events_tell() -> None:
    """The name of the activity, its attempts and its failures are never encrypted."""
    made = Made().call("charge", 1, attempt=2, last=SILENT, encoding="binary/encrypted")

    assert place_of(made).args == "" and made.record.opaque == made.record.payloads == 2


def test_each_fault_that_was_planted_in_agents_of_others_is_found_and_nothing_else() -> None:
    """Runs of pydantic-ai, OpenAI Agents, temporalio-mcp and a home-made loop: extras/audit/tests/integrations.py."""
    expected = {f"{program}-{one}.json": {*names} for program, runs in EXPECTED.items() for one, names in runs.items()}
    found = {name.rpartition(":")[2]: found_in(events) for name, events in histories_of([SAVED])}

    assert found == expected


def histories_of(files: Iterable[Path]) -> Iterator[tuple[str, list[HistoryEvent]]]:
    """The name and the events of each history."""
    items = [*of_files(files, Extent()), Begin("")]
    begins = [number for number, item in enumerate(items) if isinstance(item, Begin)]
    for first, last in itertools.pairwise(begins):
        yield items[first].name, [item for item in items[first:last] if isinstance(item, HistoryEvent)]  # type: ignore[union-attr]


def test_saved_runs_name_no_machine() -> None:
    """Neither folders nor hosts of where they were made."""
    with zipfile.ZipFile(SAVED) as saved:
        texts = {name: saved.read(name).decode() for name in saved.namelist()}

    assert [name for name, text in texts.items() if re.search("/(tmp|root|home)/", text)] == []
    assert texts


def test_nothing_is_found_in_histories_of_replan() -> None:
    """Least of all waste; and each is known as Replan's own, whose retries the line would not change."""
    found, others = dict[str, set[str]](), list[str]()
    for name, events in histories_of(files_of(HISTORIES)):
        recording = Recording(name)
        for event in events:
            recording.add(event)
        found[name] = {finding.name for finding, _ in findings_in(recording.record)}
        others += [name] if recording.record.calls and not recording.record.is_replans else []

    assert len(found) > 30
    assert {name: names for name, names in found.items() if names} == {} and others == []


def test_only_so_many_types_of_workflows_are_counted_apart() -> None:
    """A service whose types have names that it makes up takes no more memory with each history."""
    names = [f"Order{number}" for number in range(MAX_ACTIVITIES + 2)]

    assert len(audited(Made(name) for name in [*names, *names]).workflows) == MAX_ACTIVITIES
