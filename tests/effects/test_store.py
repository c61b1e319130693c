"""The store fails: before a call nothing is called, after it the outcome is settled later."""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.effects.database import Database, steady
from runtime.dev_server import free_port
from tests.effects.agents import DIES, PAID, Agents, Run

OWN = """
    import resource
    @effects.unkeyed(reconcile=lambda text: world.find("own", {"text": text}), settle=0.01)
    def own(text: str) -> str:
        say("called")
        done = world.apply("own", {"text": text})
        if text == "full":
            size = os.path.getsize(world.file.parent / "store.db-wal")
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        return done
"""


STORES = {
    "is not reached": lambda folder: f"postgresql://nobody:nothing@127.0.0.1:{free_port()}/none",
    "is in no folder": lambda folder: f"sqlite:///{folder}/none/store.db",
    "is no database": lambda folder: f"sqlite:///{folder}/other.db",
}


@pytest.mark.parametrize("url", STORES.values(), ids=STORES)
def test_nothing_is_called_without_a_store(tmp_path: Path, url: Callable[[Path], str]) -> None:
    """The error names the store."""
    (tmp_path / "other.db").write_text("this is no database " * 500)

    Agents(tmp_path, url(tmp_path)).play(([Run(f'{OWN}\n    tell(own, "x")', ["raised StoreUnavailable"])], 0))


def test_nothing_is_called_while_the_database_of_a_transaction_is_locked(agents: Agents) -> None:
    """By somebody who does not free it in time: the error names that database, and the call may be made again."""
    lines = agents.run("""
        import sqlite3
        def both():
            with ThreadPoolExecutor(2) as pool:
                for done in [pool.submit(tell, function, "a", "x") for function in (move, a_move)]:
                    done.result()
        tell(move, "b", "y")
        tell(a_move, "b", "y")
        other = sqlite3.connect(world.bank)
        other.execute("begin immediate")
        both()
        other.rollback()
        both()
    """, timeout=20.0)  # fmt: skip

    assert lines[2:4] == ["raised StoreUnavailable "] * 2
    assert sorted(lines[4:]) == ["returned t3", "returned t4"]


@pytest.mark.parametrize("room", [1000, 20_000])
def test_a_full_disk_before_a_call_calls_nothing(agents: Agents, room: int) -> None:
    """Not one byte of the claim can be written."""
    agents.run('tell(pay, "b", "y")')
    lines = agents.run(f"""{OWN}
    resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, resource.RLIM_INFINITY))
    tell(own, "x")
    os._exit(0)
    """)

    assert lines in (["raised StoreUnavailable "], ["called", "returned w2"], ["called", "raised OutcomeUnknown"])
    if room == 1000:  # enough for what the script prints
        assert lines == ["raised StoreUnavailable "]


def test_a_result_that_cannot_be_recorded_is_settled_later(agents: Agents) -> None:
    """The disk is full after the effect: the caller gets the result, and after a kill it is found again."""
    lines = agents.run(f'{OWN}\n    tell(own, "full")\n    die()')

    assert lines[:2] == ["called", "returned w1"]
    assert agents.run(f'{OWN}\n    tell(own, "full")') == ["said own", "returned w1"]
    assert len(agents.world.effects()) == 1


def test_a_process_that_ends_before_it_could_record_counts_as_killed(agents: Agents) -> None:
    """Although it ended in order: an equal call gets the result of the last call, and is asked about an older one."""
    agents.run(f'{OWN}\n    tell(pay, "b", "y")\n    tell(own, "full")')
    again = agents.run(f'{OWN}\n    tell(own, "full")\n    tell(pay, "b", "y")')

    assert again[:2] == ["said own", "returned w2"]
    assert [line.split()[1] for line in again[2:]] == ["DoubtfulCall"]


def test_pruning_keeps_what_is_open(agents_of_both: Agents) -> None:
    """What a person must settle, and what a killed process may not have seen, is never too old."""
    agents_of_both.run('tell(charge, "a", "x")\nbefalls(error="lost answer")\ntell(pay, "a", "x")')
    agents_of_both.run('befalls(dies="before")\ntell(pay, "b", "x")')
    lines = agents_of_both.run("""
        import datetime, sqlalchemy
        from activities.effects.ledger import LEDGER
        old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=400)
        effects._store.database.write(lambda tx: tx.execute(sqlalchemy.update(LEDGER).values(at=old)))
        effects.prune(30)
        for row in effects.calls():
            say(row.state)
    """)

    assert lines == ["unknown", "unknown"]


def remove(agents: Agents, pattern: str) -> None:
    """Delete files of the store."""
    for file in agents.folder.glob(pattern):
        if file.is_file():
            file.unlink()


def test_a_store_that_is_gone_is_noticed(agents: Agents) -> None:
    """Nothing is called: what was recorded in it would be made again."""
    agents.run(PAID + DIES)
    remove(agents, "store.db*")

    agents.play(([Run(PAID, ["raised StoreUnavailable"])], ["pay(a, x)"]))


def test_an_older_copy_of_the_store_is_noticed(agents: Agents) -> None:
    """A backup that was brought back lacks what was recorded since."""
    agents.run('tell(pay, "b", "x")')
    store = agents.folder / "store.db"
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute(f"vacuum into '{agents.folder}/backup.db'")
    agents.run(PAID + DIES)
    remove(agents, "store.db-*")
    os.replace(agents.folder / "backup.db", store)  # noqa: PTH105

    agents.play(([Run(PAID, ["raised StoreUnavailable"])], ["pay(b, x)", "pay(a, x)"]))


def test_a_store_that_is_closed_waits_for_its_threads_which_still_use_it(tmp_path: Path) -> None:
    """It neither waits for ever, nor takes the store away from them."""
    database, begun = Database(str(tmp_path / "agent.db")), threading.Event()

    def work() -> int:
        begun.set()
        time.sleep(0.3)
        return database.write(lambda _: 1)

    future = database.submit(work)
    begun.wait(10)
    closing = threading.Thread(target=database.close, daemon=True)
    closing.start()
    closing.join(10)

    assert not closing.is_alive() and future.result(0) == 1


def test_the_clock_of_a_store_in_a_file_cannot_be_set(tmp_path: Path) -> None:
    """It runs from the boot of the machine; who sets the time of day makes no call older or younger."""
    database = Database(str(tmp_path / "agent.db"))
    before, now, after = steady(), database.read(database.now), steady()
    database.close()

    assert before <= now <= after
