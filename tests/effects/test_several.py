"""Several tasks, threads and processes make equal calls at the same time."""

import time

from tests.effects.agents import Agents

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


def test_equal_tasks_at_the_same_time_are_one(agents: Agents) -> None:
    """In one event loop."""
    lines = agents.run("""
        async def main():
            befalls(before=0.2)
            say(*await asyncio.gather(*(a_pay("a", "x") for _ in range(3))))
        asyncio.run(main())
    """)

    assert lines == ["said a_pay", "said a_pay", "w1 w1 w1"]


def test_two_calls_with_ids_in_one_run_are_two(agents: Agents) -> None:
    """A model asks for the same call twice in one answer, and both clients wait."""
    lines = agents.run("""
        async def main():
            befalls(before=0.2)
            async def one(call):
                with effects.scope(run="r", call=call):
                    return await a_pay("a", "x")
            say(*sorted(await asyncio.gather(one("1"), one("2"))))
        asyncio.run(main())
    """)

    assert lines == ["w1 w2"]


def test_a_process_that_waits_takes_over_from_a_killed_one(agents: Agents) -> None:
    """The second process waits for the first, which is killed before its effect: then it looks, and makes the call."""
    with (
        agents.started('befalls(before=30)\nsay("here")\ntell(mail, "a", "x")') as first,
        agents.started('say("here")\ntell(mail, "a", "x")') as second,
    ):
        first.wait_for("here")
        second.wait_for("here")
        time.sleep(0.3)
        first.process.kill()

        assert second.lines()[-1] == "returned w1"
    assert agents.happened() == ["mail(a, x)"]


def test_a_forked_child_is_a_process_of_its_own(agents: Agents) -> None:
    """The call of a killed child is not taken for one of its parent, which lives."""
    lines = agents.run("""
        tell(pay, "b", "y")
        if (child := os.fork()) == 0:
            befalls(dies="before")
            tell(mail, "a", "x")
        os.waitpid(child, 0)
        tell(mail, "a", "x")
    """)

    assert lines == ["returned w1", "returned w2"]


def test_the_first_transactional_calls_of_several_threads_are_made(agents: Agents) -> None:
    """The function's database is prepared by one of them."""
    lines = agents.run("""
        with ThreadPoolExecutor(8) as pool:
            [done.result() for done in [pool.submit(tell, move, "a", str(number)) for number in range(8)]]
    """)

    assert sorted(lines) == [f"returned t{number}" for number in range(1, 9)]
