"""The front desk: what its tools do with the state of one task, as pure functions.

Each task has a day, an item and a customer of its own, so that no task changes what another one sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from evals.tape.tape import Call, Point, Tape, Trouble, draw
from evals.tape.world import Reply, WorldTool

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


TOOLS: Mapping[str, WorldTool[State]] = {
    "find_result": WorldTool(find_result),
    "find_slots": WorldTool(find_slots),
    "get_price": WorldTool(get_price),
    "get_list_price": WorldTool(get_list_price),
    "book_slot": WorldTool(book_slot, is_effect=True),
    "send_note": WorldTool(send_note, is_effect=True),
}


@dataclass(frozen=True)
class DeskPlot:
    """The desk on a tape."""

    tape: Tape
    state = State

    def opening(self, task: str) -> State:
        return opening(self.tape, task)

    def change(self, call: Call, state: State) -> bool:
        return change(self.tape, call, state)

    def tool(self, name: str, state: State) -> WorldTool[State] | None:
        return TOOLS.get(name)

    def trouble(self, call: Call, *, is_effect: bool) -> Trouble:
        return self.tape.trouble(call, is_effect=is_effect)

    def point(self, call: Call) -> Point:
        return self.tape.point(call)

    def retry_after(self, call: Call) -> float:
        return self.tape.retry_after(call)

    def lies(self, call: Call) -> bool:
        return self.tape.lies(call)
