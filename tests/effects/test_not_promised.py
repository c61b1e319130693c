"""What the table says does not hold, does not hold: a promise that is silently kept more often would be believed."""

import shutil
import signal
import time
from pathlib import Path

import psycopg
import pytest

from evals.fakes.postgresql import Cluster
from tests.effects.agents import DIES, DIES_BEFORE, MAILED, PAID, Agents, Run, Story
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
    agents.play(([Run(source), Run(source, ["returned w1"])], 1))
    land(agents)

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


ASLEEP = """
    import sys
    @effects.unkeyed
    def asleep(text: str) -> str:
        FIRST
        return world.apply("asleep", {"text": text})
"""
STOPS = "os.kill(os.getpid(), signal.SIGSTOP)"
SLEEPS_IN_FUNCTION = ASLEEP.replace("FIRST", STOPS) + '    tell(asleep, "x")'
SLEEPS_BEFORE_CHECK = f"""{ASLEEP.replace("FIRST", "pass")}
    def calls(frame, event, argument):
        if frame.f_code.co_name == "is_mine":
            sys.settrace(None)
            {STOPS}
    sys.settrace(calls)
    tell(asleep, "x")
"""
SETTLES = f"""{ASLEEP.replace("FIRST", "pass")}
    [row] = effects.calls()
    effects.settle(row.key, "not-applied")
    tell(asleep, "x")
"""


def settled_meanwhile(folder: Path, cluster: Cluster, source: str) -> tuple[list[str], int]:
    """What a process says that sleeps while another one settles its call and makes it, and how many effects there are.

    By its store, it runs on a machine that has given no sign of life for long.
    """
    agents = Agents(folder, cluster.url(cluster.create()))
    with agents.started(source) as sleeper:
        stopped(sleeper)
        with psycopg.connect(agents.url.replace("+psycopg", "")) as db:
            db.execute("UPDATE replan_owners SET boot = 'another machine', host = 'other', lease = 0")
        assert agents.run(SETTLES) == ["returned w1"]
        sleeper.signal(signal.SIGCONT)
        return sleeper.lines(), len(agents.world.effects())


def test_a_process_that_sleeps_after_the_check_calls_twice(tmp_path: Path, postgresql: Cluster) -> None:
    """It was settled as not applied, which was true then, and made by another process; then the first one wakes up."""
    assert settled_meanwhile(tmp_path, postgresql, SLEEPS_IN_FUNCTION)[1] == 2


def test_a_process_that_sleeps_before_the_check_calls_nothing(tmp_path: Path, postgresql: Cluster) -> None:
    """It finds that its claim is not its own any more."""
    lines, count = settled_meanwhile(tmp_path, postgresql, SLEEPS_BEFORE_CHECK)

    assert lines[0].startswith("raised OutcomeUnknown") and count == 1


@pytest.mark.parametrize(
    ("function", "key", "count"),
    [
        *((function, "", 2) for function in ("pay", "mail", "charge", "move")),
        *((function, ', key="k"', 1) for function in ("charge", "move")),
    ],
)
def test_a_lost_store_makes_a_call_again(agents: Agents, function: str, key: str, count: int) -> None:
    """Nothing is known of it; but with the caller's key, the service or the function's own database knows the call."""
    call = f'tell({function}, "a", "x"{key})\n'
    agents.run(call + DIES)
    for file in [*agents.folder.glob("store.db*"), *agents.folder.glob(".store.db*")]:
        shutil.rmtree(file) if file.is_dir() else file.unlink()

    assert agents.run(call)[-1].startswith("returned")
    assert len(agents.happened()) == count


WRONG_PROOFS: dict[str, Story] = {
    "a service that rejects what it applied": (
        [
            Run("""
                @effects.unkeyed
                def lies(text: str) -> str:
                    world.apply("lies", {"text": text})
                    raise Refused("409")
                tell(lies, "x", key="k")
                tell(lies, "x", key="k")
            """)
        ],
        2,
    ),
    "a wrong promise of one request": (
        [
            Run("""
                @effects.unkeyed(requests=1, raises={Conflict: "conflict"})
                def sends_two(text: str) -> str:
                    world.apply("sends_two", {"text": text})
                    raise Conflict("409")
                tell(sends_two, "x", key="k")
                tell(sends_two, "x", key="k")
            """)
        ],
        2,
    ),
    "a reconcile that finds the effect of an equal call, which is said": (
        [Run(MAILED), Run(DIES_BEFORE + MAILED), Run(MAILED, ["said mail", "returned w1"])],
        ["mail(a, x)"],
    ),
}


@pytest.mark.parametrize("story", WRONG_PROOFS.values(), ids=WRONG_PROOFS)
def test_a_wrong_proof_is_believed(agents: Agents, story: Story) -> None:
    """Nothing shows that it is wrong."""
    agents.play(story)


CALL_0 = 'tell(pay, "{}", "x", run="r", call="call_0")\n'
OTHER_IDENTITIES: dict[str, Story] = {
    "another session is another agent": (
        [Run(PAID + DIES, options={"session": "one"}), Run(PAID, ["returned w2"], {"session": "two"})],
        2,
    ),
    "repeated ids are one call, but for other arguments": (
        [Run(CALL_0.format("a") * 2 + CALL_0.format("b"), ["returned w1", "returned w1", "returned w2"])],
        2,
    ),
    "a call that is reworded after the agent has gone on is made": (
        [Run(MAILED + 'tell(pay, "b", "x")\n' + DIES), Run('tell(mail, "a", "in other words")', ["returned w3"])],
        3,
    ),
    "what a process had read before an orderly end is made again, without keys or ids": (
        [Run(PAID + "effects.close()\nraise SystemExit(0)"), Run(PAID, ["returned w2"])],
        2,
    ),
}


@pytest.mark.parametrize("story", OTHER_IDENTITIES.values(), ids=OTHER_IDENTITIES)
def test_what_has_another_identity_is_made(agents: Agents, story: Story) -> None:
    """Nothing tells it from a second call."""
    agents.play(story)


def test_what_a_living_process_has_read_is_made_again(agents: Agents) -> None:
    """A second process does the same work beside the first one, which lives."""
    with agents.started(PAID + 'say("here")\ntime.sleep(20)') as first:
        first.wait_for("here")

        assert agents.run(PAID) == ["returned w2"]
