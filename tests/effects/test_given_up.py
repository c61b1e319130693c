"""The client of a call gives up while it runs."""

import pytest

from tests.effects.agents import PAID, Agents, Run, Story, keys

ABANDONS = """
    async def main():
        befalls(before=0.4)
        try:
            await asyncio.wait_for(CALL, 0.2)
        except TimeoutError:
            await asyncio.sleep(0.6)
    asyncio.run(main())
"""
IN_THREAD = ABANDONS.replace("CALL", 'asyncio.to_thread(pay, "a", "x")')
QUICK_THREAD = """
    import time
    from concurrent.futures import ThreadPoolExecutor

    class Slow(ThreadPoolExecutor):
        def submit(self, *args, **named):
            future = super().submit(*args, **named)
            time.sleep(0.2)
            return future

    async def main():
        asyncio.get_running_loop().set_default_executor(Slow())
        await asyncio.to_thread(effects.calls)
        try:
            async with asyncio.timeout(0):
                await asyncio.to_thread(pay, "a", "x")
        except TimeoutError:
            say("gave up")
    asyncio.run(main())
"""
SAID = ["said pay", "returned w1"]
NOBODY_GOT_IT: dict[str, Story] = {
    "in its process, once": ([Run(f"{IN_THREAD}    befalls()\n    {PAID}    {PAID}", [*SAID, "returned w2"])], 2),
    "in another process, after an orderly end": (
        [Run(ABANDONS.replace("CALL", 'a_pay("a", "x")')), Run('tell(a_pay, "a", "x")', ["said a_pay", "returned w1"])],
        1,
    ),
    "also if the thread is quicker than the event loop that started it": (
        [Run(QUICK_THREAD, ["gave up"]), Run(PAID, SAID)],
        1,
    ),
}


def test_a_call_that_still_runs_is_joined(agents: Agents) -> None:
    """An abandoned thread goes on; an equal call waits for it, gets its result, and is told so."""
    lines = agents.run("""
        async def main():
            befalls(before=0.6)
            try:
                await asyncio.wait_for(asyncio.to_thread(pay, "a", "x"), 0.2)
            except TimeoutError:
                say("gave up")
            say("returned", await asyncio.to_thread(pay, "a", "x"))
        asyncio.run(main())
    """)

    assert lines == ["gave up", "said pay", "returned w1"]
    assert agents.happened() == ["pay(a, x)"]


@pytest.mark.parametrize("story", NOBODY_GOT_IT.values(), ids=NOBODY_GOT_IT)
def test_an_answer_that_nobody_got_is_handed_out(agents: Agents, story: Story) -> None:
    """The abandoned call has ended: its result is recorded, and given to the next equal call."""
    agents.play(story)


def test_a_cancelled_call_is_unknown(agents: Agents) -> None:
    """The event loop ends in the middle of the call: nobody knows whether it was applied."""
    lines = agents.run("""
        async def main():
            await asyncio.to_thread(effects.calls)
            befalls(after=5.0)
            try:
                await asyncio.wait_for(a_pay("a", "x"), 0.5)
            except TimeoutError:
                say("gave up")
        asyncio.run(main())
        befalls()
        tell(a_pay, "a", "x")
    """)

    assert (lines[0], lines[1][:21], len(keys(lines))) == ("gave up", "raised OutcomeUnknown", 1)
    assert agents.happened() == ["a_pay(a, x)"]


def test_a_function_that_takes_too_long_is_unknown(agents: Agents) -> None:
    """At its timeout an `async def` is cancelled."""
    call = Run('befalls(after=3.0)\ntell(a_pay, "a", "x")', ["raised OutcomeUnknown"], {"timeout": 0.2})

    agents.play(([call], 1))


@pytest.mark.full  # closing waits for 5 s
def test_closing_does_not_end_a_call_that_still_runs(agents: Agents) -> None:
    """Another process does not trust "not found" while a thread may still send, although the floor was closed."""
    with agents.started(
        """
        threading.Thread(target=lambda: (befalls(before=7), tell(mail, "a", "x"))).start()
        time.sleep(0.3)
        effects.close()
        say("closed")
        time.sleep(5)
        """
    ) as closed:
        closed.wait_for("closed")
        other = agents.run('tell(mail, "a", "x")', timeout=0.2)

        assert other[0].startswith(("raised OutcomeUnknown", "said mail"))
        closed.lines()
    assert agents.happened() == ["mail(a, x)"]
