"""A process is killed or frozen in a call, and another one makes the call again."""

import contextlib
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.effects.agents import DIES, DIES_AFTER, DIES_BEFORE, MAILED, PAID, Agent, Agents, Run, Story, keys

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
    until = time.monotonic() + 60
    while Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_process_may_be_killed_anywhere(tmp_path: Path, function: str) -> None:
    """Before, in and after a call: one effect, by the floor or with a person who tells the truth."""
    deaths = [*(f"at_line({line}, signal.SIGKILL)\n" for line in LINES), DIES_BEFORE, DIES_AFTER]
    wrong = []
    for number, death in enumerate(deaths):
        (folder := tmp_path / str(number)).mkdir()
        here = Agents(folder)
        here.run(f'{death}tell({function}, "a", "x")\n{DIES}')
        lines = again(here, function)
        if here.happened() != [f"{function}(a, x)"] or not lines[-1].startswith("returned"):
            wrong.append((death, here.happened(), lines))

    assert not wrong


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_process_may_be_killed_with_either_database(agents_of_both: Agents, function: str) -> None:
    """After the effect, before the answer is recorded; on SQLite, that is one of the deaths above."""
    agents_of_both.run(f'{DIES_AFTER}tell({function}, "a", "x")')
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
    agents.run(PAID + DIES)
    with contextlib.closing(sqlite3.connect(agents.folder / "store.db")) as db, db:
        db.execute("update replan_ledger set at = strftime('%Y-%m-%d %H:%M:%f', at, ?)", (f"{days} days",))

    assert agents.run(PAID) == ["said pay", "returned w1"]


def test_reconcile_must_say_not_applied_twice(agents: Agents) -> None:
    """The call is made only after a second look, `settle` seconds after the first."""
    agents.run(DIES_BEFORE + MAILED, settle=0.4)
    began = time.monotonic()

    assert agents.run(MAILED, settle=0.4) == ["returned w1"]
    assert time.monotonic() - began > 0.4


UNKNOWN = ["raised OutcomeUnknown", "raised OutcomeUnknown"]
CHARGED, MOVED, PUT = (f'tell({function}, "a", "x")\n' for function in ("charge", "move", "put"))
FOUND_OUT: dict[str, Story] = {
    "an unkeyed call that was not applied is for a person": ([Run(DIES_BEFORE + PAID), Run(PAID + PAID, UNKNOWN)], []),
    "an unkeyed call that was applied is for a person": (
        [Run(DIES_AFTER + PAID), Run(PAID + PAID, UNKNOWN)],
        ["pay(a, x)"],
    ),
    "reconcile finds what was applied": (
        [Run(DIES_AFTER + MAILED), Run(MAILED, ["said mail", "returned w1"])],
        ["mail(a, x)"],
    ),
    "a keyed call that was not applied is repeated with its key": (
        [Run(DIES_BEFORE + CHARGED), Run(CHARGED, ["said charge", "returned w1"])],
        ["charge(a, x)"],
    ),
    "a keyed call that was applied is repeated with its key": (
        [Run(DIES_AFTER + CHARGED), Run(CHARGED, ["said charge", "returned w1"])],
        ["charge(a, x)"],
    ),
    "a transaction that was not committed is made": (
        [Run(DIES_AFTER + MOVED), Run(MOVED, ["returned t1"])],
        ["move(a, x)"],
    ),
    "an idempotent call is called again": ([Run(DIES_AFTER + PUT), Run(PUT, ["returned w1"])], ["put(a, x)"]),
}


@pytest.mark.parametrize("story", FOUND_OUT.values(), ids=FOUND_OUT)
def test_what_became_of_a_call_is_found_out_by_its_effect(agents: Agents, story: Story) -> None:
    """What nobody can find out is not made again, however often it is called."""
    agents.play(story)
