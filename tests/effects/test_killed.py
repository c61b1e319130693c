"""A process is killed or frozen in a call, and another one makes the call again."""

import contextlib
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.effects.agents import Agent, Agents, keys

FUNCTIONS = ("pay", "mail", "charge", "move", "put")
LINES = (100, 260, 380)
"""Lines of the floor, counted over the process; a call has several hundred."""


def again(agents: Agents, function: str) -> list[str]:
    """Make a call again; if its outcome is unknown, a person says what the world has, and it is made again."""
    lines = agents.run(f'tell({function}, "a", "x")')
    for key in keys(lines):
        happened = agents.happened()
        how = f'"applied", result="{agents.world.effects()[0][1].name}"' if happened else '"not-applied"'
        lines = agents.run(f'effects.settle("{key}", {how})\ntell({function}, "a", "x")')
    return lines


def stopped(agent: Agent) -> None:
    """Wait until a process has stopped itself."""
    until = time.monotonic() + 10
    while Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_process_may_be_killed_anywhere(agents: Agents, tmp_path: Path, function: str) -> None:
    """Before, in and after a call: one effect, by the floor or with a person who tells the truth."""
    deaths = [f"at_line({line}, signal.SIGKILL)" for line in LINES] + [
        'befalls(dies="before")',
        'befalls(dies="after")',
    ]
    wrong = []
    for number, death in enumerate(deaths):
        folder = tmp_path / str(number)
        folder.mkdir()
        here = Agents(folder)
        here.run(f'{death}\ntell({function}, "a", "x")\ndie()')
        lines = again(here, function)
        if here.happened() != [f"{function}(a, x)"] or not lines[-1].startswith("returned"):
            wrong.append((death, here.happened(), lines))

    assert not wrong


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_process_may_be_killed_with_either_database(agents_of_both: Agents, function: str) -> None:
    """After the effect, before the answer is recorded."""
    agents_of_both.run(f'befalls(dies="after")\ntell({function}, "a", "x")')
    lines = again(agents_of_both, function)

    assert (agents_of_both.happened(), lines[-1][:8]) == ([f"{function}(a, x)"], "returned")


FREEZES = """
    @effects.unkeyed
    def freezes(text: str) -> str:
        os.kill(os.getpid(), signal.SIGSTOP)
        return world.apply("freezes", {"text": text})
    say("here")
    tell(freezes, "x")
"""


def test_a_frozen_process_is_not_taken_for_dead(agents: Agents) -> None:
    """The call of another process waits until the frozen one goes on, and gets its result."""
    with agents.started(FREEZES) as frozen:
        stopped(frozen)
        with agents.started(FREEZES) as other:
            other.wait_for("here")
            time.sleep(0.3)
            waits = other.process.poll() is None
            frozen.signal(signal.SIGCONT)

            assert waits
            assert other.lines() == ["here", "said freezes", "returned w1"]
        assert frozen.lines() == ["here", "returned w1"]


@pytest.mark.parametrize("days", [-400, 400])
def test_a_changed_clock_decides_nothing(agents: Agents, days: int) -> None:
    """What was recorded a year ago, or will be in a year by the clock, is the last call of a killed process."""
    agents.run('tell(pay, "a", "x")\ndie()')
    with contextlib.closing(sqlite3.connect(agents.folder / "store.db")) as db, db:
        db.execute("update replan_ledger set at = strftime('%Y-%m-%d %H:%M:%f', at, ?)", (f"{days} days",))

    assert agents.run('tell(pay, "a", "x")') == ["said pay", "returned w1"]


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_unkeyed_call_without_reconcile_is_for_a_person(agents: Agents, place: str) -> None:
    """Whether the effect was applied or not: it is not made again, however often it is called."""
    agents.run(f'befalls(dies="{place}")\ntell(pay, "a", "x")')
    happened = agents.happened()

    first, second = agents.run('tell(pay, "a", "x")\ntell(pay, "a", "x")')
    assert first.startswith("raised OutcomeUnknown") and second == first
    assert agents.happened() == happened


def test_reconcile_finds_what_was_applied(agents: Agents) -> None:
    """The caller gets its result, and is told so."""
    agents.run('befalls(dies="after")\ntell(mail, "a", "x")')

    assert agents.run('tell(mail, "a", "x")') == ["said mail", "returned w1"]
    assert agents.happened() == ["mail(a, x)"]


def test_reconcile_must_say_not_applied_twice(agents: Agents) -> None:
    """The call is made only after a second look, `settle` seconds after the first."""
    agents.run('befalls(dies="before")\ntell(mail, "a", "x")', settle=0.4)
    began = time.monotonic()
    lines = agents.run('tell(mail, "a", "x")', settle=0.4)

    assert lines == ["returned w1"]
    assert time.monotonic() - began > 0.4


@pytest.mark.parametrize(("place", "expected"), [("before", "returned w1"), ("after", "returned w1")])
def test_what_a_person_says_settles_a_call(agents: Agents, place: str, expected: str) -> None:
    """Not applied: it is made. Applied: it returns the result that the person knows."""
    agents.run(f'befalls(dies="{place}")\ntell(pay, "a", "x")')

    assert again(agents, "pay")[-1] == expected
    assert agents.happened() == ["pay(a, x)"]


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_keyed_call_is_repeated_with_its_key(agents: Agents, place: str) -> None:
    """The service knows the key, and returns the first result; nobody is asked."""
    agents.run(f'befalls(dies="{place}")\ntell(charge, "a", "x")')

    assert agents.run('tell(charge, "a", "x")')[-1] == "returned w1"
    assert agents.happened() == ["charge(a, x)"]


def test_a_transaction_knows_whether_it_was_committed(agents: Agents) -> None:
    """Killed before the commit: it is made. Killed after it, at any line until the answer: the recorded result."""
    agents.run('befalls(dies="after")\ntell(move, "a", "x")')
    before = agents.happened()
    lines = agents.run('tell(move, "a", "x")')

    assert (before, agents.happened(), lines[-1]) == ([], ["move(a, x)"], "returned t1")


def test_an_idempotent_call_is_called_again(agents: Agents) -> None:
    """A repetition changes nothing."""
    agents.run('befalls(dies="after")\ntell(put, "a", "x")')

    assert agents.run('tell(put, "a", "x")')[-1] == "returned w1"
