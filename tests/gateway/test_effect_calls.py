"""Calls of agents, each effect once, without a server: what is the same call, and what an agent is told."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from activities.effects.database import Database
from activities.effects.desk import Desk, Settlement
from activities.effects.effect_store import EffectStore
from activities.toolbox.declare.kind import Kind, describe
from replan import Refused, Unreachable, tool
from server.gateway.effect_calls import AgentCall, EffectCalls
from server.gateway.effect_tools import BY_NAME, AskedOfStore
from server.gateway.offers import Offer
from server.gateway.request import AgentRequest
from server.gateway.sessions import DoubtPolicy, Session
from workflows.plans.catalogue import Effect


class Pay(BaseModel):
    who: str
    amount: int
    note: str = ""


class Refund(BaseModel):
    number: int


class Receipt(BaseModel):
    number: int


class Shop:
    """Tools that pay, and what they have paid."""

    def __init__(self) -> None:
        self.paid, self.refunded = list[tuple[str, int, str]](), list[int]()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.seconds = 0.0

        @tool.read
        async def find_payment(args: Pay) -> Receipt:
            """Find a payment."""
            if not self.paid:
                raise Refused("there is none", code="not_found")
            return Receipt(number=len(self.paid))

        @tool.idempotent
        async def refund(args: Refund) -> Receipt:
            """Refund a payment."""
            self.refunded.append(args.number)
            return Receipt(number=args.number)

        @tool.unkeyed(reconcile=find_payment, undo=refund.using(number="result.number"), settle=0.01)
        async def pay(args: Pay) -> Receipt:
            """Pay."""
            return await self.make(args)

        @tool.unkeyed
        async def tip(args: Pay) -> Receipt:
            """Pay without a trace."""
            return await self.make(args)

        self._kinds = dict[str, Kind]()
        for declared in (find_payment, refund, pay, tip):
            kind, mistakes = describe(declared)
            assert kind is not None, mistakes
            self._kinds[kind.spec.kind] = kind

    async def make(self, args: Pay) -> Receipt:
        """Pay, as the test wants it."""
        self.before()
        await asyncio.sleep(self.seconds)
        self.paid.append((args.who, args.amount, args.note))
        self.after()
        return Receipt(number=len(self.paid))

    def kind(self, name: str) -> Kind | None:
        return self._kinds.get(name)

    def is_over(self, kind: Kind) -> bool:
        return False

    async def call(self, kind: Kind, args: BaseModel, key: str, called: Callable[[], None]) -> JsonValue:
        value = await kind.function(args)
        called()
        plain: JsonValue = kind.result.dump_python(value, mode="json")
        return plain


class Agent:
    """An agent with a connection of its own."""

    def __init__(self, calls: EffectCalls, doubt: DoubtPolicy) -> None:
        self.calls, self.doubt, self.connection = calls, doubt, secrets.token_hex(4)
        self.is_gone = False
        calls.connection_opened(self.connection)

    async def call(self, name: str, amount: int = 5, note: str = "", key: str = "") -> dict[str, Any]:
        """Call a tool, and return the answer."""
        offer = Offer(name, name, Effect.UNKEYED, {"name": name})
        request = AgentRequest(
            Session("shop", self.doubt), secrets.token_hex(8), self.connection, key, is_gone=lambda: self.is_gone
        )
        return await self.calls.call(offer, {"who": "ann", "amount": amount, "note": note}, request)

    async def ask(self, name: str, session: str = "shop", **args: JsonValue) -> dict[str, Any]:
        """Call one of the gateway's own tools."""
        request = AgentRequest(Session(session, self.doubt), secrets.token_hex(8), self.connection)
        return await BY_NAME[name](AskedOfStore(self.calls, request, args))

    def leave(self) -> None:
        """Be killed: nobody is told."""
        self.is_gone = True
        self.calls.connection_closed(self.connection)


class Gateway:
    """A holder's calls, and its agents."""

    def __init__(self, folder: Path) -> None:
        self.shop = Shop()
        store = EffectStore(Database(str(folder / "store.db")), restarts=False, watch=True, on_joined=None)
        store.begin()
        self.calls = EffectCalls(store, self.shop, AgentCall)

    def agent(self, doubt: DoubtPolicy = DoubtPolicy.ASK) -> Agent:
        return Agent(self.calls, doubt)

    def close(self) -> None:
        self.calls.store.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with a store of its own."""
    made = Gateway(tmp_path)
    yield made
    made.close()


def text(answer: dict[str, Any]) -> str:
    """What an answer says."""
    return " ".join(block["text"] for block in answer["content"])


def code(answer: dict[str, Any]) -> str:
    """The code of the fault in an answer; empty for a result."""
    return str(answer["structuredContent"]["code"]) if answer.get("isError") else ""


async def test_two_equal_calls_of_a_living_agent_are_two(gateway: Gateway) -> None:
    """It has the first answer, so it means a second one."""
    agent = gateway.agent()
    answers = [await agent.call("tip") for _ in range(2)]

    assert [answer["structuredContent"]["number"] for answer in answers] == [1, 2]


async def test_an_equal_call_that_comes_meanwhile_joins_and_both_are_told(gateway: Gateway) -> None:
    """A client that gives up says nothing, and calls again on whatever connection."""
    gateway.shop.seconds = 0.2
    first, second = await asyncio.gather(gateway.agent().call("tip"), gateway.agent().call("tip"))

    assert len(gateway.shop.paid) == 1
    assert "replan/key" in text(first) and "replan/key" in text(second)


async def test_a_key_tells_two_calls_apart_and_keeps_one_together(gateway: Gateway) -> None:
    """An agent that gives keys says which calls are which."""
    gateway.shop.seconds, agent = 0.1, gateway.agent()
    await asyncio.gather(agent.call("tip", key="a"), agent.call("tip", key="b"), agent.call("tip", key="a"))
    conflict = await agent.call("tip", amount=6, key="a")

    assert len(gateway.shop.paid) == 2
    assert code(conflict) == "conflict"


async def test_the_last_answer_of_an_agent_that_was_killed_is_given_again(gateway: Gateway) -> None:
    """Nobody knows whether it was read; the second equal call of the successor is meant."""
    agent = gateway.agent()
    await agent.call("tip")
    agent.leave()
    successor = gateway.agent()
    again, more = await successor.call("tip"), await successor.call("tip")

    assert "Not done again" in text(again)
    assert "Not done again" not in text(more) and len(gateway.shop.paid) == 2


async def test_a_call_whose_agent_was_killed_goes_on_and_answers_its_successor(gateway: Gateway) -> None:
    """Also days later: what nobody can have read has no age."""
    gateway.shop.seconds, agent, begun = 0.1, gateway.agent(), asyncio.Event()
    gateway.shop.before = begun.set
    call = asyncio.create_task(agent.call("tip"))
    await begun.wait()
    agent.leave()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    again = await gateway.agent().call("tip")

    assert "Not done again" in text(again) and len(gateway.shop.paid) == 1


async def test_a_rewording_of_a_call_without_an_answer_is_for_a_person(gateway: Gateway) -> None:
    """A model that is asked again finds other words for the same payment."""
    gateway.shop.after = lambda: (_ for _ in ()).throw(TimeoutError("the answer is lost"))
    agent = gateway.agent()
    unknown = await agent.call("tip", note="refund approved")
    gateway.shop.after = lambda: None
    reworded = await agent.call("tip", note="your refund is approved")
    another = await agent.call("tip", amount=9, note="your refund is approved")

    assert (code(unknown), code(reworded), code(another)) == ("unknown_outcome", "doubtful", "")
    assert " settle " in text(reworded)
    assert [amount for _, amount, _ in gateway.shop.paid] == [5, 9]


@pytest.mark.parametrize(("doubt", "paid"), [(DoubtPolicy.REPEAT, 2), (DoubtPolicy.REPLAY, 1)])
async def test_a_session_may_say_what_follows_a_doubt(gateway: Gateway, doubt: DoubtPolicy, paid: int) -> None:
    """Then nobody is asked."""
    first = gateway.agent(doubt)
    await first.call("tip", note="refund approved")
    first.leave()
    answer = await gateway.agent(doubt).call("tip", note="your refund is approved")

    assert len(gateway.shop.paid) == paid and code(answer) == ""


async def test_what_reconcile_finds_is_the_answer(gateway: Gateway) -> None:
    """The answer was lost, and the read of the tools file shows the payment."""
    gateway.shop.after = lambda: (_ for _ in ()).throw(TimeoutError("the answer is lost"))
    answer = await gateway.agent().call("pay")

    assert answer["structuredContent"] == {"number": 1} and len(gateway.shop.paid) == 1


async def test_a_call_that_was_not_sent_is_made_again_at_once(gateway: Gateway) -> None:
    """The agent does not learn of a fault that time has cured."""
    failures = [Unreachable("the shop is closed"), Unreachable("the shop is closed")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    gateway.shop.before = fail

    assert code(await gateway.agent().call("tip")) == "" and len(gateway.shop.paid) == 1


async def test_a_rejected_call_is_made_again_when_the_agent_calls_again(gateway: Gateway) -> None:
    """What failed a moment ago may go now: the agent has done what the rejection asked for."""
    gateway.shop.before = lambda: (_ for _ in ()).throw(Refused("nothing to pay", code="conflict"))
    agent = gateway.agent()
    rejected = await agent.call("tip")
    gateway.shop.before = lambda: None

    assert code(rejected) == "conflict" and '"none"' in str(rejected["structuredContent"]).replace("'", '"')
    assert code(await agent.call("tip")) == "" and len(gateway.shop.paid) == 1


async def test_an_agent_asks_for_what_its_calls_did_and_undoes_it(gateway: Gateway) -> None:
    """Each once; an undone call is not undone again, and its result is not given again."""
    agent = gateway.agent()
    paid = await agent.call("pay")
    effects = await agent.ask("replan_effects")
    [listed] = effects["structuredContent"]["effects"]
    outcome = await agent.ask("replan_outcome", id=listed["id"])
    undone = [await agent.ask("replan_undo", id=listed["id"]) for _ in range(2)]

    assert outcome["structuredContent"] == paid["structuredContent"] == listed["result"]
    assert [answer["structuredContent"]["undone"][0]["undone"] for answer in undone] == [True, True]
    assert gateway.shop.refunded == [1]


async def test_no_agent_sees_the_calls_of_another_session(gateway: Gateway) -> None:
    """An id is no key to what others did."""
    await gateway.agent().call("tip")
    [listed] = (await gateway.agent().ask("replan_effects"))["structuredContent"]["effects"]
    answer = await gateway.agent().ask("replan_outcome", session="other", id=listed["id"])

    assert code(answer) == "unknown_key"


@pytest.mark.parametrize(("answer", "do"), [(None, "a_person_was_asked"), ("not-applied", "wait")])
async def test_an_agent_learns_that_it_may_call_again(gateway: Gateway, answer: Settlement | None, do: str) -> None:
    """As soon as a person has said that the call was not applied."""
    gateway.shop.after = lambda: (_ for _ in ()).throw(TimeoutError("the answer is lost"))
    agent = gateway.agent()
    id = (await agent.call("tip"))["structuredContent"]["task"]
    if answer:
        Desk(gateway.calls.store.database).settle(id, answer)
    outcome = await agent.ask("replan_outcome", id=id)

    assert outcome["structuredContent"]["do"] == do
    assert ("Do not call it again" in text(outcome)) == (answer is None)


async def test_a_call_that_came_before_an_answer_does_not_follow_it(gateway: Gateway) -> None:
    """The holder was still starting, and the client sent its call again: both are there when the first is answered."""
    agent = gateway.agent()
    await agent.call("tip")
    agent.leave()
    successor = gateway.agent()
    answers = await asyncio.gather(*(successor.call("tip") for _ in range(3)))

    assert len(gateway.shop.paid) == 1 and all("Not done again" in text(answer) for answer in answers)
    assert "Not done again" not in text(await successor.call("tip")) and len(gateway.shop.paid) == 2
