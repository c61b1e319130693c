"""Calls of agents, each effect once, without a server: what a session says of doubts, and what an agent is told."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from activities.effects.database import Database
from activities.effects.desk import Desk, Settlement
from activities.effects.effect_store import EffectStore
from activities.toolbox.declare.kind import Kind, describe
from extras.gateway.effect_calls import AgentCall, EffectCalls
from extras.gateway.effect_tools import BY_NAME, AskedOfStore
from extras.gateway.offers import Offer
from extras.gateway.request import AgentRequest
from extras.gateway.sessions import DoubtPolicy, Session
from replan import Refused, Unreachable, tool
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

    async def call(self, name: str, note: str = "", amount: int = 5, key: str = "") -> dict[str, Any]:
        """Call a tool, and return the answer."""
        offer = Offer(name, name, Effect.UNKEYED, {"name": name})
        session, id = Session("shop", self.doubt), secrets.token_hex(8)
        request = AgentRequest(session, id, self.connection, key, is_gone=lambda: self.is_gone)
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


def raising(error: Exception) -> Callable[[], None]:
    """What raises an error when it is called."""

    def fail() -> None:
        raise error

    return fail


LOST = raising(TimeoutError("the answer is lost"))


async def test_calls_are_told_apart_in_one_process_too(gateway: Gateway) -> None:
    """In short, what test_same_call shows with real processes: each amount is paid once or, after an answer, twice."""
    shop, agent, other, begun = gateway.shop, gateway.agent(), gateway.agent(), asyncio.Event()
    shop.seconds, shop.before = 0.1, begun.set
    joined = await asyncio.gather(agent.call("tip", amount=1), other.call("tip", amount=1))
    keyed = await asyncio.gather(*(agent.call("tip", amount=2, key=key) for key in "aba"))
    conflict = await agent.call("tip", amount=9, key="a")
    begun.clear()
    call = asyncio.create_task(agent.call("tip", amount=3))
    await begun.wait()
    agent.leave()
    call.cancel()
    await asyncio.wait([call])
    again, meant = await other.call("tip", amount=3), await other.call("tip", amount=3)
    shop.after = LOST
    unknown, found = await other.call("tip", "refund approved", 4), await other.call("pay", amount=5)
    shop.after, shop.before = lambda: None, raising(Refused("nothing to pay", code="conflict"))
    reworded, rejected = await other.call("tip", "your refund is approved", 4), await other.call("tip", amount=6)
    shop.before = lambda: None
    mended = await other.call("tip", amount=6)

    assert all("replan/key" in text(answer) for answer in joined) and [code(one) for one in keyed] == [""] * 3
    assert ["Not done again" in text(answer) for answer in (again, meant)] == [True, False]
    codes = [code(one) for one in (conflict, unknown, found, reworded, rejected, mended)]
    assert codes == ["conflict", "unknown_outcome", "", "doubtful", "conflict", ""]
    assert rejected["structuredContent"]["applied"] == "none" and found["structuredContent"] == {"number": 7}
    assert [amount for _, amount, _ in shop.paid] == [1, 2, 2, 3, 3, 4, 5, 6]


@pytest.mark.parametrize(("doubt", "paid"), [(DoubtPolicy.REPEAT, 2), (DoubtPolicy.REPLAY, 1)])
async def test_a_session_may_say_what_follows_a_doubt(gateway: Gateway, doubt: DoubtPolicy, paid: int) -> None:
    """Then nobody is asked."""
    first = gateway.agent(doubt)
    await first.call("tip", note="refund approved")
    first.leave()
    answer = await gateway.agent(doubt).call("tip", note="your refund is approved")

    assert len(gateway.shop.paid) == paid and code(answer) == ""


async def test_a_call_that_was_not_sent_is_made_again_at_once(gateway: Gateway) -> None:
    """The agent does not learn of a fault that time has cured."""
    failures = [Unreachable("the shop is closed"), Unreachable("the shop is closed")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    gateway.shop.before = fail

    assert code(await gateway.agent().call("tip")) == "" and len(gateway.shop.paid) == 1


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
    gateway.shop.after = LOST
    agent = gateway.agent()
    id = (await agent.call("tip"))["structuredContent"]["task"]
    if answer:
        Desk(gateway.calls.store.database).settle(id, answer)
    outcome = await agent.ask("replan_outcome", id=id)

    assert outcome["structuredContent"]["do"] == do
    assert ("Do not call it again" in text(outcome)) == (answer is None)
