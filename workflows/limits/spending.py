"""What models and tools may use, with a reserve for one last answer.

Runs before each call of a tool or of the planner, to reserve what it may use, and after it, to settle what it used.

The tokens of a request are not known in advance. Its input is estimated: the tokens that the provider counted last for
the conversation, and the bytes of what is new, at three bytes a token. Its output is limited to what the budget has
left. A lost reply counts as spent, because the provider bills it, too: with the maximum that its worker reports, else
with all that was reserved for it.
"""

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from workflows.account.progress import Progress
from workflows.commands import option_of
from workflows.faults.fault import Code, Fault, ModelUse, parse_faults, parse_found
from workflows.json_values import canonical
from workflows.limits.budget import BYTES_PER_TOKEN, LIMITS, Limits, Spent
from workflows.plans.catalogue import Catalogue, Price, ToolSpec
from workflows.plans.proposal import Proposed, StepReturn

MAX_OUTPUT = 16_000
"""The most tokens of a planner's reply: enough for fifty steps with long arguments, and for reasoning before."""
MIN_OUTPUT = 1_000
"""With fewer tokens for the reply, no proposal is requested: the reply would often be cut off."""
MIN_LAST_OUTPUT = 256
"""With fewer tokens for the final answer, it is not requested; a short answer is better than none."""
MAY_BE_BILLED = frozenset(
    {
        Code.TIMEOUT,
        Code.UNREACHABLE,
        Code.WORKER_SHUTDOWN,
        Code.WORKER_LOST,
        Code.INTERRUPTED,
        Code.UNEXPECTED_RESULT,
        Code.NO_RESULTS,
        Code.REFUSED,
    }
)
"""Faults after which a model may have answered, so that the request may be billed."""
MAX_NEWS = 1_000_000
"""The most tokens for which `room_for_news` returns room; more than the results of any plan."""
LAST_OUTPUT = 2_000
"""Tokens that are kept back for a final answer, with its reasoning, when the budget is used up."""
MILLION = 1_000_000

MAX_LOST_REPLIES = "max_lost_replies"
"""The JSON key of `Situation.max_lost_replies`."""
FailedExecution = tuple[Fault, Sequence[Fault]]
"""The fault of the last attempt of an activity execution, and the faults of the attempts before, as far as known."""
Limit = str
"""The name of a limit, as in LIMITS."""


class TokenCost(NamedTuple):
    """Tokens, and what they cost."""

    tokens: int
    usd: float = 0.0
    """US dollars; 0 if the price is not known."""


class Loss(NamedTuple):
    """An attempt whose reply was lost, although the provider may bill it."""

    model: str = ""
    """The model that was asked; empty if it is unknown."""
    use: ModelUse | None = None
    """The most that the attempt can have used; None if its worker did not report it."""


class Allowance(NamedTuple):
    """What is reserved for one request to the planner, until `settle_turn` gives it back."""

    max_output: int | None
    """Tokens that the reply may have; None without a limit."""
    reserved_tokens: int
    reserved_usd: float
    max_lost_replies: int | None = None
    """How many lost replies the rest of the budget can pay, each as dear as this request; None without a limit."""
    output: int = 0
    """Tokens of `reserved_tokens` that are for the reply."""

    @property
    def planner_limits(self) -> dict[str, int]:
        """The limits that the planner's activity must keep, under the JSON keys of its input (a `Situation`)."""
        limits = {"max_output": self.max_output, MAX_LOST_REPLIES: self.max_lost_replies}
        return {name: value for name, value in limits.items() if value is not None}


def reserve_turn(
    progress: Progress,
    catalogue: Catalogue,
    new_bytes: int,
    *,
    is_last: bool = False,
    is_by_hand: bool = False,
    last_output: int = LAST_OUTPUT,
) -> Allowance | None:
    """Reserve tokens and money for the next request to the planner; return None if too little is left.

    `new_bytes` is the size of what the planner has not been told before. `is_by_hand`: a person wrote the plan, so
    nothing is reserved. A part of the budget is kept back for the final answer of the task, which may have
    `last_output` tokens; only the request for this answer (`is_last`) may use that part. If `last_output` is 0, nothing
    is kept back.
    """
    last_output = 0 if is_last else last_output
    # A hand-written plan needs no model, and the offline planner uses no tokens.
    if is_by_hand or not catalogue.converses:
        return Allowance(None, 0, 0.0)
    input_tokens = _input_tokens(progress, catalogue, new_bytes)
    # A longer reply never fits where a shorter one does not.
    output = bisect(
        range(1, _max_output(progress, catalogue) + 1),
        0,
        key=lambda reply_tokens: not all(_fits(progress, catalogue, input_tokens, reply_tokens, last_output)),
    )
    if output < (MIN_LAST_OUTPUT if is_last else MIN_OUTPUT):
        return None
    reserved, limits = request_cost(catalogue.price, input_tokens, output), progress.budget.limits
    progress.budget.hold(*reserved)
    is_limited = limits.tokens is not None or limits.usd is not None
    kept = _last_answer_cost(catalogue, input_tokens, output, last_output)
    max_lost_replies = _how_many_fit(_unreserved_tokens_and_usd(progress, kept), reserved) if is_limited else None
    max_output = output if is_limited else progress.task.reply_tokens
    return Allowance(max_output, *reserved, max_lost_replies, output)


def settle_turn(
    progress: Progress,
    catalogue: Catalogue,
    allowance: Allowance,
    used: Proposed | Fault,
    waited: Iterable[FailedExecution] = (),
    earlier: Sequence[Fault] = (),
) -> Spent:
    """Give back the allowance of a request to the planner, and return what the request used.

    `used` is of the final execution, `earlier` are the faults before it, `waited` are the failed executions before.
    """
    spent = Spent()
    progress.budget.hold(-allowance.reserved_tokens, -allowance.reserved_usd)
    failed = [*waited, (used, earlier)] if isinstance(used, Fault) else [*waited]
    lost = [loss for fault, before in failed for loss in lost_replies(fault, before)]
    known = [fault.model_use for last, before in failed for fault in (*before, last) if fault.model_use]
    if isinstance(used, Proposed):
        spent.pay(used.model_calls, used.tokens, used.usd, used.estimated)
        if found := parse_found(used.earlier):
            _leave_out(found, known, lost)
        earlier_faults = parse_faults(used.earlier)
        reported = [Loss(fault.lost_model, fault.lost_use) for fault in earlier_faults if fault.lost_model]
        unreported = [Loss(model) for model in used.lost_models[len(reported) :]]
        lost += [*reported, *unreported, *[Loss()] * used.lost][: used.lost]
    for use in known:
        spent.pay(use.calls, use.tokens, use.usd, use.estimated)
    for loss in lost if allowance.reserved_tokens else ():
        price = catalogue.prices.get(loss.model, catalogue.price)
        _pay_lost(
            spent, loss, price, request_cost(price, allowance.reserved_tokens - allowance.output, allowance.output)
        )
    return spent


def _leave_out(found: ModelUse, known: list[ModelUse], lost: list[Loss]) -> None:
    """Remove the attempt that recorded the proposal, and used `found`: the proposal itself reports that use."""
    if found in known:  # it told its use, and then a fault that came after the recording
        known.remove(found)
    elif Loss() in lost:
        lost.remove(Loss())


def _pay_lost(spent: Spent, loss: Loss, price: Price | None, most: TokenCost) -> None:
    """Pay the most that an attempt can have used: what its worker reported, else `most`, which was reserved for it."""
    # Not limited to the reservation, whose input was estimated, while the worker may have the server's count of it.
    use = loss.use or ModelUse(calls=1, tokens=most.tokens, usd=most.usd, estimated=1)
    usd = most.usd if use.usd is None else use.usd
    spent.pay(use.calls, use.tokens, usd if price else None, use.estimated)


def turn_limit_reached(
    progress: Progress, catalogue: Catalogue, new_bytes: int = 0, *, is_last: bool = False, last_output: int = 0
) -> Literal["tokens", "usd"]:
    """The limit that was too low when `reserve_turn`, with the same parameters, could not reserve a request."""
    output = MIN_LAST_OUTPUT if is_last else MIN_OUTPUT
    input_tokens = _input_tokens(progress, catalogue, new_bytes)
    return "usd" if _fits(progress, catalogue, input_tokens, output, last_output)[0] else "tokens"


def turn_limit_message(
    progress: Progress,
    catalogue: Catalogue,
    new_bytes: int,
    limit: Literal["tokens", "usd"],
    *,
    is_last: bool = False,
    last_output: int = 0,
) -> str:
    """The message that `limit` is too low: what is left of it, what the shortest usable request needs, what to give.

    The recommended limit is enough for two requests of usual length. The parameters are those of `reserve_turn`.
    """
    input_tokens, spent, price = _input_tokens(progress, catalogue, new_bytes), progress.budget.spent, catalogue.price
    output = MIN_LAST_OUTPUT if is_last else MIN_OUTPUT
    kept = _last_answer_cost(catalogue, input_tokens, output, last_output)
    needs, left = request_cost(price, input_tokens, output), _unreserved_tokens_and_usd(progress, kept)
    longest = _max_output(progress, catalogue)
    usual, last = request_cost(price, input_tokens, longest), _last_answer_cost(catalogue, input_tokens, longest)
    if limit == "tokens":
        need, rest = (f"{max(0, number):.0f}" for number in (needs.tokens, left[0]))
        enough: float = math.ceil((spent.tokens + 2 * usual.tokens + last.tokens) / 1000) * 1000
    else:
        need, rest = (f"{max(0, number):.4g}" for number in (needs.usd, left[1]))
        enough = math.ceil(100 * ((spent.usd or 0) + 2 * usual.usd + last.usd)) / 100
    beside = " beside the last answer" if kept.tokens else ""
    missing = f" ({rest} left{beside}; {input_tokens} tokens of input and a reply of {output} need up to {need})"
    return limit_message(progress.budget.limits, limit, enough, missing)


def room_for_news(progress: Progress, catalogue: Catalogue) -> int:
    """How many bytes the request for the final answer may add to the conversation."""
    context = _input_tokens(progress, catalogue)
    tokens = bisect(
        range(1, MAX_NEWS + 1), 0, key=lambda news: not all(_fits(progress, catalogue, context + news, LAST_OUTPUT, 0))
    )
    return tokens * BYTES_PER_TOKEN


def reserve_step(progress: Progress, catalogue: Catalogue, spec: ToolSpec, used: int = 0) -> int:
    """Reserve an execution's attempts, their tokens and money, after `used` attempts; return how many."""
    budget, each = progress.budget, _attempt_cost(catalogue.step_price, spec)
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
) -> Spent:
    """Give back what was reserved for an execution, and return what it used; its `tool_calls` are those that count.

    `granted` attempts were reserved for it, after `used` attempts of the step. `came_back` is of its final attempt,
    `earlier` are the known faults of the attempts before.
    """
    budget, each = progress.budget, _attempt_cost(catalogue.step_price, spec)
    budget.hold(-granted * each.tokens, -granted * each.usd)
    budget.release(spec, granted, used)
    if isinstance(came_back, Fault):
        faults = [*earlier, came_back]
        spent, failed = Spent(tool_calls=came_back.taken), came_back.attempt
    else:
        faults = [*earlier]
        spent, failed = Spent(tool_calls=came_back.attempt), came_back.attempt - 1
        spent.pay(came_back.model_calls, came_back.tokens, came_back.usd, came_back.estimated)
    for use in filter(None, (fault.model_use for fault in faults)):
        spent.pay(use.calls, use.tokens, use.usd, use.estimated)
    reported = [fault for fault in faults if fault.attempt > 0]
    losses = [Loss(fault.lost_model, fault.lost_use) for fault in reported if _has_lost_reply(fault)]
    lost = max(0, failed - len(reported) + len(losses))
    for loss in [*losses, *[Loss()] * lost][:lost] if each.tokens else ():
        price = catalogue.prices.get(loss.model, catalogue.step_price)
        _pay_lost(spent, loss, price, _attempt_cost(price, spec))
    return spent


def cancelled_fault(spec: ToolSpec, attempt: int = 1) -> Fault:
    """The fault of a cancelled execution; a model's reply may be billed, unless no attempt began (`attempt` is 0)."""
    return Fault.of(Code.TIMEOUT, "It was cut off.", source=spec.kind, attempt=attempt)


def is_open(progress: Progress, catalogue: Catalogue, spec: ToolSpec, used: int = 0) -> bool:
    """As `Budget.is_open`, and the same for the tokens and the money of an attempt."""
    fits = _affordable_attempts(progress, catalogue, spec) > 0
    return (fits or not progress.budget.held_tokens) and progress.budget.is_open(spec, used)


def should_wait_for_siblings(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> bool:
    """Whether a step should wait, because running steps have reserved what it lacks and may give it back."""
    budget, fits = progress.budget, _affordable_attempts(progress, catalogue, spec) > 0
    return (fits or budget.held_tokens > 0) and (budget.free > 0 or budget.reserved > 0)


def step_limit_reached(
    progress: Progress, catalogue: Catalogue, spec: ToolSpec
) -> Literal["tool_calls", "tokens", "usd"]:
    """The limit (tool calls, tokens or money) that was too low when `reserve_step` could not reserve an attempt."""
    if progress.budget.free <= 0:
        return "tool_calls"
    tokens, _ = _unreserved_tokens_and_usd(progress, _last_answer_cost(catalogue, _input_tokens(progress, catalogue)))
    return "usd" if tokens >= spec.tokens else "tokens"


def limit_message(limits: Limits, limit: Limit, at_least: float = 0, missing: str = "") -> str:
    """The message that too little is left of a limit; it advises `at_least` or more. `missing` follows its clause."""
    value = getattr(limits, limit)
    advice = f"{option_of(limit)} {max(2 * value or 1, at_least):.12g}"
    return f"{LIMITS[limit].reached(value)}{missing}: give more, e.g. {advice}."


def with_call_tokens(spec: ToolSpec, args: JsonValue) -> ToolSpec:
    """The spec with the tokens that a call with these arguments may use, if its model reads only the arguments."""
    if not spec.tokens or spec.tokens_overhead is None:
        return spec
    read = math.ceil(len(canonical(args).encode()) / BYTES_PER_TOKEN)
    return spec.model_copy(update={"tokens": min(spec.tokens, spec.tokens_overhead + read)})


def _input_tokens(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> int:
    return (progress.context or catalogue.preamble) + math.ceil(new_bytes / BYTES_PER_TOKEN)


def request_cost(price: Price | None, input: int, output: int) -> TokenCost:
    """The most that a request with so many `input` and `output` tokens can cost; without a price 0 US dollars."""
    if price is None:
        return TokenCost(input + output)
    is_long = price.long_from is not None and input > price.long_from
    # all of the input may be new to the cache
    dearest = max(price.input, price.cache_read, price.cache_write)
    read = input * dearest * (price.long_input if is_long else 1)
    output_usd = output * price.output * (price.long_output if is_long else 1)
    return TokenCost(input + output, (read + output_usd) / MILLION)


def _attempt_cost(price: Price | None, spec: ToolSpec) -> TokenCost:
    if spec.tokens_overhead is not None:
        output_tokens = min(spec.tokens_overhead, spec.tokens)
        return request_cost(price, spec.tokens - output_tokens, output_tokens)
    # How many of the tokens are input is not known, so all have the higher of the two prices.
    return max(request_cost(price, spec.tokens, 0), request_cost(price, 0, spec.tokens))


def _how_many_fit(left: tuple[float, float], each: TokenCost) -> int:
    fits = min(left[0] / each.tokens if each.tokens else math.inf, left[1] / each.usd if each.usd else math.inf)
    return max(0, int(min(fits, MILLION)))  # infinity is no int


def _max_output(progress: Progress, catalogue: Catalogue) -> int:
    return progress.task.reply_tokens or catalogue.longest_reply or MAX_OUTPUT


def _last_answer_cost(
    catalogue: Catalogue, input_tokens: int, output_tokens: int = 0, last_output: int = LAST_OUTPUT
) -> TokenCost:
    """The most that a last answer of `last_output` tokens costs after a request; 0 without a model or such an answer.

    The request has `input_tokens` and a reply of `output_tokens`.
    """
    if not catalogue.converses or not last_output:
        return TokenCost(0)
    new = catalogue.last_news if last_output == LAST_OUTPUT else min(catalogue.last_news, last_output)
    news = output_tokens + new if catalogue.last_news else 0
    return request_cost(catalogue.price, input_tokens + news, last_output)


def _unreserved_tokens_and_usd(progress: Progress, kept: TokenCost) -> tuple[float, float]:
    tokens, usd = progress.budget.free_tokens, progress.budget.free_usd
    return (math.inf if tokens is None else tokens - kept.tokens, math.inf if usd is None else usd - kept.usd)


def _fits(
    progress: Progress, catalogue: Catalogue, input_tokens: int, output_tokens: int, last_output: int
) -> tuple[bool, bool]:
    """Whether enough tokens, and whether enough money, are left for a request of this size and the last answer."""
    kept = _last_answer_cost(catalogue, input_tokens, output_tokens, last_output)
    tokens, usd = _unreserved_tokens_and_usd(progress, kept)
    cost = request_cost(catalogue.price, input_tokens, output_tokens)
    is_priced = catalogue.price is not None or usd == math.inf  # what has no price cannot keep a limit of money
    return cost.tokens <= tokens, is_priced and cost.usd <= usd


def _affordable_attempts(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> int:
    """How many attempts of a tool the limits of tokens and money allow, at most a million."""
    left = _unreserved_tokens_and_usd(progress, _last_answer_cost(catalogue, _input_tokens(progress, catalogue)))
    if spec.tokens and catalogue.step_price is None and left[1] < math.inf:
        return 0
    return _how_many_fit(left, _attempt_cost(catalogue.step_price, spec))


def lost_replies(fault: Fault, earlier: Sequence[Fault]) -> list[Loss]:
    """The replies lost by a planner's execution that ended with `fault`, after the known faults `earlier`."""
    reported = [report for report in (*earlier, fault) if report.lost_model or report.model_use is not None]
    if not reported:  # its worker died, or is older and does not report what an attempt used
        return [Loss()] * (fault.attempt if may_be_billed(fault) else fault.lost)
    losses = [Loss(report.lost_model, report.lost_use) for report in reported if _has_lost_reply(report)]
    return losses + [Loss()] * (fault.attempt - len(reported))


def paid_replies(fault: Fault, earlier: Sequence[Fault]) -> int:
    """How many attempts of a failed execution of a planner's activity used a known number of tokens above 0."""
    return sum(report.model_use is not None and report.model_use.tokens > 0 for report in (*earlier, fault))


def _has_lost_reply(fault: Fault) -> bool:
    return fault.model_use is None and (bool(fault.lost_model) or may_be_billed(fault))


def may_be_billed(fault: Fault) -> bool:
    """Whether a model may have answered before this fault, so that the provider bills the request."""
    return fault.code in MAY_BE_BILLED and not fault.unsent
