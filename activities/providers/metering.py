"""Asks a model with a timeout and a log line, and counts what one attempt used: requests, tokens, dollars."""

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import structlog

from activities import counting, deadline
from activities.borders import classify
from activities.errors import NeedsPerson
from activities.providers.billing import Bill, billing, end_of
from activities.providers.chat_span import chat_span
from activities.providers.messages import (
    UNSEEN_OUTPUT,
    End,
    LanguageModel,
    NoReply,
    Reply,
    Request,
    UnreadableReply,
    UnusableResponse,
    Usage,
    estimate_input,
)
from activities.providers.prices import cost_in_usd
from workflows.account.metrics import LOST_REPLIES, MICRO, MODEL_CALLS, MODEL_COST, MODEL_TOKENS, Sample
from workflows.faults.fault import ModelUse
from workflows.limits.budget import BYTES_PER_TOKEN
from workflows.limits.spending import MAX_OUTPUT, request_cost
from workflows.plans.catalogue import Price

log = structlog.get_logger("replan.model")

Role = Literal["planner", "compaction", "step"]
"""The purpose of a request to a model."""
MAX_UNREADABLE = 2
"""How many unreadable responses that may be billed a model may give, in this and earlier attempts; then no more
requests are sent to the model."""
UNREADABLE = "{name} may bill a response without a usable reply, which came twice: {remedy}, or use another model."
CHECK_ADDRESS, TRY_LATER = "check what answers at its address", "it failed, so try again later"
"""The remedies for a response that has not the shape of a reply, and for a response that reports a failure."""
TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")
IDENTIFIERS = {
    "status_code": "status_code",
    "type": "provider_type",
    "error_code": "provider_code",
    "code": "provider_code",
    "request_id": "request_id",
}
"""Attributes of the SDKs' exceptions, with the fields of the log line that they become."""
IDENTIFIER = re.compile(r"[A-Za-z0-9_]{1,60}")


async def ask_model(model: LanguageModel, request: Request, patience: float | None, role: Role) -> Reply:
    """Send one request, and wait for the reply at most `patience` seconds; with None, only the SDK's timeout counts.

    Raises:
        NoReply: there was no reply in time.
        Exception: any exception of the provider's SDK; the tables of `activities.borders` translate it to a Fault.
    """
    about = {"role": role, "model": model.name}
    try:
        # The SDKs' own timeouts start again with each byte.
        async with asyncio.timeout(patience):
            reply = await model.reply(request)
    except Exception as error:
        log.warning(
            "model_failed", **about, code=classify(error).code.value, error=type(error).__name__, **_log_fields(error)
        )
        if isinstance(error, TimeoutError):
            within = "" if patience is None else f" within {round(patience, 1):g} s"
            raise NoReply(f"{model.name} gave no answer{within}.", End.NO_ANSWER, code="timeout") from None
        raise
    log.info("model", **about, stop=reply.stop.value, **asdict(reply.usage))
    return reply


def _log_fields(error: Exception) -> dict[str, str]:
    # Not its message, which may quote keys and prompts.
    found = ((name, str(getattr(error, attribute, None) or "")) for attribute, name in IDENTIFIERS.items())
    return {name: value for name, value in found if IDENTIFIER.fullmatch(value)}


@dataclass
class Meter:
    """What the model requests of one attempt used: tokens and US dollars."""

    replies: list[ModelUse] = field(default_factory=list)
    wasted: list[ModelUse] = field(default_factory=list)
    """What each request used that brought no reply: its response could not be read, or its form was rejected."""
    unreadable: list[str] = field(default_factory=list)
    """For each response of this attempt that is or may be billed but could not be used, the name of the model."""
    unreadable_before: Sequence[str] = ()
    """For each such response of earlier attempts, the name of the model."""
    lost: list["LostReply"] = field(default_factory=list)
    """Requests that may be billed although no reply came."""

    arriving: list["Arriving"] = field(default_factory=list)
    """The replies that are being received."""

    @property
    def tokens_arriving(self) -> int | None:
        """The estimated tokens of the replies that are being received; None if no request is running."""
        return sum(reply.tokens for reply in self.arriving) if self.arriving else None

    @property
    def known_use(self) -> ModelUse | None:
        """What all requests of the attempt used; None if a reply was lost, because its cost is unknown."""
        return None if self.lost else total(self.use)

    @property
    def use(self) -> list[ModelUse]:
        """What each request used; for a request whose reply was lost, the most that it may have used."""
        return [*self.replies, *self.wasted, *(lost.use for lost in self.lost)]

    def was_unreadable_twice(self, model: str) -> bool:
        """Whether a model gave so many unusable responses (MAX_UNREADABLE) that no request is sent to it any more."""
        return [*self.unreadable_before, *self.unreadable].count(model) >= MAX_UNREADABLE


@dataclass(eq=False)
class LostReply:
    """A request that may be billed although no reply came."""

    model: str
    use: ModelUse
    """The most that the request can have used."""


def total(uses: Iterable[ModelUse]) -> ModelUse:
    """The sum of several uses; its `usd` is None if a use has an unknown cost, or if no model was asked."""
    parts = list(uses)
    costs = [use.usd for use in parts if use.calls]
    return ModelUse(
        calls=sum(use.calls for use in parts),
        tokens=sum(use.tokens for use in parts),
        usd=sum(cost for cost in costs if cost is not None) if costs and None not in costs else None,
        estimated=sum(use.estimated for use in parts),
    )


@dataclass(eq=False)
class Arriving:
    """A reply that is being received; a part of it may have come."""

    written: int = 0
    """Bytes of text, reasoning and arguments that have come."""
    counted: Usage = field(default_factory=Usage)
    """What the server has counted so far."""
    has_begun: bool = False
    """Whether an event of the reply has come."""
    shows_all: bool = False
    """Whether the server sends all that the model writes, so that no reasoning is hidden."""
    failure: Usage | None = None
    """The tokens that the server counted for a response that reports a failure; None if there was none."""
    rejected: int = 0
    """How many earlier requests for this reply the provider rejected because of their form; it gets another form."""
    words: Callable[[], tuple[int, str]] = lambda: (0, "")
    """Returns the text for people so far, which is untrusted: the number of its characters, and its end. Any thread may
    call it."""
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def tokens(self) -> int:
        """Estimated tokens of what has come."""
        return self.written // BYTES_PER_TOKEN


_ARRIVING: ContextVar[Arriving | None] = ContextVar("replan_arriving", default=None)


def current_reply() -> Arriving:
    """The reply of the current request, to record how it arrives; outside of a MeteredModel one that nobody reads."""
    return _ARRIVING.get() or Arriving()


REPLIES: ContextVar[list[Arriving] | None] = ContextVar("replan_replies", default=None)
"""The list for the replies of the current activity that are being received; None if nobody watches them."""
_METER: ContextVar[Meter | None] = ContextVar("replan_meter", default=None)


def start_meter(unreadable_before: Sequence[str] = ()) -> Meter:
    """Make the meter of an attempt, for all later requests of its context; `unreadable_before` is as in Meter."""
    watched = REPLIES.get()
    meter = Meter(unreadable_before=unreadable_before, arriving=[] if watched is None else watched)
    _METER.set(meter)
    return meter


class MeteredModel:
    """A model with a price; the meter of the current attempt counts what each request uses."""

    def __init__(self, model: LanguageModel, price: Price | None) -> None:
        """`price` is None if the price is unknown."""
        self.name = model.name
        self._model = model
        self._price = price

    async def reply(self, request: Request) -> Reply:
        """Send one request; raises NeedsPerson after MAX_UNREADABLE unusable responses with counted tokens."""
        meter = _METER.get() or Meter()
        if meter.was_unreadable_twice(self.name):
            raise NeedsPerson(UNREADABLE.format(name=self.name, remedy=TRY_LATER))
        # Until there is an answer: the attempt may be cancelled at any time.
        meter.lost.append(lost := LostReply(self.name, self._most_used(request, arriving := Arriving(), End.NO_ANSWER)))
        meter.arriving.append(arriving)
        before = _ARRIVING.set(arriving)
        try:
            with chat_span(self.name, request) as record:
                reply = await self._model.reply(request)
                record(reply)
        except BaseException as error:  # also a cancellation, as at the end of a timeout
            self._count_failed(meter, lost, request, arriving, error)
            if isinstance(error, UnusableResponse) and meter.was_unreadable_twice(self.name):
                remedy = CHECK_ADDRESS if isinstance(error, UnreadableReply) else TRY_LATER
                raise NeedsPerson(UNREADABLE.format(name=self.name, remedy=remedy)) from error
            raise
        finally:
            _ARRIVING.reset(before)
            meter.arriving.remove(arriving)
            meter.wasted += [self._counted(Usage()) for _ in range(arriving.rejected)]
        meter.lost.remove(lost)
        meter.replies.append(self._counted(reply.usage))
        return reply

    def _count_failed(
        self, meter: Meter, lost: LostReply, request: Request, arriving: Arriving, error: BaseException
    ) -> None:
        """Count in `meter` what a request that raised `error` cost; if its bill is unknown, set `lost` to the most."""
        usage = arriving.failure or (error.usage if isinstance(error, UnusableResponse) else None)
        has_output = arriving.written > 0 or arriving.counted.tokens > 0
        end = End.COUNTED_FAILURE if usage else end_of(error, has_begun=arriving.has_begun, has_output=has_output)
        bill = billing()[end].bill
        if isinstance(error, UnusableResponse) and bill is not Bill.NOTHING:
            meter.unreadable.append(self.name)
        if bill is Bill.MAXIMUM:
            lost.use = self._most_used(request, arriving, end)
            counting.count(Sample(MODEL_CALLS, self._labels), Sample(LOST_REPLIES, self._labels))
            return
        meter.lost.remove(lost)
        if bill is Bill.REPORTED and usage is not None:
            meter.wasted.append(self._counted(usage))

    def _most_used(self, request: Request, arriving: Arriving, end: End) -> ModelUse:
        """The most that a request with an unknown bill can have used; `end` says how the request ended."""
        limit, counted = request.max_output or MAX_OUTPUT, arriving.counted
        output = max(limit, counted.output, arriving.tokens)
        if end is End.ERROR_EVENT and arriving.shows_all:  # nothing was written after it; a token has a byte or more
            output = min(output, max(counted.output, arriving.written + UNSEEN_OUTPUT))
        if counted.tokens > counted.output:  # the server counted the input
            return self._use(replace(counted, output=output, is_estimated=True))
        input_tokens = max(estimate_input(request), request.counted)
        cost = request_cost(self._price, input_tokens, output)
        usd = cost.usd if self._price else None
        return ModelUse(calls=1, tokens=input_tokens + output, usd=usd, estimated=1)

    @property
    def _labels(self) -> tuple[str, str]:
        """The labels of metrics: the provider, and the model's name without it."""
        provider, _, model = self.name.partition(":")
        return provider, model

    def _counted(self, usage: Usage) -> ModelUse:
        """Count the usage of a request in the metrics of the worker, and return it with its cost."""
        use, labels = self._use(usage), self._labels
        counting.count(
            Sample(MODEL_CALLS, labels),
            *(Sample(MODEL_TOKENS, (*labels, name), getattr(usage, name)) for name in TOKENS),
            Sample(MODEL_COST, labels, (use.usd or 0.0) * MICRO),
        )
        return use

    def _use(self, usage: Usage) -> ModelUse:
        usd = cost_in_usd(usage, self._price)
        return ModelUse(calls=1, tokens=usage.tokens, usd=usd, estimated=int(usage.is_estimated))


class StepModel:
    """The model that a tool gets: its reply is limited, and must come before the attempt's deadline."""

    def __init__(self, model: LanguageModel, calls: str | None = None) -> None:
        """`calls` says how the task wants its models to make their calls, see `Request.calls`."""
        self.name = model.name
        self._model = model
        self._calls = calls

    async def reply(self, request: Request) -> Reply:
        """Send one request, and wait for the reply until the attempt's deadline, as `ask_model` does."""
        # Without a limit, a server of the user's own could use more tokens than the step reserved.
        limited = replace(request, max_output=request.max_output or MAX_OUTPUT, calls=request.calls or self._calls)
        return await ask_model(self._model, limited, deadline.left(), "step")
