"""The tool of replan_tasks_arm.py."""

import steps
from pydantic import BaseModel

from replan import Unreachable, tool


class Args(BaseModel):
    """Which step it is."""

    task: str
    number: int


@tool.idempotent
async def act(args: Args) -> Args:
    """Make a step."""
    try:
        await steps.step(args.task, args.number)
    except steps.Unavailable as error:
        raise Unreachable(str(error)) from error
    return args
