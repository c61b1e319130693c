"""What models may use: reserved before each request, settled after it, one last answer kept back.

How many tokens a request will have is not known before it was made. Its input is estimated: the conversation as the
provider counted it last, and what is new at three bytes a token. Its output is limited by what the budget has left. An
answer that was lost counts as all that was reserved for it: the provider counts it, too.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from workflows.budget import Limits
from workflows.catalogue import Catalogue, ToolSpec
from workflows.cost import Cost, affordable, input_tokens, left, of_attempt, of_last_answer, of_request, room, times
from workflows.faults import Code, Fault
from workflows.plan import StepReturn
from workflows.progress import Progress

MAX_OUTPUT = 16_000
"""Tokens of one reply: fifty steps with long arguments, and what the model thinks before."""
MIN_OUTPUT = 1_000
"""Tokens; a reply that may have fewer would often be cut off before it is a proposal, and all its cost be lost."""
MIN_LAST_OUTPUT = 256
"""Tokens; a short last answer is better than none."""
ASKED = frozenset(
    {
        Code.TIMEOUT,
        Code.UNREACHABLE,
        Code.WORKER_SHUTDOWN,
        Code.WORKER_LOST,
        Code.UNEXPECTED_RESULT,
        Code.NO_RESULTS,
        Code.REFUSED,
    }
)
"""Faults after which a model may well have answered; with any other it was hardly asked, or refused to answer."""

Limit = Literal["tool_calls", "replans", "tokens", "usd", "deadline"]


class Allowance(NamedTuple):
    """What is reserved for one request to a model; give it back to `settle_turn`."""

    max_output: int | None
    """Tokens that the reply may have; None for as many as usual."""
    reserved_tokens: int
    reserved_usd: float
    is_priced: bool
    may_lose: int | None = None
    """Answers that may be lost on the way to one, each counted as all that is reserved; None without a limit."""

    @property
    def told(self) -> dict[str, int | None]:
        """What the planner's activity has to keep to."""
        return {"max_output": self.max_output, "may_lose": self.may_lose}


class Used(Protocol):
    """What an activity of the planner says of its use of models."""

    @property
    def model_calls(self) -> int:
        """Answers that it got."""

    @property
    def tokens(self) -> int:
        """Of all of them."""

    @property
    def usd(self) -> float | None:
        """US dollars; None where a price is not known."""

    @property
    def lost(self) -> int:
        """Answers that nobody got."""


def reserve_turn(
    progress: Progress, catalogue: Catalogue, new_bytes: int, *, is_last: bool = False
) -> Allowance | None:
    """Set aside what the next request to the planner may use; None where too little is left.

    `new_bytes` is what it is told that it was not told before. Only the last request may use what is kept back for it.
    """
    is_by_hand = progress.turn == 1 and progress.task.plan is not None
    if is_by_hand or not catalogue.converses:
        return Allowance(None, 0, 0.0, is_priced=False)
    asked = input_tokens(progress, catalogue, new_bytes)
    kept = Cost(0) if is_last else of_last_answer(progress, catalogue, new_bytes)
    output = min(float(MAX_OUTPUT), *room(progress, catalogue.price, asked, kept))
    if output < (MIN_LAST_OUTPUT if is_last else MIN_OUTPUT):
        return None
    reserved, limits = of_request(catalogue.price, asked, int(output)), progress.budget.limits
    progress.budget.hold(*reserved)
    is_limited = limits.tokens is not None or limits.usd is not None
    may_lose = times(left(progress, kept), reserved) if is_limited else None
    max_output = int(output) if is_limited else None
    return Allowance(max_output, *reserved, is_priced=catalogue.price is not None, may_lose=may_lose)


def settle_turn(
    progress: Progress, allowance: Allowance, used: Used | Fault | None, waited: Iterable[Fault] = ()
) -> None:
    """Give back what was reserved and count what was used; nothing where there was no request.

    `waited` are the faults of schedulings before the last one: a worker that stops takes an answer with it.
    """
    budget, lost = progress.budget, sum(one.attempt for one in waited if _may_be_asked(one))
    budget.hold(-allowance.reserved_tokens, -allowance.reserved_usd)
    if isinstance(used, Fault):
        lost += used.attempt if _may_be_asked(used) else used.lost
    elif used is not None:
        lost += used.lost
        budget.pay(used.model_calls, used.tokens, used.usd)
    if lost and allowance.reserved_tokens:
        usd = lost * allowance.reserved_usd if allowance.is_priced else None
        budget.pay(lost, lost * allowance.reserved_tokens, usd)


def short_of(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> Literal["tokens", "usd"]:
    """Which limit is in the way of a request that could not be reserved."""
    kept = of_last_answer(progress, catalogue, new_bytes)
    tokens, usd = room(progress, catalogue.price, input_tokens(progress, catalogue, new_bytes), kept)
    return "tokens" if tokens <= usd else "usd"


def reserve_step(progress: Progress, catalogue: Catalogue, spec: ToolSpec, used: int = 0) -> int:
    """Set aside the attempts of one scheduling, and what a model may use in each; 0 means that too little is left."""
    budget, each = progress.budget, of_attempt(catalogue.price, spec)
    granted = budget.reserve(spec, used, affordable(progress, catalogue, spec))
    budget.hold(granted * each.tokens, granted * each.usd)
    return granted


def settle_step(
    progress: Progress,
    catalogue: Catalogue,
    spec: ToolSpec,
    granted: int,
    came_back: StepReturn | Fault,
    earlier: Iterable[Fault] = (),
    used: int = 0,
) -> int:
    """Give back what a scheduling was granted and did not take, and return the attempts that it took.

    `earlier` are the faults of the attempts before the last one, as far as they are known.
    """
    budget, each = progress.budget, of_attempt(catalogue.price, spec)
    budget.hold(-granted * each.tokens, -granted * each.usd)
    if isinstance(came_back, Fault):
        faults = [*earlier, came_back]
        taken, lost = came_back.taken, came_back.attempt - _accounted(faults)
    else:
        faults = [*earlier]
        taken, lost = came_back.attempt, came_back.attempt - 1 - _accounted(faults)
        budget.pay(came_back.model_calls, came_back.tokens, came_back.usd)
    for use in filter(None, (fault.model_use for fault in faults)):
        budget.pay(use.calls, use.tokens, use.usd)
    budget.settle(spec, granted, taken, used)
    if each.tokens and lost > 0:
        budget.pay(lost, lost * each.tokens, lost * each.usd if catalogue.price else None)
    return taken


def cut_off(spec: ToolSpec) -> Fault:
    """What came of a scheduling that was cancelled: nobody knows how far its one attempt came."""
    return Fault.of(Code.TIMEOUT, "It was cut off.", source=spec.kind)


def is_open(progress: Progress, catalogue: Catalogue, spec: ToolSpec, used: int = 0) -> bool:
    """Whether a reservation would get something now, or nobody is left who could give something back."""
    fits = affordable(progress, catalogue, spec) != 0
    return (fits or not progress.budget.held_tokens) and progress.budget.is_open(spec, used)


def may_come_back(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> bool:
    """Whether siblings hold all that a step lacks, so that it is worth waiting for them."""
    budget, fits = progress.budget, affordable(progress, catalogue, spec) != 0
    return (fits or budget.held_tokens > 0) and (budget.free > 0 or budget.reserved > 0)


def step_short_of(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> Literal["tool_calls", "tokens", "usd"]:
    """Which limit is in the way of a step that could not start."""
    if progress.budget.free <= 0:
        return "tool_calls"
    tokens, _ = left(progress, of_last_answer(progress, catalogue))
    return "usd" if tokens >= spec.tokens else "tokens"


def enough(progress: Progress, catalogue: Catalogue, new_bytes: int, limit: Literal["tokens", "usd"]) -> float:
    """A limit that would have done for the request which could not be reserved, and for another one like it."""
    asked, spent = input_tokens(progress, catalogue, new_bytes), progress.budget.spent
    next_one = of_request(catalogue.price, asked, MAX_OUTPUT)
    kept = of_last_answer(progress, catalogue, new_bytes)
    if limit == "tokens":
        return math.ceil((spent.tokens + 2 * next_one.tokens + kept.tokens) / 1000) * 1000
    return math.ceil(100 * ((spent.usd or 0) + 2 * next_one.usd + kept.usd)) / 100


def used_up(limits: Limits, limit: Limit, at_least: float = 0) -> str:
    """Say which limit ended a task, and how it gets further: with twice as much, and `at_least` so much."""
    value = getattr(limits, limit)
    words: Mapping[Limit, str] = {
        "tool_calls": f"All {value} tool calls are used up" if value != 1 else "The one tool call is used up",
        "replans": f"All {value} replans are used up" if value != 1 else "The one replan is used up",
        "tokens": f"What is left of the {value} tokens does not do for the next request to a model",
        "usd": f"What is left of the {value} US dollars does not do for the next request to a model",
        "deadline": f"The deadline of {value or 0:g} s passed before the task was done",
    }
    return f"{words[limit]}: give more, e.g. --{limit.replace('_', '-')} {max(2 * value or 1, at_least):.12g}."


def _accounted(faults: Iterable[Fault]) -> int:
    """Attempts of which it is known what they used, or that it was nothing."""
    return sum(fault.attempt > 0 and (fault.model_use is not None or not _may_be_asked(fault)) for fault in faults)


def _may_be_asked(fault: Fault) -> bool:
    return fault.code in ASKED and not fault.unsent
