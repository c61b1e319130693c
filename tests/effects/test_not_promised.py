"""What the table says does not hold, does not hold: a promise that is silently kept more often would be believed."""

import shutil
import signal
import time
from pathlib import Path

import psycopg
import pytest

from evals.fakes.postgresql import Cluster
from tests.effects.agents import Agents
from tests.effects.test_killed import stopped

LATE = """
    @effects.unkeyed(reconcile=lambda text: world.find("late", {"text": text}), settle=SETTLE)
    def late(text: str) -> str:
        if os.path.exists(world.file.parent / "sent"):
            return world.apply("late", {"text": text})
        (world.file.parent / "sent").touch()
        die()
"""
"""A function whose first call sends a request that is applied only when the test lets it land."""


def land(agents: Agents) -> str:
    """Let the request that is on its way be applied."""
    return agents.world.apply("late", {"text": "x"})


def test_an_effect_that_lands_after_both_looks_is_applied_twice(agents: Agents) -> None:
    """The service was slower than `settle`."""
    source = LATE.replace("SETTLE", "0.01") + '    tell(late, "x")'
    agents.run(source)
    lines = agents.run(source)
    land(agents)

    assert lines == ["returned w1"]
    assert len(agents.world.effects()) == 2


def test_an_effect_that_lands_between_the_looks_is_found(agents: Agents) -> None:
    """That is what the second look is for."""
    source = LATE.replace("SETTLE", "1.0") + '    say("here")\n    tell(late, "x")'
    agents.run(source)
    with agents.started(source) as second:
        second.wait_for("here")
        time.sleep(0.4)
        land(agents)

        assert second.lines() == ["here", "said late", "returned w1"]
    assert len(agents.world.effects()) == 1


SLEEPS_IN_FUNCTION = """
    @effects.unkeyed
    def asleep(text: str) -> str:
        os.kill(os.getpid(), signal.SIGSTOP)
        return world.apply("asleep", {"text": text})
    tell(asleep, "x")
"""
SLEEPS_BEFORE_CHECK = """
    import sys
    @effects.unkeyed
    def asleep(text: str) -> str:
        return world.apply("asleep", {"text": text})
    def calls(frame, event, argument):
        if frame.f_code.co_name == "is_mine":
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGSTOP)
    sys.settrace(calls)
    tell(asleep, "x")
"""
SETTLES = """
    @effects.unkeyed
    def asleep(text: str) -> str:
        return world.apply("asleep", {"text": text})
    [row] = effects.calls()
    effects.settle(row.key, "not-applied")
    tell(asleep, "x")
"""


@pytest.fixture
def elsewhere(tmp_path: Path, postgresql: Cluster) -> Agents:
    """Agents whose store other machines can share."""
    return Agents(tmp_path, postgresql.url(postgresql.create()))


def move_away(agents: Agents) -> None:
    """Let the owners of the store run on a machine that has given no sign of life for long."""
    with psycopg.connect(agents.url.replace("+psycopg", "")) as db:
        db.execute("UPDATE replan_owners SET boot = 'another machine', host = 'other', lease = 0")


def test_a_process_that_sleeps_after_the_check_calls_twice(elsewhere: Agents) -> None:
    """It was settled as not applied, which was true then, and made by another process; then the first one wakes up."""
    agents = elsewhere
    with agents.started(SLEEPS_IN_FUNCTION) as sleeper:
        stopped(sleeper)
        move_away(agents)
        lines = agents.run(SETTLES)
        sleeper.signal(signal.SIGCONT)
        sleeper.lines()

    assert lines == ["returned w1"]
    assert len(agents.world.effects()) == 2


def test_a_process_that_sleeps_before_the_check_calls_nothing(elsewhere: Agents) -> None:
    """It finds that its claim is not its own any more."""
    agents = elsewhere
    with agents.started(SLEEPS_BEFORE_CHECK) as sleeper:
        stopped(sleeper)
        move_away(agents)
        agents.run(SETTLES)
        sleeper.signal(signal.SIGCONT)

        assert sleeper.lines()[0].startswith("raised OutcomeUnknown")
    assert len(agents.world.effects()) == 1


def lose_store(agents: Agents) -> None:
    """Delete the store, and all that is kept beside it."""
    for file in [*agents.folder.glob("store.db*"), *agents.folder.glob(".store.db*")]:
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()


@pytest.mark.parametrize("function", ["pay", "mail", "charge", "move"])
def test_a_lost_store_makes_a_call_again(agents: Agents, function: str) -> None:
    """Nothing is known of the first call any more."""
    agents.run(f'tell({function}, "a", "x")\ndie()')
    lose_store(agents)
    agents.run(f'tell({function}, "a", "x")')

    assert len(agents.happened()) == 2


@pytest.mark.parametrize("function", ["charge", "move"])
def test_a_lost_store_does_not_repeat_a_transaction(agents: Agents, function: str) -> None:
    """With a key of the caller, the service or the function's own database knows it."""
    agents.run(f'tell({function}, "a", "x", key="k")\ndie()')
    lose_store(agents)
    lines = agents.run(f'tell({function}, "a", "x", key="k")')

    assert lines[-1].startswith("returned")
    assert len(agents.happened()) == 1


def test_a_service_that_rejects_what_it_applied_is_believed(agents: Agents) -> None:
    """`Refused` says that nothing was applied, so the call is made again."""
    agents.run("""
        @effects.unkeyed
        def lies(text: str) -> str:
            world.apply("lies", {"text": text})
            raise Refused("409")
        tell(lies, "x", key="k")
        tell(lies, "x", key="k")
    """)

    assert len(agents.world.effects()) == 2


def test_a_wrong_promise_of_one_request_is_believed(agents: Agents) -> None:
    """A second request is rejected after the first one has changed something."""
    agents.run("""
        @effects.unkeyed(requests=1, raises={Conflict: "conflict"})
        def sends_two(text: str) -> str:
            world.apply("sends_two", {"text": text})
            raise Conflict("409")
        tell(sends_two, "x", key="k")
        tell(sends_two, "x", key="k")
    """)

    assert len(agents.world.effects()) == 2


def test_a_reconcile_that_finds_another_effect_is_believed(agents: Agents) -> None:
    """A second equal call was killed before its effect; the first one's effect is found for it, and that is said."""
    agents.run('tell(mail, "a", "x")')
    agents.run('befalls(dies="before")\ntell(mail, "a", "x")')

    assert agents.run('tell(mail, "a", "x")') == ["said mail", "returned w1"]
    assert agents.happened() == ["mail(a, x)"]


def test_another_session_is_another_agent(agents: Agents) -> None:
    """The call of a killed process is made again."""
    agents.run('tell(pay, "a", "x")\ndie()', session="one")

    assert agents.run('tell(pay, "a", "x")', session="two") == ["returned w2"]


def test_repeated_ids_are_one_call(agents: Agents) -> None:
    """A server that gives each call the id `call_0`: an equal call gets the first result, other arguments do not."""
    lines = agents.run("""
        tell(pay, "a", "x", run="r", call="call_0")
        tell(pay, "a", "x", run="r", call="call_0")
        tell(pay, "b", "x", run="r", call="call_0")
    """)

    assert [line for line in lines if line.startswith("returned")] == ["returned w1", "returned w1", "returned w2"]


def test_a_call_that_is_reworded_after_the_agent_has_gone_on_is_made(agents: Agents) -> None:
    """Nothing tells it from a second message."""
    agents.run('tell(mail, "a", "x")\ntell(pay, "b", "x")\ndie()')

    assert agents.run('tell(mail, "a", "in other words")') == ["returned w3"]


def test_what_a_living_process_has_read_is_made_again(agents: Agents) -> None:
    """A second process does the same work beside the first one, which lives."""
    with agents.started('tell(pay, "a", "x")\nsay("here")\ntime.sleep(20)') as first:
        first.wait_for("here")

        assert agents.run('tell(pay, "a", "x")') == ["returned w2"]


def test_what_a_process_had_read_before_an_orderly_end_is_made_again(agents: Agents) -> None:
    """`sys.exit()` in the middle of the work, and from the beginning again, without keys or ids."""
    agents.run('tell(pay, "a", "x")\neffects.close()\nraise SystemExit(0)')

    assert agents.run('tell(pay, "a", "x")') == ["returned w2"]
