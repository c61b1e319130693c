"""The tools of an older worker, before a deploy brings those of the trial: `worker.py --tools`, as `tools.py`."""

from pydantic import BaseModel

from replan import tool


class Hour(BaseModel):
    """An hour of the day."""

    hour: int


@tool.read
async def is_open(args: Hour) -> bool:
    """Whether the bank is open at an hour."""
    return 9 <= args.hour < 17
