"""What a provider bills for a request, by how the request ended: the table `billing.toml`."""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from activities.borders import classify
from activities.providers.messages import End
from workflows.faults.fault import Code
from workflows.limits.spending import may_be_billed

BILLING_FILE = Path(__file__).with_name("billing.toml")


class Bill(StrEnum):
    """What a provider bills for a request."""

    NOTHING = "nothing"
    """The request is certainly not billed."""
    REPORTED = "reported"
    """The usage that the response reports is billed."""
    MAXIMUM = "maximum"
    """The bill is unknown: it is at most the input, and the longest reply that the request allowed."""


class BillingRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    says: str
    """How the request ended, in words."""
    bill: Bill
    messages: str
    """The source for Anthropic's Messages: a page or the SDK of the provider."""
    responses: str
    """The source for OpenAI's Responses."""
    chat_completions: str
    """The source for OpenAI's Chat Completions."""


WAITING_ENDED = (408, 499, 504, 524)
"""Statuses that say that the server or a proxy stopped waiting, while the model may have gone on."""
DENIALS = frozenset(
    {
        Code.REFUSED,
        Code.RATE_LIMITED,
        Code.QUOTA_EXHAUSTED,
        Code.UNAUTHORIZED,
        Code.FORBIDDEN,
        Code.TOO_LARGE,
        Code.NEEDS_PERSON,
    }
)
"""Codes of errors that a provider finds before the model begins, even if its stream has begun."""


@cache
def billing() -> Mapping[End, BillingRow]:
    """The rows of `billing.toml`, by how a request ended."""
    rows = tomllib.loads(BILLING_FILE.read_text(encoding="utf-8"))
    return {End(name): BillingRow.model_validate(row) for name, row in rows.items()}


def end_of(error: BaseException, *, has_begun: bool, has_output: bool) -> End:
    """Classify the end of a request that raised `error`, an exception of an SDK or of an adapter.

    `has_begun` is whether an event of the reply came, `has_output` whether a part of the reply came or the server
    counted tokens.
    """
    if isinstance(end := getattr(error, "end", None), End):
        return end
    if not isinstance(error, Exception) or isinstance(error, TimeoutError):
        return End.STALLED if has_begun else End.NO_ANSWER
    fault, status = classify(error), getattr(error, "status_code", None)
    if fault.unsent:
        return End.UNSENT
    if isinstance(status, int) and status >= 400:
        return End.GAVE_UP if status in WAITING_ENDED else End.REJECTED
    if status is not None or getattr(error, "body", None) is not None:  # said in a response with status 200
        return End.DENIED if not has_begun or (fault.code in DENIALS and not has_output) else End.ERROR_EVENT
    if has_begun:
        return End.BROKEN_OFF
    return End.NO_ANSWER if may_be_billed(fault) else End.UNSENT
