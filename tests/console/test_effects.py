"""`effects`: everything that a task did to the world or may have done, from its history and from the ledgers."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runtime.dev_server import DevServer
from tests.console.rollback import Rollbacks, document

ALL = ("note", "deposit", "send", "put", "shout:lost")


@pytest.fixture(scope="module")
def worked(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollbacks]:
    """Commands, and a worker that runs."""
    desk = Rollbacks(server.address, tmp_path_factory.mktemp("desk"))
    with desk.one():
        yield desk


@pytest.fixture
def desk(worked: Rollbacks) -> Rollbacks:
    """The same when nothing has happened yet."""
    worked.clear()
    return worked


def effects(desk: Rollbacks, task: str) -> list[dict[str, Any]]:
    """What the command says, for programs."""
    told: list[dict[str, Any]] = document(desk.starter("effects", task, "--json"))["effects"]
    return told


def test_every_effect_is_listed_with_what_is_known(desk: Rollbacks) -> None:
    """Those of ledgers and those that only the history has, the oldest first, each with its key."""
    task = desk.run_task(*ALL)
    told = effects(desk, task)

    assert [(one["step"], one["effect"], one["state"]) for one in told] == [
        ("note", "transactional", "applied"),
        ("deposit", "transactional", "applied"),
        ("send", "keyed", "applied"),
        ("put", "idempotent", "applied"),
        ("shout", "unkeyed", "unknown"),
    ]
    assert all(isinstance(one["args"], dict) for one in told), "also of those that ledgers have"
    assert [str(one["key"]).partition("/")[2] for one in told] == [kind.partition(":")[0] for kind in ALL]


def test_an_undone_effect_says_by_what(desk: Rollbacks) -> None:
    """By a rollback after the end: when, by which call; and what that call did is an effect, too."""
    task = desk.run_task(*ALL)
    desk.starter("undo", task)
    told = {str(one["step"]): one for one in effects(desk, task)}
    lines = desk.starter("effects", task).stdout

    assert [told[id]["state"] for id in ("note", "deposit", "send", "put")] == ["undone"] * 4
    assert (told["send"]["undone_by"], told["undo:send"]["undoes"]) == (told["undo:send"]["key"], "send")
    assert f"    with word {told['send']['args']['word']}\n" in lines
    assert "by undo:send (recall)" in lines and "shout (unkeyed)  outcome unknown" in lines


@pytest.mark.full
def test_an_effect_that_the_task_undid_itself_says_so(desk: Rollbacks) -> None:
    """From its own history."""
    task = desk.run_task("note", "put", "person", options=("--on-escalation", "undo"))

    assert [one["state"] for one in effects(desk, task)] == ["undone", "undone", "applied", "applied"]


def test_a_ledger_that_cannot_be_read_is_named(desk: Rollbacks) -> None:
    """What the history and the other ledgers know is listed all the same, and nobody is told that this is all."""
    task = desk.run_task("note", "deposit")
    bank = desk.folder / "bank.db"
    away = bank.rename(desk.folder / "away.db")
    told = document(desk.starter("effects", task, "--json"))
    lines = desk.starter("effects", task).stdout
    away.rename(bank)

    assert [one["step"] for one in told["effects"]] == ["note", "deposit"]
    assert "bank.db" in told["unread"][0]["where"] and "what it has is not listed" in lines


def test_reads_are_no_effects(desk: Rollbacks) -> None:
    """A clear sentence when nothing changed."""
    task = desk.run_task("person")

    said = f"{task} has changed nothing: neither its history nor a ledger has an effect of it.\n"
    assert desk.starter("effects", task).stdout == said


@pytest.mark.full
def test_a_new_task_under_an_old_id_has_effects_of_its_own(desk: Rollbacks) -> None:
    """The keys begin with the first run, so what the task before did, and that it was undone, is not among them."""
    task = desk.run_task("note")
    [before] = effects(desk, task)
    desk.starter("undo", task)
    desk.run_task("note", id=task, options=("--again",))
    [after] = effects(desk, task)

    assert (before["step"], after["step"], desk.rows()) == ("note", "note", 1)
    assert (before["key"] != after["key"], after["state"]) == (True, "applied")
    assert "undone" not in desk.starter("show", task).stdout


def test_what_a_ledger_has_of_a_run_that_was_reset_is_listed(desk: Rollbacks) -> None:
    """The run that did it does not count any more, and its effect stands: it is done once, and listed once."""
    task = desk.run_task("note", "send", "shout", "person")
    reset = desk.starter("reset", task, "--to", "note")
    desk.starter("show", task, "--follow")
    told = effects(desk, task)

    assert (reset.returncode, [one["state"] for one in told], desk.rows()) == (0, ["applied"] * 3, 1)
    assert desk.calls().count("shout shout") == 1


def test_a_store_from_an_older_backup_is_said(server: DevServer, tmp_path: Path) -> None:
    """What tasks have applied since, and its ledger does not have, is named by `doctor` and marked by `effects`.

    Not what was undone, and what another database has.
    """
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
    """The checks of `doctor`, by name."""
    done = desk.starter("doctor", "--queue", desk.queue, "--json")
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}
