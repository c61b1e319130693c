"""Owners on other machines, which PostgreSQL lets share a store: an expired lease proves no death."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from evals.fakes.postgresql import Cluster
from replan.effects import Effects, OutcomeUnknown

AGENT = """
import sys, time
from pathlib import Path
from replan.effects import Effects

effects = Effects(sys.argv[1], session="order-17")

@effects.unkeyed(timeout=float(sys.argv[4]))
def pay(who: str) -> str:
    with Path(sys.argv[2]).open("a", encoding="utf-8") as journal:
        journal.write(who + "\\n")
    if sys.argv[3] == "slow":
        print("paid", flush=True)
        time.sleep(60)
    return "receipt of " + who

pay("ann")
print("paid", flush=True)
time.sleep(60)
"""


class Store:
    """A store on PostgreSQL, and an agent that was killed on another machine."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.journal = url, folder / "journal"

    def kill_agent_elsewhere(self, when: str, timeout: float = 30.0) -> None:
        """Kill an agent `slow`, in the middle of its call, or `done`, after it, and let it have run elsewhere."""
        process = subprocess.Popen(
            [sys.executable, "-c", AGENT, self.url, str(self.journal), when, str(timeout)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "paid\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        self.execute("UPDATE replan_owners SET boot = 'another machine', host = 'other'")

    def execute(self, statement: str) -> None:
        """Change something in the store behind everybody's back."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def pay_again(self, *, found: str | None) -> str:
        """An equal call in this process; `reconcile=` finds `found`."""
        with Effects(self.url, session="order-17") as effects:
            return effects.unkeyed(reconcile=lambda who: found, settle=0.1, name="pay")(pay_anew)("ann")


def pay_anew(who: str) -> str:
    """Pay without a journal."""
    return f"new receipt of {who}"


@pytest.fixture
def store(postgresql: Cluster, tmp_path: Path) -> Iterator[Store]:
    """A database of its own."""
    name = postgresql.create()
    url = make_url(postgresql.url(name)).set(drivername="postgresql")
    yield Store(url.render_as_string(hide_password=False), tmp_path)
    postgresql.drop(name)


def test_what_was_answered_elsewhere_may_be_unread(store: Store) -> None:
    """A machine that gave a sign of life a moment ago may be gone: its last answer is given again."""
    store.kill_agent_elsewhere("done")

    assert store.pay_again(found=None) == "receipt of ann"


def test_an_effect_that_is_found_is_not_made_again(store: Store) -> None:
    """What is found proves itself, whoever lives."""
    store.kill_agent_elsewhere("slow")
    store.execute("UPDATE replan_owners SET lease = 0")

    assert store.pay_again(found="the first receipt") == "the first receipt"


def test_nothing_found_proves_nothing_while_the_other_machine_may_send(store: Store) -> None:
    """Its lease has run out, but not the time of its call."""
    store.kill_agent_elsewhere("slow")
    store.execute("UPDATE replan_owners SET lease = 0")

    with pytest.raises(OutcomeUnknown, match=r"may still arrive.* settle pay-"):
        store.pay_again(found=None)


def test_nothing_found_counts_when_the_time_of_the_call_is_over(store: Store) -> None:
    """No attempt sends anything after its timeout and a grace."""
    store.kill_agent_elsewhere("slow")
    store.execute("UPDATE replan_owners SET lease = 0")
    store.execute("UPDATE replan_ledger SET expires = 0")

    assert store.pay_again(found=None) == "new receipt of ann"
