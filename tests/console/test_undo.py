"""`undo`, `cancel --undo`, `--on-escalation`, `effects`, and all calls of a session: what was done, and what stays."""

import asyncio
import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runtime.dev_server import DevServer
from tests.console.rollback import Rollbacks, document
from tests.console.terminal import Terminal, starter
from tests.processes import ROOT

ALL = ("note", "deposit", "send", "shout", "put")
"""One step of each effect; each has an undo. What undoes them, the newest first:"""
BACK = ["drop put", "whisper shout", "recall send", "withdraw 1", "remove 1"]


@pytest.fixture
def desk(server: DevServer, tmp_path: Path) -> Rollbacks:
    """Commands and worker processes."""
    return Rollbacks(server.address, tmp_path)


@pytest.fixture(scope="module")
def worked(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollbacks]:
    """The same with a worker that runs, for all tests that leave it alive."""
    desk = Rollbacks(server.address, tmp_path_factory.mktemp("served"))
    with desk.one():
        yield desk


@pytest.fixture
def served(worked: Rollbacks) -> Rollbacks:
    """The same when nothing has happened yet."""
    worked.clear()
    return worked


def test_every_effect_is_undone_once_however_often_it_is_wanted(served: Rollbacks) -> None:
    """Rows in the store and in the bank, letters, shouts, files: the newest first; then nothing is called. `list` has
    the task alone, and no rollback."""
    task = served.run_task(*ALL)
    first, calls = served.starter("undo", task), served.calls()[-5:]
    made = len(served.calls())
    second, third = served.starter("undo", task), document(served.starter("undo", task, "--json"))
    late = served.starter("cancel", task, "--undo", "--json")
    listed = document(served.starter("list", "--json", "--query", f"WorkflowId IN ('{task}', 'undo-{task}')"))["tasks"]

    assert (first.returncode, calls, served.rows()) == (0, BACK, 0)
    assert "  ↶ put (put) undone with drop" in first.stdout and f"5 of 5 effects of {task} undone." in first.stdout
    assert (second.returncode, len(served.calls())) == (0, made)
    assert second.stdout.startswith(f"{task} is already undone: 5 effects, at 20")
    assert (third["undone"], third["already"], len(third["undo"])) == (True, True, 5)
    assert (late.returncode, document(late)["error"]["code"]) == (1, "closed")
    assert f"undo {task}" in document(late)["error"]["remedy"]
    assert [one["task_id"] for one in listed] == [task]


def test_what_cannot_be_undone_is_named(served: Rollbacks) -> None:
    """No undo, and nobody knows: the exit code says that a person has to look, and what can be undone is, once. The
    task's own history knows nothing of a rollback after its end; `show` and `explain` do."""
    task = served.run_task("note", "engrave", "shout:lost")
    before = served.starter("explain", task).stdout
    undone, made = served.starter("undo", task, "--json"), served.calls()
    again, told = served.starter("undo", task, "--json"), document(undone)["undo"]
    said = f"What it did was undone after its end, but some effects stay (workflow undo-{task})"

    assert (undone.returncode, document(undone)["undone"], served.rows()) == (3, False, 0)
    assert [(one["step_id"], one["done"]) for one in told] == [("shout", False), ("engrave", False), ("note", True)]
    assert "nobody knows whether it was applied" in told[0]["reason"]
    assert (again.returncode, served.calls()) == (3, made)
    assert {one["step_id"]: one["done"] for one in document(again)["undo"]} == {
        one["step_id"]: one["done"] for one in told
    }
    assert [said in served.starter(command, task).stdout for command in ("explain", "show")] == [True, True]
    assert said not in before


@pytest.mark.full
def test_a_thread_that_outlived_its_task_is_named_and_its_end_is_known(served: Rollbacks) -> None:
    """Past its limit it is for a person: `undo` and `effects` name it, and `effects` what it came to in the end."""
    with served.hanging():
        task = served.run_task("note", "ponder")
        undone, listed = served.starter("undo", task), served.starter("effects", task)
    until = time.monotonic() + 40
    while "ponder  ponder (unkeyed)  applied" not in served.starter("effects", task).stdout:
        assert time.monotonic() < until

    assert (undone.returncode, served.rows()) == (3, 0)
    assert "ponder (ponder) stays: nobody knows" in undone.stdout and "was still running" in undone.stdout
    assert "ponder  ponder (unkeyed)  outcome unknown" in listed.stdout


@pytest.mark.full
def test_a_worker_may_be_killed_in_the_middle(desk: Rollbacks) -> None:
    """Each effect is undone once all the same, and `undo` a second time follows the rollback that runs already. Without
    a worker nobody knows what to undo."""
    with desk.one():
        task = desk.run_task(*ALL)
    nobody = desk.starter("undo", task, "--json")
    with desk.hanging(), desk.one() as doomed:
        first = threading.Thread(target=desk.starter, args=("undo", task))
        first.start()
        desk.called("recall send")
        doomed.kill()
    with desk.one():
        second = desk.starter("undo", task, "--json")
    first.join()
    recalls = [line for line in (desk.folder / "calls").read_text().splitlines() if line.startswith("recall")]

    assert (nobody.returncode, document(nobody)["error"]["code"]) == (6, "no_worker")
    assert f"python worker.py --queue {desk.queue}" in document(nobody)["error"]["remedy"]
    assert (second.returncode, document(second)["undone"], desk.rows()) == (0, True, 0)
    assert len(set(recalls)) == 1
    assert [desk.calls().count(one) for one in BACK if one != "recall send"] == [1, 1, 1, 1]


@pytest.mark.parametrize("undo", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_running_task_is_not_undone_but_can_be_cancelled_so(served: Rollbacks, undo: bool) -> None:
    """`undo` names `cancel --undo`, which ends it as cancelled with all taken back; after a `cancel` it stays."""
    task = served.run_task("note", "linger", options=("--detach",))
    served.called("linger")
    refused = served.starter("undo", task, "--json")
    asked = served.starter("cancel", task, "--json", *["--undo"] * undo)
    ended = served.starter("show", task, "--follow", "--json")
    kept, after = served.rows(), served.starter("undo", task)

    assert (refused.returncode, document(refused)["error"]["code"]) == (1, "still_running")
    assert f"cancel {task} --undo" in document(refused)["error"]["remedy"]
    told: dict[str, object] = {"cancel_requested": True, "undo": undo, "failing": None, "paused": []}
    assert document(asked) == {"schema": 1, "task_id": task, **told}
    assert (ended.returncode, [one["done"] for one in document(ended)["undo"]], kept) == (5, [True] * undo, not undo)
    assert (after.returncode, served.rows()) == (0, 0)


@pytest.mark.parametrize(("how", "rows"), [("end", 1), ("undo", 0)])
def test_an_escalated_task_keeps_or_undoes(served: Rollbacks, how: str, rows: int) -> None:
    """As `--on-escalation` says; where nothing was done there is nothing to undo, a sentence and success."""
    served.run_task("note", "person", options=("--on-escalation", how))
    kept, task = served.rows(), served.run_task("person", options=("--on-escalation", how))
    undone = served.starter("undo", task)

    assert (kept, undone.returncode) == (rows, 0)
    assert undone.stdout == f"There is nothing to undo: {task} has changed nothing that still stands.\n"


@pytest.mark.full
def test_an_effect_of_a_run_after_an_undo_is_undone(served: Rollbacks) -> None:
    """A task that was reset after it had been undone is undone anew: its last run has effects of its own."""
    task = served.run_task("put", "person")
    served.starter("undo", task)
    assert served.starter("reset", task, "--to", "put", "--keep").returncode == 0
    served.starter("show", task, "--follow")
    again = served.starter("undo", task)

    assert (again.returncode, served.calls()[-2:]) == (0, ["put put", "drop put"]), again


def test_a_task_that_goes_back_to_before_an_undone_effect_meets_a_conflict(served: Rollbacks) -> None:
    """The step is called again with its key, which was undone: no second effect, and not the old result either."""
    task = served.run_task("note", "person")
    served.starter("undo", task)
    assert served.starter("reset", task, "--to", "note").returncode == 0
    ended = document(served.starter("show", task, "--follow", "--json"))
    note = next(step for step in ended["steps"] if step["id"] == "note")

    assert (note["fault"]["code"], note["result"], served.rows()) == ("conflict", None, 0)
    assert "was done and then undone" in note["fault"]["reason"]


@pytest.mark.full
def test_a_rollback_is_left_alone_by_ctrl_c(served: Rollbacks) -> None:
    """It goes on, and the command says how to come back."""
    task = served.run_task("send")
    with served.hanging(), served.begin("undo", task) as left:
        served.called("recall send")
        left.send_signal(2)
        said = left.communicate(timeout=30)[1]

    assert (left.returncode, f"Follow: python starter.py undo {task}" in said) == (130, True)
    assert served.starter("undo", task).returncode == 0


HELD = {
    **{"step": "reserve", "kind": "wire", "args": {"word": "large"}, "approve": "the word is large"},
    **{"undoes_kind": "reserve", "undoes_args": {"word": "large"}},
}


def test_a_call_that_needs_an_approval_is_held_until_it_was_seen(served: Rollbacks) -> None:
    """Without a terminal the calls are shown with a code, which stands for these calls alone."""
    task = served.run_task("put", "reserve:large")
    unseen, told = served.starter("undo", task), document(held := served.starter("undo", task, "--json"))
    made = served.calls()
    wrong = served.starter("undo", task, "--confirm", "0" * 12, "--json")
    confirmed = served.starter("undo", task, "--confirm", told["confirm"], "--json")
    again = document(served.starter("undo", task, "--json"))

    assert (unseen.returncode, held.returncode, made) == (3, 3, ["put put", "reserve large", "drop put"])
    assert f"python starter.py undo {task} --confirm {told['confirm']}" in unseen.stdout
    assert "wire (the word is large) undoes reserve\n      word: large\n" in unseen.stdout
    assert "      (the call was: reserve word large)\n" in unseen.stdout
    assert told["held"] == [HELD | {"is_certain": True}]
    assert (wrong.returncode, document(wrong)["error"]["code"]) == (1, "not_confirmed")
    assert (confirmed.returncode, document(confirmed)["held"], again["already"]) == (0, [], True)
    assert served.calls() == [*made, "wire large"]


async def seen(desk: Rollbacks, words: Sequence[str], typed: str) -> tuple[int, str]:
    """The exit code of a command at a terminal where this is typed, and what it showed."""
    with Terminal(starter(ROOT, *words), {"TEMPORAL_ADDRESS": desk.address}, ROOT) as window:
        await window.until("then Enter: ")
        window.press(typed)
        ended = await window.ended()
    return ended, "\n".join(window.shown.text)


async def test_a_person_at_a_terminal_is_shown_what_would_be_called(served: Rollbacks) -> None:
    """Only a yes lets the rollback begin; no call is made before."""
    task = await asyncio.to_thread(served.run_task, "put", "reserve:large")
    no = await seen(served, ("undo", task), "n\n")
    before = served.calls()
    yes = await seen(served, ("undo", task), "yes\n")

    assert (no[0], before) == (1, ["put put", "reserve large"])
    assert "To undo this, 2 calls would be made:" in yes[1] and "drop undoes put" in yes[1]
    assert (yes[0], served.calls()[2:]) == (0, ["wire large", "drop put"])


@pytest.mark.parametrize("is_seen", [True, pytest.param(False, marks=pytest.mark.full)], ids=["seen", "unseen"])
async def test_a_person_who_cancels_is_shown_what_would_be_called(served: Rollbacks, is_seen: bool) -> None:
    """The task is told what was seen, and makes exactly that; without a terminal the outcome names what was held."""
    task = await asyncio.to_thread(served.run_task, "reserve:large", "linger", options=("--detach",))
    await asyncio.to_thread(served.called, "linger")
    words = ("cancel", task, "--undo")
    if is_seen:
        code, shown = await seen(served, words, "yes\n")
        assert (code, "wire (the word is large) undoes reserve" in shown) == (0, True), shown
    else:
        await asyncio.to_thread(served.starter, *words)
    ended = document(await asyncio.to_thread(served.starter, "show", task, "--follow", "--json"))

    done = [one["step_id"] for one in ended["undo"] if one["done"]]
    assert (done, "wire large" in served.calls()) == (["reserve"] * is_seen, is_seen)
    assert ("Not undone: reserve (wire needs approval: the word is large)." in ended["reason"]) is not is_seen
    if not is_seen:
        told = document(await asyncio.to_thread(served.starter, "undo", task, "--json"))
        assert told["held"] == [HELD | {"is_certain": True}]


def effects(desk: Rollbacks, task: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = document(desk.starter("effects", task, "--json"))["effects"]
    return told


def test_every_effect_is_listed_with_what_is_known(served: Rollbacks) -> None:
    """Those of ledgers and those that only the history has, the oldest first, each with its key. After a rollback: when
    it was undone, by which call; and what that call did is an effect, too."""
    kinds = ("note", "deposit", "send", "put", "shout:lost")
    task = served.run_task(*kinds)
    told = effects(served, task)
    served.starter("undo", task)
    after = {str(one["step"]): one for one in effects(served, task)}
    lines = served.starter("effects", task).stdout

    assert [(one["step"], one["effect"], one["state"]) for one in told] == [
        ("note", "transactional", "applied"),
        ("deposit", "transactional", "applied"),
        ("send", "keyed", "applied"),
        ("put", "idempotent", "applied"),
        ("shout", "unkeyed", "unknown"),
    ]
    assert all(isinstance(one["args"], dict) for one in told), "also of those that ledgers have"
    assert [str(one["key"]).partition("/")[2] for one in told] == [kind.partition(":")[0] for kind in kinds]
    assert [after[id]["state"] for id in ("note", "deposit", "send", "put")] == ["undone"] * 4
    assert (after["send"]["undone_by"], after["undo:send"]["undoes"]) == (after["undo:send"]["key"], "send")
    assert f"    with word {after['send']['args']['word']}\n" in lines
    assert "by undo:send (recall)" in lines and "shout (unkeyed)  outcome unknown" in lines


def test_a_ledger_that_cannot_be_read_is_named(served: Rollbacks) -> None:
    """What the history and the other ledgers know is listed all the same, and nobody is told that this is all. What the
    task undid itself is undone; of a task that changed nothing a clear sentence says so."""
    task = served.run_task("note", "deposit", "person", options=("--on-escalation", "undo"))
    nothing = served.run_task("person")
    bank = served.folder / "bank.db"
    away = bank.rename(served.folder / "away.db")
    told = document(served.starter("effects", task, "--json"))
    lines = served.starter("effects", task).stdout
    away.rename(bank)

    states = {one["step"]: one["state"] for one in told["effects"]}
    assert [states[step] for step in ("note", "deposit")] == ["undone"] * 2 and len(states) == 4
    assert "bank.db" in told["unread"][0]["where"] and "what it has is not listed" in lines
    said = f"{nothing} has changed nothing: neither its history nor a ledger has an effect of it.\n"
    assert served.starter("effects", nothing).stdout == said


@pytest.mark.full
def test_a_new_task_under_an_old_id_has_effects_of_its_own(served: Rollbacks) -> None:
    """The keys begin with the first run, so what the task before did, and that it was undone, is not among them."""
    task = served.run_task("note")
    [before] = effects(served, task)
    served.starter("undo", task)
    served.run_task("note", id=task, options=("--again",))
    [after] = effects(served, task)

    assert (before["step"], after["step"], served.rows()) == ("note", "note", 1)
    assert (before["key"] != after["key"], after["state"]) == (True, "applied")
    assert "undone" not in served.starter("show", task).stdout


def test_what_a_ledger_has_of_a_run_that_was_reset_is_listed(served: Rollbacks) -> None:
    """The run that did it does not count any more, and its effect stands: it is done once, and listed once."""
    task = served.run_task("note", "send", "shout", "person")
    reset = served.starter("reset", task, "--to", "note")
    served.starter("show", task, "--follow")
    told = effects(served, task)

    assert (reset.returncode, [one["state"] for one in told], served.rows()) == (0, ["applied"] * 3, 1)
    assert served.calls().count("shout shout") == 1


def test_a_store_from_an_older_backup_is_said(server: DevServer, tmp_path: Path) -> None:
    """What tasks have applied since, and its ledger does not have, is named by `doctor` and marked by `effects`. Not
    what was undone, and what another database has."""
    desk = Rollbacks(server.address, tmp_path)
    store, copy = desk.folder / "state" / "store.db", desk.folder / "copy.db"
    with desk.one():
        before = desk.run_task("note", "shout")
        well = checks(desk)["ledger"]
        with closing(sqlite3.connect(store)) as database:
            database.execute("VACUUM INTO ?", [str(copy)])
        after = desk.run_task("note", "deposit", "send", "shout", "person")
        undone = desk.run_task("note")
        desk.starter("undo", undone)
    for file in (store, *store.parent.glob("store.db-*")):
        file.unlink()
    copy.rename(store)
    with desk.one():
        ledger, lines = checks(desk)["ledger"], desk.starter("effects", after).stdout
        told = {task: [one["step"] for one in effects(desk, task) if one["lacks_row"]] for task in (before, after)}

    assert (well["status"], well["found"]) == ("ok", "it has the effects of the newest task looked at")
    assert (ledger["status"], undone in ledger["found"], before in ledger["found"]) == ("warn", False, False)
    assert f"1 of the newest 3 tasks looked at count as applied: {after} (note, shout)" in ledger["found"]
    assert f"effects {after}" in ledger["remedy"] and "restored from an older backup" in ledger["found"]
    assert told == {before: [], after: ["note", "shout"]}
    assert "note (transactional)  applied, but no ledger has a row of it" in lines
    assert "The history says that note, shout were applied, and no ledger has a row of it" in lines


def checks(desk: Rollbacks) -> dict[str, dict[str, Any]]:
    done = desk.starter("doctor", "--queue", desk.queue, "--json")
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


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
    """A session is named alone, without an id or a step."""
    served.run_task("put", id=f"mcp:{session}:a")
    refused = served.starter(command, "--session", f"{session}x", "--json")
    error = document(refused)["error"]

    assert (refused.returncode, error["code"]) == (2, "unknown_session")
    assert f"No task of a session '{session}x' is here" in error["reason"] and session in error["reason"]
    assert "replan mcp --session NAME" in error["remedy"]
    for more in {"list": [], "explain": [["x"], ["--step", "x"]]}.get(command, [["x"]]):
        wrong = served.starter(command, *more, "--session", "shop", "--json")
        assert (wrong.returncode, document(wrong)["error"]["code"]) == (2, "usage")
