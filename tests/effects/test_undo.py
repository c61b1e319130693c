"""Undoing a call: once, by the function that its decorator names, even if the program is killed in the middle."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replan.effects import EffectRefused, Effects, EffectUndone, Key, OutcomeUnknown
from tests.effects.shop import Shop


@pytest.fixture
def effects(tmp_path: Path) -> Iterator[Effects]:
    made = Effects(str(tmp_path / "agent.db"), session="s")
    yield made
    made.close()


def test_a_call_is_undone_once(shop: Shop) -> None:
    """By a function that gets the arguments it has parameters for, and the result; a second `undo` calls nothing."""
    shop.order("lamp", "as a gift")
    key = shop.key("applied")
    undone = [shop.effects.undo(key) for _ in range(2)]

    assert shop.world == ["order lamp", "cancel lamp lamp"]
    assert [(one.state, one.undone_by) for one in undone] == [("undone", f"order 17/_cancel/undo/{key}")] * 2
    assert undone[0].undone_at is not None


def test_the_result_of_an_undone_call_is_not_returned(shop: Shop) -> None:
    """An equal call is another one; one with the same key is refused."""
    with shop.effects.scope(key="first"):
        shop.order("lamp")
        shop.effects.undo("order 17/_order/first")
        with pytest.raises(EffectUndone):
            shop.order("lamp")
    shop.dies(lambda: shop.order("lamp"))

    assert shop.world == ["order lamp", "cancel lamp lamp", "order lamp"]


def test_an_undo_that_was_killed_in_the_middle_is_finished_by_the_next(shop: Shop) -> None:
    """An idempotent undo is called again, with the same key; meanwhile nobody gets the result."""
    shop.dies(lambda: shop.order("deadly"))
    key = shop.key("applied")
    shop.dies(lambda: shop.effects.undo(key))
    between = shop.effects.desk.call(key)
    shop.order("deadly")
    undone = shop.effects.undo(key)

    assert (between.state, between.undone_by) == ("applied", f"order 17/_cancel/undo/{key}")
    assert shop.world == ["order deadly", "cancel deadly deadly", "order deadly", "cancel deadly deadly"]
    assert undone.state == "undone"


def test_an_undo_that_certainly_failed_leaves_the_effect_as_it_was(effects: Effects) -> None:
    """Its result is returned again, and it may be undone later."""
    is_closed = [True]

    @effects.unkeyed(raises={ValueError: "conflict"}, requests=1)
    def unpay(to: str) -> str:
        if is_closed:
            raise ConnectionRefusedError
        return "unpaid"

    @effects.unkeyed(undo=unpay)
    def pay(to: str) -> str:
        return "paid"

    with effects.scope(key="1"):
        pay("ann")
        with pytest.raises(ConnectionRefusedError):
            effects.undo("s/pay/1")
        assert pay("ann") == "paid"
        is_closed.clear()
        assert effects.undo("s/pay/1").state == "undone"


def test_an_undo_of_which_nobody_knows_whether_it_was_applied_is_settled_first(effects: Effects) -> None:
    """Until then the result is not returned."""
    calls = list[str]()

    @effects.unkeyed
    def unpay(to: str) -> str:
        calls.append(to)
        raise OSError("reset")

    @effects.unkeyed(undo=unpay)
    def pay(to: str) -> str:
        return "paid"

    with effects.scope(key="1"):
        pay("ann")
        for _ in range(2):
            with pytest.raises(OutcomeUnknown) as unknown:
                effects.undo("s/pay/1")
        with pytest.raises(EffectUndone):
            pay("ann")
    effects.settle(unknown.value.key, "applied", result="unpaid")

    assert effects.undo("s/pay/1").state == "undone"
    assert calls == ["ann"]


def test_what_cannot_be_undone_is_refused(shop: Shop) -> None:
    """An unknown call, which is settled first; a function without an undo, as that which undoes; and one of another
    program, whose module has to be imported first.
    """
    unknown = shop.unknown()
    shop.order("table")
    undone = shop.effects.undo(shop.key("applied"))
    shop.order("chair")
    other = Effects(shop.store, session="x")
    cases = [
        (shop.effects, unknown, "not_applied", "settle it first"),
        (shop.effects, undone.undone_by or "", "no_undo", "_cancel has no undo="),
        (other, shop.key("applied"), "no_undo", "no function _order"),
    ]
    for effects, key, code, reason in cases:
        with pytest.raises(EffectRefused, match=reason) as refused:
            effects.undo(key)
        assert refused.value.code == code
    other.close()


async def test_an_async_call_is_undone_in_its_loop(effects: Effects) -> None:
    """`undo` says so; `undo_async` takes functions of either sort."""
    world = list[Any]()

    @effects.idempotent
    async def unpay(to: str, result: dict[str, int]) -> None:
        await asyncio.sleep(0)
        world.append((to, result))

    @effects.unkeyed(undo=unpay)
    async def pay(to: str) -> dict[str, int]:
        return {"id": 7}

    @effects.idempotent
    def uncall(who: str) -> None:
        world.append(who)

    @effects.unkeyed(undo=uncall)
    def call(who: str) -> str:
        return "called"

    await pay("ann")
    call("bob")
    first, second = effects.calls()
    with pytest.raises(TypeError, match=r"await effects\.undo_async"):
        effects.undo(first.key)
    states = [(await effects.undo_async(one.key)).state for one in (first, second)]

    assert states == ["undone", "undone"]
    assert world == [("ann", {"id": 7}), "bob"]


def test_an_undo_may_be_keyed(effects: Effects) -> None:
    """Its key is of its own."""
    keys = list[str]()

    @effects.keyed
    def refund(to: str, key: Key) -> str:
        keys.append(key)
        return "refunded"

    @effects.keyed(undo=refund)
    def pay(to: str, key: Key) -> str:
        keys.append(key)
        return "paid"

    pay("ann")
    effects.undo(keys[0])

    assert len(set(keys)) == 2


def undo_item(item: str) -> None:
    """An undo that no Effects knows."""


def undo_order(order: str) -> None:
    """An undo that needs what no call of `pay` has."""


def undo_client(client: str) -> None:
    """An undo that needs what is not recorded."""


MISTAKES: dict[str, tuple[Callable[[Effects], Callable[..., Any]], str]] = {
    "a function that is not declared": (lambda _: undo_item, "no function of the same Effects"),
    "of another Effects": (lambda _: Effects("other.db").idempotent(undo_item), "no function of the same Effects"),
    "a read": (lambda effects: effects.read(undo_item), "no function of the same Effects"),
    "an argument that is not there": (lambda effects: effects.idempotent(undo_order), "needs 'order'"),
    "an argument that is not recorded": (lambda effects: effects.idempotent(undo_client), "needs 'client'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_undo_that_cannot_work_is_refused_when_it_is_declared(effects: Effects, mistake: str) -> None:
    """Not on the day when it is needed."""
    made, reason = MISTAKES[mistake]

    def pay(item: str, client: str) -> str:
        return "paid"

    with pytest.raises(TypeError, match=reason):
        effects.unkeyed(undo=made(effects), ignore=["client"])(pay)
