"""Each finding: in a history that has it, and not in one that nearly has."""

import zipfile
from collections.abc import Collection

import pytest
from temporalio.api.history.v1 import HistoryEvent

from audit.findings import FINDINGS, findings_in
from audit.record import Recording
from audit.report import MAX_ACTIVITIES
from audit.sources import Begin, Extent, files_of, of_files
from audit.tools import Confidence
from tests.audit.integrations import EXPECTED, SAVED
from tests.audit.made import Made, audited, failure, timeout
from tests.console.replaying import HISTORIES

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


def test_a_history_has_what_it_is_made_for() -> None:
    """Every row of the table, in each of its forms."""
    missing = {
        name: [number for number, made in enumerate(histories) if name not in made.found]
        for name, histories in HAVE.items()
    }

    assert {name: numbers for name, numbers in missing.items() if numbers} == {}
    assert set(HAVE) == {finding.name for finding in FINDINGS}


def test_a_history_that_is_only_near_has_not() -> None:
    """What helped, what is known, what reads, what changed between."""
    wrong = {
        name: [number for number, made in enumerate(histories) if name in made.found]
        for name, histories in HAVE_NOT.items()
    }

    assert {name: numbers for name, numbers in wrong.items() if numbers} == {}


def test_a_finding_is_at_the_most_as_sure_as_its_row_says() -> None:
    """The table promises it to readers of docs/audit.md."""
    most = {finding.name: finding.confidence for finding in FINDINGS}
    order = tuple(Confidence)
    wrong = [
        name
        for histories in HAVE.values()
        for made in histories
        for name, places in made.found.items()
        if any(order.index(place.confidence) < order.index(most[name]) for place in places)
    ]

    assert wrong == []


def test_the_same_failure_at_the_end_stands_for_the_attempts_before() -> None:
    """Only the failure before the last attempt is in a history."""
    alike = Made().call("charge", 1, failed=CONFLICT, attempt=4, last=CONFLICT).found["retried_for_nothing"]
    other = Made().call("charge", 1, failed=LOST, attempt=4, last=CONFLICT).found["retried_for_nothing"]

    assert [place.times for place in (*alike, *other)] == [3, 1]


def test_a_failure_that_the_server_cut_is_the_same() -> None:
    """Of a long one the server keeps its own words, and the failure as their cause."""
    cut = failure("", "Failure exceeds size limit.", cause=CONFLICT)
    cut.server_failure_info.SetInParent()
    (place,) = Made().call("charge", 1, failed=CONFLICT, attempt=4, last=cut).found["retried_for_nothing"]

    assert place.times == 3


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


def test_the_arguments_of_a_call_that_may_have_happened_twice_are_shown_without_secrets() -> None:
    """So that a person can look."""
    made = Made().call("charge", {"account": "ann", "token": SECRET}, attempt=2, last=SILENT)
    [place] = made.found["ran_again_after_unknown_outcome"]

    assert '"account":"ann"' in place.args and SECRET not in place.args
    assert place.events == (2, 3, 4)


def test_a_secret_is_shown_masked() -> None:
    """Four characters of it, and how long it is."""
    [place] = Made().call("find", {"note": SECRET}).found["secret_in_payload"]

    assert place.detail == f"a key in a known format in input: sk-l*** ({len(SECRET)} characters)"


def test_an_idempotency_key_makes_a_repetition_a_guess() -> None:
    """A service may know the call again, if it looks at the key."""
    made = Made().call("charge", {"idempotency_key": "order-7"}, attempt=2, last=SILENT)

    assert [place.confidence for place in made.found["ran_again_after_unknown_outcome"]] == [Confidence.GUESSED]


def test_encrypted_arguments_leave_what_types_and_events_tell() -> None:
    """The name of the activity, its attempts and its failures are never encrypted."""
    made = Made().call("charge", 1, attempt=2, last=SILENT, encoding="binary/encrypted")
    [place] = made.found["ran_again_after_unknown_outcome"]

    assert place.args == "" and made.record.opaque == made.record.payloads == 2


SAVED_RUNS = [(program, scenario) for program, runs in EXPECTED.items() for scenario in runs]


def names_in(events: list[HistoryEvent]) -> set[str]:
    recording = Recording("saved")
    for event in events:
        recording.add(event)
    return {finding.name for finding, _ in findings_in(recording.record)}


def saved_runs() -> dict[str, set[str]]:
    """What is found in each saved run of the agents of others."""
    found, events, name = dict[str, set[str]](), list[HistoryEvent](), ""
    for item in [*of_files([SAVED], Extent()), Begin("")]:
        if isinstance(item, Begin):
            found |= {name: names_in(events)} if name else {}
            name, events = item.name.rpartition(":")[2].removesuffix(".json"), []
        elif isinstance(item, HistoryEvent):
            events.append(item)
    return found


def test_each_fault_that_was_planted_in_agents_of_others_is_found_and_nothing_else() -> None:
    """Runs of pydantic-ai, OpenAI Agents, temporalio-mcp and a home-made loop: tests/audit/integrations.py."""
    expected: dict[str, Collection[str]] = {
        f"{program}-{scenario}": set(EXPECTED[program][scenario]) for program, scenario in SAVED_RUNS
    }

    assert saved_runs() == expected


def test_saved_runs_name_no_machine() -> None:
    """Neither folders nor hosts of where they were made."""
    with zipfile.ZipFile(SAVED) as saved:
        texts = {name: saved.read(name).decode() for name in saved.namelist()}

    assert [name for name, text in texts.items() if "/tmp/" in text or "/root/" in text or "/home/" in text] == []  # noqa: S108


def test_nothing_is_found_in_histories_of_replan() -> None:
    """Least of all waste; and each is known as Replan's own, whose retries the line would not change."""
    found, recording, others = dict[str, set[str]](), Recording(""), list[str]()
    for item in [*of_files(files_of(HISTORIES), Extent()), Begin("")]:
        if isinstance(item, Begin):
            found[recording.record.name] = {finding.name for finding, _ in findings_in(recording.record)}
            others += [recording.record.name] if recording.record.calls and not recording.record.is_replans else []
            recording = Recording(item.name)
        elif isinstance(item, HistoryEvent):
            recording.add(item)

    assert len(found) > 30
    assert {name: names for name, names in found.items() if names} == {} and others == []


def test_only_so_many_types_of_workflows_are_counted_apart() -> None:
    """A service whose types have names that it makes up takes no more memory with each history."""
    names = [f"Order{number}" for number in range(MAX_ACTIVITIES + 2)]

    assert len(audited(Made(name) for name in [*names, *names]).workflows) == MAX_ACTIVITIES
