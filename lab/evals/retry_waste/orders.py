"""The orders that every arm carries out, and the one mind that plans for all arms."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from evals.tape import desk
from evals.tape.tape import Tape, draw

BAD_KINDS = ("web_browser", "sql_query", "python_repl")
SHARES = (0.35, 0.7)
"""Below the first, an order wants a price; below the second, a slot; else both."""


class Order(BaseModel, frozen=True):
    """What a customer asks for; each also wants a note when it is done."""

    task: str
    seed: int
    wants_price: bool
    wants_slot: bool
    choice: str
    """The hour that the customer would like; another one will do."""

    @property
    def customer(self) -> str:
        return f"customer of {self.task}"

    @property
    def item(self) -> str:
        return f"item of {self.task}"

    @property
    def text(self) -> str:
        """The task as a user writes it."""
        wishes = [f"look up the price of {self.item!r}"] if self.wants_price else []
        wishes += [f"book {self.choice}, or another free hour, for {self.customer!r}"] if self.wants_slot else []
        return f"[{self.task}] {'; '.join(wishes)}; then send a note to {self.customer!r}."

    def note(self, slot: str) -> str:
        """What the note says."""
        return f"booked {slot}" if self.wants_slot else "the price was looked up"


def orders(tape: Tape, number: int) -> list[Order]:
    """The orders of a seed."""
    return [_order(tape, f"order-{index}") for index in range(number)]


def _order(tape: Tape, task: str) -> Order:
    drawn = draw(tape.seed, "order", task)
    return Order(
        task=task,
        seed=tape.seed,
        wants_price=not SHARES[0] <= drawn < SHARES[1],
        wants_slot=drawn >= SHARES[0],
        choice=desk.opening(tape, task).first_choice,
    )


class Wanted(NamedTuple):
    """A call that the mind wants to be made."""

    id: str
    """What it is for: `price`, `book` or `note`; `look` for a read of the free hours."""
    tool: str
    args: Mapping[str, Any]


class Knowledge(BaseModel):
    """What the mind knows of an order: only what it was told in the conversation."""

    done: tuple[str, ...] = ()
    """The ids of calls that succeeded."""
    slot: str = ""
    """The hour that is booked, or that is tried next."""
    refused: tuple[str, ...] = ()
    """Hours that cannot be booked."""
    free: tuple[str, ...] | None = None
    """The free hours that it was told of last; None if it was told of none."""
    hopeless: tuple[str, ...] = ()
    """The ids of calls that can never succeed, as the mind sees it."""

    def chosen(self, order: Order) -> str:
        """The hour to book; empty if none is left that it knows of."""
        if self.slot:
            return self.slot
        if order.choice not in self.refused:
            return order.choice
        return next((at for at in self.free or () if at not in self.refused), "")

    @property
    def must_give_up(self) -> bool:
        return bool({"book", "note", "list"} & {*self.hopeless})


def remaining(order: Order, known: Knowledge) -> Iterator[Wanted]:
    """The calls that are left, in their order; none if the order is done."""
    if order.wants_price and "price" not in known.done:
        tool = "get_list_price" if "price" in known.hopeless else "get_price"
        yield Wanted("price", tool, {"item": order.item})
    at = known.chosen(order)
    if order.wants_slot and "book" not in known.done:
        if not at:
            yield Wanted("look", "find_slots", {"name": order.customer})
            return
        yield Wanted("book", "book_slot", {"at": at, "name": order.customer})
    if "note" not in known.done:
        yield Wanted("note", "send_note", {"name": order.customer, "text": order.note(at)})


def bad_kind(order: Order, share: float, turn: int) -> str | None:
    """The kind that the model makes up in a turn; None in all other turns. It is the same in every arm."""
    key = (order.seed, "hallucination", order.task, turn)
    if draw(*key) >= share:
        return None
    return BAD_KINDS[int(draw(*key, "which") * len(BAD_KINDS))]


def with_bad_kind(wanted: Sequence[Wanted], bad: str | None) -> list[Wanted]:
    """The calls as the model writes them: the first has the kind that it made up."""
    return [call._replace(tool=bad) if bad and not index else call for index, call in enumerate(wanted)]


_TASK = re.compile(r"\[(order-\d+)\]")


def task_in(text: str) -> str:
    """The order that a conversation is about."""
    found = _TASK.search(text)
    if found is None:
        raise LookupError("The conversation names no order.")
    return found[1]
