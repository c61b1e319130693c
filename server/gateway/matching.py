"""Which calls of an agent are the same call: one table, which docs/mcp.md repeats.

MCP has no idempotency key. An agent whose connection breaks sends its call again, and nothing in the second request
says so. The rules here decide from what the gateway knows of the answers to earlier calls of the same session.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

WINDOW = 600.0
"""Seconds for which an answer that was not handed over belongs to the next equal call."""


class Delivery(StrEnum):
    """What is known about the delivery of a call's answer to the agent."""

    OPEN = "open"
    """There is no answer yet, and the agent can still be reached."""
    BROKEN = "broken"
    """The answer was certainly not handed over: the stream broke before its end, or the agent cancelled the call."""
    PENDING = "pending"
    """There is no answer yet, and the agent was told so: a person is asked, or the server is away."""
    WRITTEN = "written"
    """The answer was written without an error. Nobody knows whether it was read: bytes in a buffer are no delivery."""
    DELIVERED = "delivered"
    """The agent has the answer: another call came later on the same connection."""
    VOID = "void"
    """The call failed, and certainly changed nothing: the agent may make it again."""


class Verdict(StrEnum):
    """How a call relates to the earlier calls of its session."""

    NEW = "new"
    SAME = "same"
    """The call is a repetition: it gets the answer of the earlier call, for which it waits if that call still runs."""
    DOUBTFUL = "doubtful"
    """The call may be a repetition or a second call: nobody can know."""
    CONFLICT = "conflict"
    """The key of the call belongs to a call with other arguments."""


@dataclass(frozen=True)
class Caller:
    """A call, with what the rules need to know of it."""

    tool: str
    digest: str
    """The digest of the canonical arguments."""
    authority: str = ""
    """The digest of the arguments that say whom, where, which and how much; empty if the tool has none."""
    key: str = ""
    """The key that the agent gave, with the id of the agent's run if it has one; empty without a key."""
    resent: str = ""
    """The id of the request, if the agent's own process sends it again after the gateway was restarted."""


@dataclass(frozen=True)
class Earlier:
    """An earlier call of the same session with an effect."""

    task_id: str
    caller: Caller
    delivery: Delivery
    since: float
    """When `delivery` became what it is, in seconds since the epoch."""
    request: str = ""
    """The id of the request to which the answer goes, unique in all sessions."""


class Match(NamedTuple):
    """What `match` decides about a call; `earlier` is the call that decides, None for a new call."""

    verdict: Verdict
    earlier: Earlier | None = None


@dataclass(frozen=True)
class Rule:
    """A row of the table: the first row whose condition holds decides."""

    call: str
    """The condition on the call, in words."""
    earlier: str
    """The condition on the earlier call, in words."""
    verdict: Verdict
    holds: Callable[[Caller, Earlier, float], bool]


def _is_recent(delivery: Delivery, earlier: Earlier, now: float) -> bool:
    """Whether the earlier call's answer has been in this delivery state for at most WINDOW seconds."""
    return earlier.delivery is delivery and now - earlier.since <= WINDOW


def _is_equal(call: Caller, earlier: Earlier) -> bool:
    """Whether both have the same tool and arguments, and neither has a key."""
    theirs = earlier.caller
    return not (call.key or theirs.key) and (call.tool, call.digest) == (theirs.tool, theirs.digest)


def _has_key_of(call: Caller, earlier: Earlier) -> bool:
    """Whether both have the same tool and key, and the earlier call is not VOID."""
    is_void = earlier.delivery is Delivery.VOID
    return bool(call.key) and not is_void and (call.tool, call.key) == (earlier.caller.tool, earlier.caller.key)


def _is_reworded(call: Caller, earlier: Earlier) -> bool:
    """Whether both have the same tool and authority, but other arguments, and neither has a key."""
    theirs = earlier.caller
    if call.key or theirs.key or not call.authority:
        return False
    return (call.tool, call.authority) == (theirs.tool, theirs.authority) and call.digest != theirs.digest


RULES: Sequence[Rule] = (
    Rule(
        "sent again by the agent's own process, which noticed that the gateway was restarted",
        "has the id of this request",
        Verdict.SAME,
        lambda call, earlier, now: bool(call.resent) and call.resent == earlier.request,
    ),
    Rule(
        "has a key",
        "has this key and the same arguments, at any time",
        Verdict.SAME,
        lambda call, earlier, now: _has_key_of(call, earlier) and call.digest == earlier.caller.digest,
    ),
    Rule(
        "has a key",
        "has this key and other arguments",
        Verdict.CONFLICT,
        lambda call, earlier, now: _has_key_of(call, earlier),
    ),
    Rule(
        "has no key",
        "is equal, and its answer was certainly not handed over within the last ten minutes",
        Verdict.SAME,
        lambda call, earlier, now: _is_equal(call, earlier) and _is_recent(Delivery.BROKEN, earlier, now),
    ),
    Rule(
        "has no key",
        "is equal, and the agent was told that a person is asked, at any time",
        Verdict.SAME,
        lambda call, earlier, now: _is_equal(call, earlier) and earlier.delivery is Delivery.PENDING,
    ),
    Rule(
        "has no key",
        "was not handed over either, and differs only in arguments that are words",
        Verdict.DOUBTFUL,
        lambda call, earlier, now: _is_reworded(call, earlier) and _is_recent(Delivery.BROKEN, earlier, now),
    ),
    Rule(
        "has no key",
        "is equal, and its answer was written within the last ten minutes, without a later call on its connection",
        Verdict.DOUBTFUL,
        lambda call, earlier, now: _is_equal(call, earlier) and _is_recent(Delivery.WRITTEN, earlier, now),
    ),
)
"""The rules, in order. Without a rule that holds, a call is new; so are two equal calls whose agent can be reached."""


def is_live_twin(call: Caller, earlier: Earlier) -> bool:
    """Whether both calls are equal, and the agent of the earlier call still seems to wait for the answer."""
    return _is_equal(call, earlier) and earlier.delivery is Delivery.OPEN


def match(call: Caller, earlier: Iterable[Earlier], now: float) -> Match:
    """Decide by RULES how a call relates to earlier calls; of several that fit, the oldest counts. `now`: Unix time."""
    oldest_first = sorted(earlier, key=lambda one: one.since)
    for rule in RULES:
        for candidate in oldest_first:
            if rule.holds(call, candidate, now):
                return Match(rule.verdict, candidate)
    return Match(Verdict.NEW)
