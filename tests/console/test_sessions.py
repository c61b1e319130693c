"""`effects`, `explain`, `undo` and `list` with `--session`: all calls of an agent of the gateway together."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from runtime.dev_server import DevServer
from tests.console.rollback import Rollbacks, document
from tests.console.test_undo import seen


@pytest.fixture(scope="module")
def worked(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollbacks]:
    """Commands, and a worker that runs."""
    desk = Rollbacks(server.address, tmp_path_factory.mktemp("sessions"))
    with desk.one():
        yield desk


@pytest.fixture
def served(worked: Rollbacks) -> Rollbacks:
    """The same when nothing has happened yet."""
    worked.clear()
    return worked


@pytest.fixture
def session() -> str:
    """A name that no other test has."""
    return f"shop-{uuid.uuid4().hex[:8]}"


def test_all_calls_of_a_session_are_listed_explained_and_undone_together(served: Rollbacks, session: str) -> None:
    """Oldest first in lists, newest first in the undoing; another session whose name begins so stays as it is."""
    first = served.run_task("put", id=f"mcp:{session}:b1")
    second = served.run_task("note", "person", options=("--on-escalation", "end"), id=f"mcp:{session}:a2")
    other = served.run_task("put:other", id=f"mcp:{session}-2:c3")
    told = document(served.starter("effects", "--session", session, "--json"))
    listed = served.starter("effects", "--session", session).stdout
    explained = served.starter("explain", "--session", session).stdout
    data = document(served.starter("explain", "--session", session, "--json"))
    tasks = document(served.starter("list", "--session", session, "--json"))["tasks"]
    refused = document(served.starter("undo", "--session", session, "--json"))
    made = served.calls()
    undone = served.starter("undo", "--session", session, "--yes")
    again = served.starter("undo", "--session", session, "--yes", "--json")

    assert [(one["task_id"], one["kind"]) for one in told["effects"]] == [(first, "put"), (second, "note")]
    assert (told["session"], told["more"], other in listed) == (session, False, False)
    assert listed.index(f"task {first}") < listed.index(f"task {second}")
    assert f"{first} (put): completed\n" in explained and f"{second} (note and person): escalated\n" in explained
    assert explained.index(first) < explained.index(second) < explained.index("person")
    assert [task["task_id"] for task in data["tasks"]] == [first, second]
    assert [task["task_id"] for task in tasks] == [second, first]
    assert refused["error"]["code"] == "not_confirmed" and "2 tasks of session" in refused["error"]["reason"]
    assert (undone.returncode, served.calls()) == (0, [*made, "remove 1", "drop put"])
    assert f"2 of 2 effects of session {session} undone." in undone.stdout
    assert undone.stdout.index(second) < undone.stdout.index(first)
    assert (again.returncode, document(again)["tasks"], document(again)["undone"]) == (0, [], True)


def test_a_running_task_is_passed_over_and_a_held_call_waits_for_its_code(served: Rollbacks, session: str) -> None:
    """The code stands for the calls of all tasks; the exit code says that effects stay."""
    held = served.run_task("reserve:large", id=f"mcp:{session}:held")
    running = served.run_task("put", "linger", options=("--detach",), id=f"mcp:{session}:runs")
    served.called("linger")
    unseen = served.starter("undo", "--session", session, "--yes")
    told = document(served.starter("undo", "--session", session, "--yes", "--json"))
    wrong = served.starter("undo", "--session", session, "--confirm", "0" * 12, "--json")
    before = served.calls()
    confirmed = served.starter("undo", "--session", session, "--confirm", told["confirm"], "--json")
    served.starter("cancel", running)

    assert unseen.returncode == 3
    assert f"Passed over, since it runs: {running}." in unseen.stdout and f"cancel {running} --undo" in unseen.stdout
    assert f"undo --session {session} --confirm {told['confirm']}" in unseen.stdout
    assert ([call["step"] for call in told["held"]], told["running"]) == ([f"{held}/reserve"], [running])
    assert (document(wrong)["error"]["code"], "wire large" in before) == ("not_confirmed", False)
    assert (confirmed.returncode, served.calls()[len(before) :]) == (3, ["wire large"])
    assert [task["undone"] for task in document(confirmed)["tasks"]] == [True]


async def test_a_person_is_shown_all_that_would_be_undone_and_asked_once(served: Rollbacks, session: str) -> None:
    """Also the calls that need an approval, which that answer gives."""
    for name, kind in (("a", "put"), ("b", "reserve:large"), ("c", "engrave")):
        await asyncio.to_thread(served.run_task, kind, id=f"mcp:{session}:{name}")
    no = await seen(served, ("undo", "--session", session), "\n")
    before = served.calls()
    yes = await seen(served, ("undo", "--session", session), "yes\n")

    assert (no[0], [call for call in before if call.startswith(("wire", "drop"))]) == (1, [])
    text = " ".join(yes[1].split())
    assert f"To undo session '{session}', 2 calls would be made:" in text
    assert f"drop undoes mcp:{session}:a/put" in text and f"no call undoes what mcp:{session}:c changed" in text
    assert yes[1].count("Type y or n") == 1
    assert (yes[0], served.calls()[len(before) :]) == (3, ["wire large", "drop put"])


@pytest.mark.parametrize("command", ["effects", "explain", "undo", "list"])
def test_a_session_without_tasks_is_named_with_a_remedy(served: Rollbacks, session: str, command: str) -> None:
    served.run_task("put", id=f"mcp:{session}:a")
    refused = served.starter(command, "--session", f"{session}x", "--json")
    error = document(refused)["error"]

    assert (refused.returncode, error["code"]) == (2, "unknown_session")
    assert f"No task of a session '{session}x' is here" in error["reason"] and session in error["reason"]
    assert "replan mcp --session NAME" in error["remedy"]


@pytest.mark.parametrize(
    "words", [("effects", "x"), ("undo", "x"), ("explain", "x"), ("explain", "--step", "x")], ids="-".join
)
def test_a_session_is_named_alone(worked: Rollbacks, words: tuple[str, ...]) -> None:
    refused = worked.starter(*words, "--session", "shop", "--json")

    assert (refused.returncode, document(refused)["error"]["code"]) == (2, "usage")
