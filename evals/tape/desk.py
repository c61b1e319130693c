"""The front desk: what its tools do with the state of one task, as pure functions.

Each task has a day, an item and a customer of its own, so that no task changes what another one sees.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from evals.tape.tape import Call, Tape, draw

HOURS = tuple(f"{hour:02}:00" for hour in range(9, 17))
ANOTHER = "another actor"
TAKEN_AT_FIRST = 0.4
"""The share of slots that are taken in the morning."""


class Booking(BaseModel):
    """A booking of the task's customer."""

    id: int
    at: str


class State(BaseModel):
    """What there is about one task."""

    slots: dict[str, str]
    """By hour, who has it; empty if nobody has."""
    first_choice: str
    price: int
    bookings: list[Booking] = []
    notes: list[str] = []

    @property
    def free(self) -> list[str]:
        return [at for at, holder in self.slots.items() if not holder]


class Reply(NamedTuple):
    """What a tool answers when nothing goes wrong with the call itself."""

    status: int
    body: Mapping[str, Any]


class DeskTool(NamedTuple):
    """A tool of the desk."""

    run: Callable[[State, Mapping[str, Any]], Reply]
    """Answers, and changes the state, only if its status is 200."""
    is_effect: bool = False


def opening(tape: Tape, task: str) -> State:
    """The state before the first call; two slots at least are free, of which the first choice is one."""
    drawn = {at: draw(tape.seed, "slot", task, at) for at in HOURS}
    least = sorted(drawn.values())[-2]
    slots = {at: "somebody" if value < min(TAKEN_AT_FIRST, least) else "" for at, value in drawn.items()}
    free = [at for at, holder in slots.items() if not holder]
    first = free[int(draw(tape.seed, "choice", task) * len(free))]
    return State(slots=slots, first_choice=first, price=1 + int(999 * draw(tape.seed, "price", task)))


def change(tape: Tape, call: Call, state: State) -> bool:
    """Let other actors act before a call; whether they did."""
    is_first = call.tool == "book_slot" and call.number == 1 and not state.slots[state.first_choice]
    if is_first and tape.is_taken(call.task):
        state.slots[state.first_choice] = ANOTHER
        return True
    return False


def find_slots(state: State, args: Mapping[str, Any]) -> Reply:
    """The free slots of the day."""
    return Reply(200, {"free": state.free})


def get_price(state: State, args: Mapping[str, Any]) -> Reply:
    """The price of the item now."""
    return Reply(200, {"price": state.price})


def get_list_price(state: State, args: Mapping[str, Any]) -> Reply:
    """The price of the item in an old list: another one."""
    return Reply(200, {"price": state.price + 1})


def book_slot(state: State, args: Mapping[str, Any]) -> Reply:
    """Book a slot for the customer, whatever the customer has already."""
    at = str(args.get("at"))
    if at not in state.slots:
        return Reply(422, {"detail": "there is no such hour", "free": state.free})
    if state.slots[at]:
        return Reply(409, {"detail": "the slot is taken", "free": state.free})
    state.slots[at] = str(args.get("name"))
    state.bookings.append(Booking(id=len(state.bookings) + 1, at=at))
    return Reply(200, {"id": len(state.bookings), "at": at})


def send_note(state: State, args: Mapping[str, Any]) -> Reply:
    """Send the customer a note."""
    state.notes.append(str(args.get("text")))
    return Reply(200, {"number": len(state.notes)})


def find_result(state: State, args: Mapping[str, Any]) -> Reply:
    """Nothing; the world answers with the first result of the call that had the key `args` names, if there is one."""
    return Reply(404, {"detail": "there is no such call"})  # an answer: see `Entry.is_absence`


TOOLS: Mapping[str, DeskTool] = {
    "find_result": DeskTool(find_result),
    "find_slots": DeskTool(find_slots),
    "get_price": DeskTool(get_price),
    "get_list_price": DeskTool(get_list_price),
    "book_slot": DeskTool(book_slot, is_effect=True),
    "send_note": DeskTool(send_note, is_effect=True),
}
