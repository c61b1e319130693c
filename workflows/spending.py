"""What models and tools may use: reserved before an activity, settled after it, with a reserve for one last answer.

The tokens of a request are not known in advance. Its input is estimated: the tokens that the provider counted last for
the conversation, and the bytes of what is new, at three bytes a token. Its output is limited to what the budget has
left. A lost reply counts as all that was reserved for it, because the provider bills it, too.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from pydantic import JsonValue

from workflows.budget import Limits
from workflows.catalogue import Catalogue, Price, ToolSpec
from workflows.faults import Code, Fault
from workflows.plan import Proposed, StepReturn, canonical
from workflows.progress import Progress

MAX_OUTPUT = 16_000
"""The most tokens of one reply of the planner: enough for fifty steps with long arguments, and for the reasoning before
them."""
MIN_OUTPUT = 1_000
"""If the budget allows a reply fewer tokens than this, no proposal is requested: the reply would often be cut off
before it is complete."""
MIN_LAST_OUTPUT = 256
"""If the budget allows the final answer fewer tokens than this, it is not requested; a short answer is better than no
answer."""
MAY_BE_BILLED = frozenset(
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
"""Faults after which a model may have answered, so that the request may be billed."""
LAST_OUTPUT = 2_000
"""Tokens that are kept back so that the model can still write a final answer, with its reasoning, when the budget is
used up."""
BYTES_PER_TOKEN = 3
"""Estimate for JSON and text in Latin letters, where models count three to four bytes per token."""
MILLION = 1_000_000

MAX_LOST_REPLIES = "may_lose"
"""The JSON key of `Situation.max_lost_replies`."""
Limit = Literal["tool_calls", "replans", "tokens", "usd", "deadline"]


class Cost(NamedTuple):
    """Tokens, and what they cost."""

    tokens: int
    usd: float = 0.0
    """US dollars; 0 if the price is not known."""


class Allowance(NamedTuple):
    """What is reserved for one request to the planner, until `settle_turn` gives it back."""

    max_output: int | None
    """Tokens that the reply may have; None without a limit."""
    reserved_tokens: int
    reserved_usd: float
    is_priced: bool
    max_lost_replies: int | None = None
    """How many lost replies the rest of the budget can pay, if each costs as much as is reserved for this request; None
    without a limit."""

    @property
    def told(self) -> dict[str, int]:
        """The limits that the planner's activity must keep, under the JSON keys of its input (a `Situation`)."""
        limits = {"max_output": self.max_output, MAX_LOST_REPLIES: self.max_lost_replies}
        return {name: value for name, value in limits.items() if value is not None}


def reserve_turn(
    progress: Progress, catalogue: Catalogue, new_bytes: int, *, is_last: bool = False, is_by_hand: bool = False
) -> Allowance | None:
    """Reserve tokens and money for the next request to the planner; return None if too little is left.

    `new_bytes` is the size of what the planner has not been told before. A part of the budget is kept back for the
    final answer of the task; only the request for this answer (`is_last`) may use it.
    """
    # A hand-written plan needs no model, and the offline planner uses no tokens.
    if is_by_hand or not catalogue.converses:
        return Allowance(None, 0, 0.0, is_priced=False)
    asked = _input_tokens(progress, catalogue, new_bytes)
    kept = Cost(0) if is_last else _last_answer_cost(progress, catalogue, new_bytes)
    output = min(float(MAX_OUTPUT), *_output_limits(progress, catalogue.price, asked, kept))
    if output < (MIN_LAST_OUTPUT if is_last else MIN_OUTPUT):
        return None
    reserved, limits = _request_cost(catalogue.price, asked, int(output)), progress.budget.limits
    progress.budget.hold(*reserved)
    is_limited = limits.tokens is not None or limits.usd is not None
    max_lost_replies = _how_many(_unreserved(progress, kept), reserved) if is_limited else None
    max_output = int(output) if is_limited else None
    return Allowance(max_output, *reserved, is_priced=catalogue.price is not None, max_lost_replies=max_lost_replies)


def settle_turn(progress: Progress, allowance: Allowance, used: Proposed | Fault, waited: Iterable[Fault] = ()) -> None:
    """Give back what was reserved for a request, and pay what it used; `used` is its reply or its fault.

    `waited` are the faults of earlier executions of the same activity; their replies may be lost, but billed.
    """
    budget, lost = progress.budget, sum(map(lost_replies, waited))
    budget.hold(-allowance.reserved_tokens, -allowance.reserved_usd)
    if isinstance(used, Fault):
        lost += lost_replies(used) or used.lost
    else:
        lost += used.lost
        budget.pay(used.model_calls, used.tokens, used.usd)
    if lost and allowance.reserved_tokens:
        usd = lost * allowance.reserved_usd if allowance.is_priced else None
        budget.pay(lost, lost * allowance.reserved_tokens, usd)


def lost_replies(fault: Fault) -> int:
    """How many requests to a model may be billed although no reply came."""
    return fault.attempt if _may_be_billed(fault) else 0


def turn_limit_reached(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> Literal["tokens", "usd"]:
    """The limit (tokens or money) that was too low when `reserve_turn` could not reserve a request."""
    kept = _last_answer_cost(progress, catalogue, new_bytes)
    tokens, usd = _output_limits(progress, catalogue.price, _input_tokens(progress, catalogue, new_bytes), kept)
    return "tokens" if tokens <= usd else "usd"


def reserve_step(progress: Progress, catalogue: Catalogue, spec: ToolSpec, used: int = 0) -> int:
    """Reserve attempts of one activity execution, and tokens and money for them.

    Returns how many attempts are reserved; 0 if too little is left.
    """
    budget, each = progress.budget, _attempt_cost(catalogue.price, spec)
    granted = budget.reserve(spec, used, _affordable_attempts(progress, catalogue, spec))
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
    """Give back the attempts that an activity execution did not use, and pay for the models that it used.

    Returns how many attempts it used. `came_back` is the result or fault of its final attempt, `earlier` are the known
    faults of the attempts before.
    """
    budget, each = progress.budget, _attempt_cost(catalogue.price, spec)
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


def cancelled_fault(spec: ToolSpec) -> Fault:
    """The fault that stands for a cancelled activity execution: one attempt, whose reply may be billed."""
    return Fault.of(Code.TIMEOUT, "It was cut off.", source=spec.kind)


def is_open(progress: Progress, catalogue: Catalogue, spec: ToolSpec, used: int = 0) -> bool:
    """Whether a waiting step should reserve again: an attempt is free, or no running activity can give any back."""
    fits = _affordable_attempts(progress, catalogue, spec) != 0
    return (fits or not progress.budget.held_tokens) and progress.budget.is_open(spec, used)


def should_wait_for_siblings(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> bool:
    """Whether a step should wait, because running steps have reserved what it lacks and may give it back."""
    budget, fits = progress.budget, _affordable_attempts(progress, catalogue, spec) != 0
    return (fits or budget.held_tokens > 0) and (budget.free > 0 or budget.reserved > 0)


def step_limit_reached(
    progress: Progress, catalogue: Catalogue, spec: ToolSpec
) -> Literal["tool_calls", "tokens", "usd"]:
    """The limit (tool calls, tokens or money) that was too low when `reserve_step` could not reserve an attempt."""
    if progress.budget.free <= 0:
        return "tool_calls"
    tokens, _ = _unreserved(progress, _last_answer_cost(progress, catalogue))
    return "usd" if tokens >= spec.tokens else "tokens"


def sufficient_limit(
    progress: Progress, catalogue: Catalogue, new_bytes: int, limit: Literal["tokens", "usd"]
) -> float:
    """A limit to recommend: enough for the request that could not be reserved, and a second request as large."""
    asked, spent = _input_tokens(progress, catalogue, new_bytes), progress.budget.spent
    next_one = _request_cost(catalogue.price, asked, MAX_OUTPUT)
    kept = _last_answer_cost(progress, catalogue, new_bytes)
    if limit == "tokens":
        return math.ceil((spent.tokens + 2 * next_one.tokens + kept.tokens) / 1000) * 1000
    return math.ceil(100 * ((spent.usd or 0) + 2 * next_one.usd + kept.usd)) / 100


def limit_message(limits: Limits, limit: Limit, at_least: float = 0) -> str:
    """The message that this limit ended the task. It recommends twice the limit, but at least `at_least`."""
    value = getattr(limits, limit)
    words: Mapping[Limit, str] = {
        "tool_calls": f"All {value} tool calls are used up" if value != 1 else "The one tool call is used up",
        "replans": f"All {value} replans are used up" if value != 1 else "The one replan is used up",
        "tokens": f"What is left of the {value} tokens is too little for the next request to a model",
        "usd": f"What is left of the {value} US dollars is too little for the next request to a model",
        "deadline": f"The deadline of {value or 0:g} s passed before the task was done",
    }
    return f"{words[limit]}: give more, e.g. --{limit.replace('_', '-')} {max(2 * value or 1, at_least):.12g}."


def with_call_tokens(spec: ToolSpec, args: JsonValue) -> ToolSpec:
    """A copy of the spec with the tokens that a call with these arguments may use.

    The spec is unchanged if the tool's model reads more than the arguments, or if the tool uses no model.
    """
    if not spec.tokens or spec.tokens_overhead is None:
        return spec
    read = math.ceil(len(canonical(args).encode()) / BYTES_PER_TOKEN)
    return spec.model_copy(update={"tokens": min(spec.tokens, spec.tokens_overhead + read)})


def _input_tokens(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> int:
    return (progress.context or catalogue.preamble) + math.ceil(new_bytes / BYTES_PER_TOKEN)


def _request_cost(price: Price | None, input: int, output: int) -> Cost:
    """The most that a request of this size can cost."""
    if price is None:
        return Cost(input + output)
    is_long = price.long_from is not None and input > price.long_from
    # all of the input may be new to the cache
    dearest = max(price.input, price.cache_read, price.cache_write)
    read = input * dearest * (price.long_input if is_long else 1)
    said = output * price.output * (price.long_output if is_long else 1)
    return Cost(input + output, (read + said) / MILLION)


def _attempt_cost(price: Price | None, spec: ToolSpec) -> Cost:
    """The most tokens and money that one attempt of a tool may use."""
    if spec.tokens_overhead is not None:
        said = min(spec.tokens_overhead, spec.tokens)
        return _request_cost(price, spec.tokens - said, said)
    # How many of the tokens are input is not known, so all have the higher of the two prices.
    return max(_request_cost(price, spec.tokens, 0), _request_cost(price, 0, spec.tokens))


def _how_many(left: tuple[float, float], each: Cost) -> int:
    """How often the cost `each` fits into the tokens and US dollars that are `left`, which may be infinite."""
    fits = min(left[0] / each.tokens if each.tokens else math.inf, left[1] / each.usd if each.usd else math.inf)
    return max(0, int(min(fits, MILLION)))  # infinity is no int


def _last_answer_cost(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> Cost:
    """What the final answer of the planner may cost; zero if the planner is no model."""
    if not catalogue.converses:
        return Cost(0)
    return _request_cost(catalogue.price, _input_tokens(progress, catalogue, new_bytes), LAST_OUTPUT)


def _unreserved(progress: Progress, kept: Cost) -> tuple[float, float]:
    """Tokens and US dollars that are neither spent, reserved nor `kept` back; infinite without a limit."""
    tokens, usd = progress.budget.free_tokens, progress.budget.free_usd
    return (
        math.inf if tokens is None else tokens - kept.tokens,
        math.inf if usd is None else usd - kept.usd,
    )


def _output_limits(progress: Progress, price: Price | None, input: int, kept: Cost) -> tuple[float, float]:
    """How many tokens a reply may have by the limit of tokens, and how many by the limit of money."""
    tokens, usd = _unreserved(progress, kept)
    if price is None and usd < math.inf:  # what has no price cannot keep a limit of money
        return tokens - input, 0.0
    asked = _request_cost(price, input, 0).usd
    each = _request_cost(price, input, 1).usd - asked
    if usd < asked:
        return tokens - input, 0.0
    return tokens - input, (usd - asked) / each if each else math.inf


def _affordable_attempts(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> int | None:
    """How many attempts of a tool the limits of tokens and money allow; None if there is no such limit."""
    if not spec.tokens:
        return None
    each = _attempt_cost(catalogue.price, spec)
    tokens, usd = _unreserved(progress, _last_answer_cost(progress, catalogue))
    if catalogue.price is None and usd < math.inf:
        return 0
    attempts = min(tokens / each.tokens, usd / each.usd if each.usd else math.inf)
    return None if attempts == math.inf else max(0, int(attempts))


def _accounted(faults: Iterable[Fault]) -> int:
    """How many attempts with these faults need no estimate of their cost: they used no model, or a known amount."""
    return sum(fault.attempt > 0 and (fault.model_use is not None or not _may_be_billed(fault)) for fault in faults)


def _may_be_billed(fault: Fault) -> bool:
    return fault.code in MAY_BE_BILLED and not fault.unsent
