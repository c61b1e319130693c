"""A tools file for long conversations: a house with many doors, whose plates fill pages."""

from pydantic import BaseModel

from replan import Refused, tool

GOAL = "find out the code of room 1, whatever else you read"
ROOMS = 30
LOCKED = range(4, ROOMS + 1, 2)
WORDS = 333
"""Of one plate: 2,000 characters."""


class Room(BaseModel):
    """Which room."""

    number: int


class Plate(BaseModel):
    """What is written at its door."""

    text: str


@tool.read
async def read_plate(args: Room) -> Plate:
    """Read what is written at a room's door."""
    if args.number in LOCKED:
        said = f"Room {args.number} is locked: {'lorem ' * 200}."
        raise Refused(said, code="conflict", observed={"key": "K-99"})
    return Plate(text=f"The code of room {args.number} is C-{args.number * 111}. {'lorem ' * WORDS}")
