"""The words for each ending of a task that has a code of its own."""

from collections.abc import Mapping
from typing import NamedTuple

from workflows.agent import MAX_FRUITLESS
from workflows.proposing import MAX_REJECTIONS
from workflows.task import TaskStatus


class Ended(NamedTuple):
    """An ending for people."""

    statuses: tuple[TaskStatus, ...]
    means: str
    do: str


ENDINGS: Mapping[str, Ended] = {
    "gave_up": Ended(
        (TaskStatus.FAILED,), "The planner found no way, and says why.", "say it in other words, or ask for less."
    ),
    "question": Ended(
        (TaskStatus.ESCALATED,),
        "The planner asks something; the question is in `question`.",
        "start the task again with the answer in its words.",
    ),
    "plan_refused": Ended(
        (TaskStatus.FAILED,),
        "The hand-written plan, or the arguments of `call`, have a mistake. Nothing was called.",
        "mend what the reason names.",
    ),
    "task_refused": Ended(
        (TaskStatus.FAILED,),
        "The worker has not got what the task needs, e.g. its folder of documents. Nothing was called.",
        "give another `--documents`, here or to the worker, or the kinds of `--allow` as the worker calls them.",
    ),
    "proposals_rejected": Ended(
        (TaskStatus.ESCALATED,),
        f"The planner made {1 + MAX_REJECTIONS} proposals in a row that cannot be run.",
        "allow the kind that the reason names (`--allow`), write the plan by hand (`--plan FILE`), or ask for less.",
    ),
    "no_progress": Ended(
        (TaskStatus.ESCALATED,),
        f"{MAX_FRUITLESS} new plans in a row finished no step.",
        "see what the world says (`explain`), and ask for something else.",
    ),
    "tool_calls": Ended((TaskStatus.OVER_BUDGET,), "The calls of tools are used up.", "give more with `--tool-calls`."),
    "replans": Ended((TaskStatus.OVER_BUDGET,), "The new plans are used up.", "give more with `--replans`."),
    "tokens": Ended(
        (TaskStatus.OVER_BUDGET,),
        "What is left of the tokens does not do for the next request to a model.",
        "give more with `--tokens`.",
    ),
    "usd": Ended(
        (TaskStatus.OVER_BUDGET,),
        "What is left of the money does not do for the next request to a model.",
        "give more with `--usd`.",
    ),
    "deadline": Ended((TaskStatus.OVER_BUDGET,), "The deadline passed.", "give more time with `--deadline`."),
    "cancelled": Ended(
        (TaskStatus.CANCELLED,),
        "Somebody cancelled it; what was finished stays, unless it was asked to undo it.",
        "start it again if need be.",
    ),
    "closed": Ended(
        (TaskStatus.FAILED, TaskStatus.CANCELLED),
        "It was closed from outside: terminated, or cancelled before it began.",
        "`temporal workflow show -w ID --detailed` says by whom.",
    ),
}
