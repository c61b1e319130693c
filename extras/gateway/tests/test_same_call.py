"""The rows of docs/mcp.md that say when two calls at the gateway are the same call, each with real processes."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from extras.gateway.tests.agents import NOT_AGAIN
from extras.gateway.tests.clients import Client
from extras.gateway.tests.drawing import LATE, Do, Life, Scenario, Step
from extras.gateway.tests.forks import Forks
from extras.gateway.tests.sequences import World, let_days_pass

WAIT = 30.0
SHARED = "An equal call came while"
FULL = pytest.mark.full
Door = Literal["stdio", "http"]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Starts gateways quickly."""
    with Forks() as started:
        yield started


class Shop:
    """A world, and agents in it."""

    def __init__(self, forks: Forks, folder: Path, *, has_file: bool = False, timeout: float | None = None) -> None:
        self.world = World(forks, folder, Scenario(0, (), (), has_file, timeout=timeout))
        self.clients = list[Client]()

    def agent(self, door: Door = "stdio", *, is_new: bool = False, environment: int = 0) -> Client:
        """An agent that has connected."""
        self.clients.append(self.world.client(Life(door, is_new, environment)))
        return self.clients[-1]

    def begin(
        self, agent: Client, note: str = "ok", amount: float = 5, key: str | None = None, tool: str = "pay", **step: Any
    ) -> int:
        """Send a payment; `step` says what befalls it."""
        if step:
            self.world.act(Step(**step))
        meta = {"_meta": {"replan/key": key}} if key else {}
        return agent.begin({"name": tool, "arguments": {"who": "a", "amount": amount, "note": note}, **meta})

    def pay(self, agent: Client, note: str = "ok", amount: float = 5, key: str | None = None, **step: Any) -> "Answer":
        """Pay, and wait for the answer."""
        return self.answer(agent, self.begin(agent, note, amount, key, **step))

    def answer(self, agent: Client, number: int) -> "Answer":
        message = agent.wait(number, WAIT)
        assert message is not None and "result" in message, message
        return Answer(message["result"])

    def until_paid(self, count: int = 1) -> None:
        """Wait until the journal has so many effects."""
        end = time.monotonic() + WAIT
        while self.paid < count:
            assert time.monotonic() < end
            time.sleep(0.005)

    @property
    def paid(self) -> int:
        return len(self.world.journal())

    def close(self) -> None:
        for client in self.clients:
            client.kill()
        self.world.close()


class Answer:
    """What an agent was told."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.words = " ".join(block.get("text", "") for block in result["content"])
        self.is_error = bool(result.get("isError"))
        data = result.get("structuredContent") or {}
        self.code = str(data.get("code", "")) if self.is_error else ""
        self.applied = str(data.get("applied", "")) if self.is_error else ""


@pytest.fixture
def shop(forks: Forks, tmp_path: Path) -> Iterator[Shop]:
    """A shop behind its server's command."""
    made = Shop(forks, tmp_path / "shop")
    yield made
    made.close()


# A key.


@pytest.mark.parametrize(("first", "second"), [("k", None), (None, "k"), ("k", "k")])
def test_a_missing_key_matches_any(shop: Shop, first: str | None, second: str | None) -> None:
    """A program that gives keys may be started again by one that gives none."""
    agent = shop.agent()
    shop.begin(agent, key=first, after=0.2)
    shop.until_paid()
    agent.kill()
    again = shop.pay(shop.agent(), key=second)

    assert shop.paid == 1 and not again.is_error


def test_equal_is_equal_by_value(shop: Shop) -> None:
    """`0` and `0.0` are one number, so the key was not asked something else."""
    agent = shop.agent()
    answers = [shop.pay(agent, amount=amount, key="k") for amount in (0, 0.0, -0.0)]

    assert shop.paid == 1 and not any(answer.is_error for answer in answers)


def test_another_key_is_another_call_and_other_arguments_are_a_conflict(shop: Shop) -> None:
    """Also while an equal call runs."""
    agent = shop.agent()
    running = shop.begin(agent, key="one", after=0.3)
    shop.until_paid()
    same = shop.begin(agent, key="one")
    other, conflict = shop.pay(agent, key="two"), shop.pay(agent, amount=6, key="one")

    assert (shop.paid, other.is_error, conflict.code) == (2, False, "conflict")
    assert not any(shop.answer(agent, number).is_error for number in (running, same))


# Sent again by its own `replan mcp`.


def test_a_call_that_its_own_process_sends_again_is_that_call(shop: Shop) -> None:
    """Its holder was killed before it had recorded anything: nobody knows the outcome, and the tool is not called."""
    agent = shop.agent()
    number = shop.begin(agent, after=0.5)
    shop.until_paid()
    shop.world.end_holders(signal.SIGKILL)

    assert shop.answer(agent, number).code == "unknown_outcome" and shop.paid == 1


# Equal to one that runs, is unknown, or whose answer may not have been read.


@pytest.mark.parametrize("door", ["stdio", "http"])
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("on_other", [True, pytest.param(False, marks=FULL)])
def test_a_client_that_gives_up_in_silence_joins_its_own_call(
    shop: Shop, door: Door, is_new: bool, on_other: bool
) -> None:
    """Three tries, one effect: also on another connection, as clients over HTTP use."""
    agent = shop.agent(door, is_new=is_new)
    first = shop.begin(agent, after=0.5)
    shop.until_paid()
    other = shop.agent(door, is_new=is_new) if on_other else agent
    tries = [shop.begin(other), shop.begin(other)]
    answers = [shop.answer(agent, first), *(shop.answer(other, number) for number in tries)]

    assert shop.paid == 1
    assert SHARED in answers[0].words and all(NOT_AGAIN in answer.words for answer in answers[1:])
    assert all("replan/key" in answer.words for answer in answers)


@pytest.mark.parametrize("moment", ["at once", "while it runs", "after its end", "after its answer"])
def test_a_call_whose_client_cancels_it_is_not_made_again(shop: Shop, moment: str) -> None:
    """The call goes on, and its result belongs to the next equal call; a cancel says that the answer was not read."""
    agent = shop.agent()
    number = shop.begin(agent, after=0.3)
    if moment != "at once":
        shop.until_paid()
    if moment == "after its answer":
        shop.answer(agent, number)
    agent.cancel(number)
    if moment == "after its end":
        time.sleep(0.4)
    again = shop.pay(agent)

    assert shop.paid == 1 and not again.is_error
    assert NOT_AGAIN in again.words or moment == "at once", "a cancel may come before the call has begun"


@pytest.mark.parametrize("door", ["stdio", "http"])
@pytest.mark.parametrize("days", [1, pytest.param(0, marks=FULL), pytest.param(400, marks=FULL)])
@pytest.mark.parametrize("holder", ["stays", "idle"])
def test_a_call_whose_agent_was_killed_has_no_age(shop: Shop, door: Door, days: int, holder: str) -> None:
    """A laptop that slept overnight is the normal case, and the holder has ended meanwhile."""
    agent = shop.agent(door)
    shop.begin(agent, after=0.05)
    shop.until_paid()
    agent.kill()
    time.sleep(0.1)
    if holder == "idle":
        shop.world.end_holders(signal.SIGTERM)
    if days:
        let_days_pass(shop.world, days)
    again = shop.pay(shop.agent(door))

    assert shop.paid == 1 and NOT_AGAIN in again.words


@pytest.mark.parametrize("door", ["stdio", "http"])
@pytest.mark.parametrize("end", ["stays", "idle", "killed", "another environment"])
def test_the_last_answer_of_an_agent_that_has_left_is_given_again(shop: Shop, door: Door, end: str) -> None:
    """Nobody knows whether it was read, whatever became of the holder."""
    agent = shop.agent(door)
    shop.pay(agent)
    agent.kill()
    if end in ("idle", "killed"):
        shop.world.end_holders(signal.SIGTERM if end == "idle" else signal.SIGKILL)
    successor = shop.agent(door, environment=int(end == "another environment"))
    again, more = shop.pay(successor), shop.pay(successor)

    assert NOT_AGAIN in again.words and NOT_AGAIN not in more.words and shop.paid == 2


def test_a_call_that_came_before_an_answer_does_not_follow_it(shop: Shop) -> None:
    """Its holder was still starting, and the client sent it again: both are there when the first is answered."""
    agent = shop.agent()
    shop.pay(agent)
    agent.kill()
    successor = shop.agent()
    numbers = [shop.begin(successor) for _ in range(3)]

    assert all(NOT_AGAIN in shop.answer(successor, number).words for number in numbers) and shop.paid == 1
    assert NOT_AGAIN not in shop.pay(successor).words and shop.paid == 2


@pytest.mark.full
def test_an_answer_that_came_late_may_not_have_been_read(shop: Shop) -> None:
    """Some clients give up after 5 s without a word, and call again when the answer is there."""
    agent = shop.agent()
    shop.answer(agent, shop.begin(agent, after=LATE))
    again, more = shop.pay(agent), shop.pay(agent)

    assert NOT_AGAIN in again.words and NOT_AGAIN not in more.words and shop.paid == 2


# Doubtful.


@pytest.mark.parametrize("door", ["stdio", "http"])
def test_an_equal_call_after_an_agent_that_went_on_is_doubtful(shop: Shop, door: Door) -> None:
    """It had the answer, but nobody knows whether its successor has."""
    agent = shop.agent(door)
    shop.pay(agent)
    shop.pay(agent, amount=7)
    agent.kill()

    assert shop.pay(shop.agent(door)).code == "doubtful" and shop.paid == 2


@pytest.mark.parametrize("standing", ["unknown", "killed", "cancelled"])
def test_a_rewording_of_an_open_call_is_doubtful_without_a_tools_file(shop: Shop, standing: str) -> None:
    """A model that is asked again finds other words; a call about something else is made."""
    agent = shop.agent()
    if standing == "unknown":
        shop.pay(agent, note="refund approved", do="error after")
    else:
        number = shop.begin(agent, note="refund approved", after=0.3)
        shop.until_paid()
        if standing == "killed":
            agent.kill()
            agent = shop.agent()
        else:
            agent.cancel(number)
    reworded, other = shop.pay(agent, note="your refund is approved"), shop.pay(agent, note="refund it", amount=6)

    assert (reworded.code, other.is_error) == ("doubtful", False) and shop.paid == 2
    assert " settle " in reworded.words


# Any other.


@pytest.mark.parametrize("door", ["stdio", "http"])
@pytest.mark.parametrize("is_new", [False, True])
def test_equal_calls_of_a_connected_agent_are_all_meant(shop: Shop, door: Door, is_new: bool) -> None:
    """It has each answer before it calls again."""
    agent = shop.agent(door, is_new=is_new)
    answers = [shop.pay(agent) for _ in range(3)]

    assert shop.paid == 3 and not any(NOT_AGAIN in answer.words or answer.is_error for answer in answers)


def test_twenty_calls_at_once_that_differ_in_words_are_twenty(shop: Shop) -> None:
    """Their client waits for all of them."""
    agent = shop.agent()
    numbers = [shop.begin(agent, note=f"issue {number}") for number in range(20)]

    assert not any(shop.answer(agent, number).is_error for number in numbers) and shop.paid == 20


# What the agent is told.


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("error after", "the printer broke"),
        ("error before", "no such account"),
        ("rpc after", "insufficient funds"),
        ("die after", "raised Unreachable"),
    ],
)
def test_what_a_server_says_after_it_has_begun_proves_nothing(shop: Shop, do: Do, words: str) -> None:
    """Neither `isError` nor an error of JSON-RPC says whether the tool acted before, and the agent sees its text."""
    told = shop.pay(shop.agent(), do=do)

    assert (told.code, told.applied) == ("unknown_outcome", "unknown") and words in told.words


@pytest.fixture
def of_file(forks: Forks, tmp_path: Path) -> Iterator[Shop]:
    """A shop whose tools file has a reconcile, and what errors mean."""
    made = Shop(forks, tmp_path / "shop", has_file=True)
    yield made
    made.close()


def test_a_rejection_that_the_agent_has_mended_is_no_rejection_any_more(of_file: Shop) -> None:
    """It did what the rejection asked for in its own shell, and calls again at once."""
    agent = of_file.agent()
    rejected, again = of_file.pay(agent, do="conflict"), of_file.pay(agent)

    assert (rejected.code, rejected.applied, again.is_error) == ("conflict", "none", False) and of_file.paid == 1
    assert "409 the price moved" in rejected.words


@pytest.mark.parametrize("do", ["die before", "die after"])
def test_what_became_of_a_call_whose_server_died_is_looked_up(of_file: Shop, do: str) -> None:
    """The server is gone, so what is not there will not come: the second call makes it, or gets it.

    Who is told what a look has found may not take it for an answer: until it reads, each equal call gets the same.
    """
    agent = of_file.agent()
    first, *others = of_file.pay(agent, tool="mail", do=do), *(of_file.pay(agent, tool="mail") for _ in range(2))

    assert first.code == ("unknown_outcome" if do == "die before" else "") and not any(one.is_error for one in others)
    assert [NOT_AGAIN in one.words for one in others] == [do == "die after"] * 2
    assert of_file.paid == (2 if do == "die before" else 1)
