"""Several tasks, threads and processes make equal calls at the same time."""

import time

import pytest

from tests.effects.agents import MAILED, Agents, Run, Story

WAITS = """
    from contextvars import copy_context
    second = world.file.parent / "second"
    @effects.unkeyed
    def waits(text: str) -> str:
        while not second.exists():
            time.sleep(0.01)
        return world.apply("waits", {"text": text})
"""


def test_equal_calls_at_the_same_time_are_one(agents_of_both: Agents) -> None:
    """In three threads of one process, and in another process: one effect, and three are told."""
    threads = f"""{WAITS}
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(copy_context().run, tell, waits, "x") for _ in range(3)]
        time.sleep(0.2)
        say("here")
        [call.result() for call in calls]
    """
    with agents_of_both.started(threads) as first:
        first.wait_for("here")
        end = 'threading.Timer(0.3, second.touch).start()\n    tell(waits, "x")'
        with agents_of_both.started(f"{WAITS}\n    {end}") as second:
            lines = sorted(first.lines() + second.lines())

    assert lines == ["here"] + ["returned w1"] * 4 + ["said waits"] * 3
    assert len(agents_of_both.world.effects()) == 1


TASKS = """
    async def one(number):
        with effects.scope(IDS):
            return await a_pay("a", "x")
    async def main():
        befalls(before=0.2)
        say(*sorted(await asyncio.gather(*map(one, "123"))))
    asyncio.run(main())
"""
TOGETHER: dict[str, Story] = {
    "equal tasks of one event loop are one": (
        [Run(TASKS.replace("IDS", ""), ["said a_pay", "said a_pay", "w1 w1 w1"])],
        1,
    ),
    "calls with ids in one run are several, whose client waits for all": (
        [Run(TASKS.replace("IDS", 'run="r", call=number'), ["w1 w2 w3"])],
        3,
    ),
    "the call of a killed child is not taken for one of its parent, which lives": (
        [
            Run(
                f"""
                tell(pay, "b", "y")
                if (child := os.fork()) == 0:
                    befalls(dies="before")
                    {MAILED}
                os.waitpid(child, 0)
                {MAILED}
                """,
                ["returned w1", "returned w2"],
            )
        ],
        2,
    ),
}


@pytest.mark.parametrize("story", TOGETHER.values(), ids=TOGETHER)
def test_who_calls_at_the_same_time_makes_one_call_or_several(agents: Agents, story: Story) -> None:
    """By ids, and by process."""
    agents.play(story)


def test_a_process_that_waits_takes_over_from_a_killed_one(agents: Agents) -> None:
    """The second process waits for the first, which is killed before its effect: then it looks, and makes the call."""
    with (
        agents.started('befalls(before=30)\nsay("here")\n' + MAILED) as first,
        agents.started('say("here")\n' + MAILED) as second,
    ):
        first.wait_for("here")
        second.wait_for("here")
        time.sleep(0.3)
        first.process.kill()

        assert second.lines()[-1] == "returned w1"
    assert agents.happened() == ["mail(a, x)"]


def test_the_first_transactional_calls_of_several_threads_are_made(agents: Agents) -> None:
    """The function's database is prepared by one of them."""
    lines = agents.run("""
        with ThreadPoolExecutor(8) as pool:
            [done.result() for done in [pool.submit(tell, move, "a", str(number)) for number in range(8)]]
    """)

    assert sorted(lines) == [f"returned t{number}" for number in range(1, 9)]
