"""Which calls are the same call: one table, by the keys of calls, their arguments, and what is known of earlier ones.

A program that was killed, or whose call got no answer, calls again, and nothing in the second call says so. Nobody can
know in general; so in doubt a call is not made. docs/effects.md has the same table in words.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class CallStanding(Enum):
    """What is known of an earlier call, and of who has its answer."""

    RUNNING = "running"
    """It has no result, and its process lives."""
    STOPPED = "stopped"
    """It may have been applied: its process is dead or cannot be seen, or the call failed without a proof."""
    UNREAD = "unread"
    """It was applied, and certainly nobody has its answer: the client had given up."""
    LAST = "last"
    """It was applied, and answered in a process that was killed before it called again in this session."""
    PASSED = "passed"
    """It was applied, and answered in a process that called again in this session, and was killed later."""
    READ = "read"
    """It was applied, and answered in a process that lives or ended in order, or whose framework has the answer."""
    VOID = "void"
    """It was certainly not applied."""
    UNDONE = "undone"
    """It was applied and undone."""


class Relation(Enum):
    """How a call relates to an earlier one."""

    SAME = "same"
    """It is certainly the earlier call: by its key, or by the ids of its framework."""
    JOINED = "joined"
    """It is taken for the earlier call, and the caller is told so."""
    DOUBTFUL = "doubtful"
    """It may be the earlier call or another one: it is not made."""
    CONFLICT = "conflict"
    """It has the key of an earlier call with other arguments."""
    OTHER = "other"
    """It is certainly another call, or there is no reason to take it for the earlier one."""


@dataclass(frozen=True)
class Identity:
    """What a call is recognised by."""

    digest: str
    """The digest of the function and its arguments."""
    key: str | None = None
    """The caller's own key."""
    run: str | None = None
    call: str | None = None
    """The ids that a framework has given to the run of the agent, and to the call."""
    family: str | None = None
    """The id of a Temporal workflow, over all its runs. In one of its runs, calls with other ids are other calls."""
    answered: Set[str] = frozenset()
    """The ids of calls of the run whose results its framework has on record: whoever calls now has read them."""


@dataclass(frozen=True)
class Earlier:
    """An earlier call of the same function in the session."""

    name: str
    """The key of its row."""
    identity: Identity
    standing: CallStanding
    is_reworded: bool = False
    """Whether its arguments differ from those of the call, and only in words."""
    is_waited_for: bool = False
    """Whether it runs in this very process, and its client certainly still waits."""
    is_abandoned: bool = False
    """Whether it runs, and its client has given up."""
    order: int = 0


class Recognised(NamedTuple):
    """What `recognise` decides; `earlier` is the call that decides, None for another call."""

    verdict: Relation
    earlier: Earlier | None = None


@dataclass(frozen=True)
class RecognitionRule:
    """A row of the table."""

    holds: Callable[[Identity, Earlier], bool]
    verdict: Relation


def _same_key(call: Identity, earlier: Earlier) -> bool:
    return call.key is not None and call.key == earlier.identity.key


def _equal(call: Identity, earlier: Earlier) -> bool:
    return call.digest == earlier.identity.digest


def _same_ids(call: Identity, earlier: Earlier) -> bool:
    theirs = earlier.identity
    return call.call is not None and (call.run, call.call) == (theirs.run, theirs.call)


def _is_other_by_key(call: Identity, earlier: Earlier) -> bool:
    return call.key is not None and earlier.identity.key is not None


def _same_family(call: Identity, earlier: Earlier) -> bool:
    return call.family is not None and call.family == earlier.identity.family


def _is_second_client(call: Identity, earlier: Earlier) -> bool:
    """Whether two calls of one run have different ids, and the client of the first one still waits for its answer."""
    theirs = earlier.identity
    has_ids = call.call is not None and theirs.call is not None and call.run == theirs.run
    return has_ids and earlier.standing is CallStanding.RUNNING and earlier.is_waited_for


def _is_on_record(call: Identity, earlier: Earlier) -> bool:
    """Whether the framework kept an answer that was handed out before its process was killed."""
    is_of_run = call.run == earlier.identity.run and earlier.identity.call in call.answered
    return is_of_run and earlier.standing in (CallStanding.LAST, CallStanding.PASSED)


def recognise(
    call: Identity, earlier: Iterable[Earlier], *, restarts: bool = False, is_harmless: bool = False
) -> Recognised:
    """Decide how a call relates to the earlier calls of its function in its session.

    `restarts`: after a kill, the agent begins from its start again. `is_harmless`: a repetition changes nothing.
    Of the earlier calls that decide the same, the oldest counts. One that was certainly not applied says nothing of the
    others: the call is made as that one only if no other one decides.
    """
    rules = _rules(restarts=restarts, is_harmless=is_harmless)
    known = (replace(one, standing=CallStanding.READ) if _is_on_record(call, one) else one for one in earlier)
    oldest_first = sorted(known, key=lambda one: one.order)
    void = Recognised(Relation.OTHER)
    for rule in rules:
        for candidate in oldest_first:
            if not rule.holds(call, candidate):
                continue
            if candidate.standing is not CallStanding.VOID:
                return Recognised(rule.verdict, candidate)
            void = Recognised(rule.verdict, candidate) if void.earlier is None else void
    return void


def _rules(*, restarts: bool, is_harmless: bool) -> Sequence[RecognitionRule]:
    """The table, in order; where no row holds, a call is another call."""
    again = {CallStanding.UNREAD, CallStanding.LAST} | ({CallStanding.PASSED} if restarts else set())

    def is_open_to(call: Identity, earlier: Earlier) -> bool:
        """Whether no key and no id tells the two apart."""
        return not (_is_other_by_key(call, earlier) or _same_family(call, earlier) or _is_second_client(call, earlier))

    def equal_and(*standings: CallStanding) -> Callable[[Identity, Earlier], bool]:
        return lambda call, earlier: (
            _equal(call, earlier) and is_open_to(call, earlier) and earlier.standing in standings
        )

    def reworded(call: Identity, earlier: Earlier) -> bool:
        if not earlier.is_reworded or not is_open_to(call, earlier):
            return False
        is_given_up = earlier.standing is CallStanding.RUNNING and earlier.is_abandoned
        return is_given_up or earlier.standing in {CallStanding.STOPPED, *again}

    def in_other_run(call: Identity, earlier: Earlier) -> bool:
        is_other_run = _same_family(call, earlier) and call.run != earlier.identity.run
        return (
            is_other_run and _equal(call, earlier) and earlier.standing not in (CallStanding.VOID, CallStanding.UNDONE)
        )

    by_key = (
        RecognitionRule(lambda call, earlier: _same_key(call, earlier) and _equal(call, earlier), Relation.SAME),
        RecognitionRule(
            lambda call, earlier: _same_key(call, earlier) and earlier.standing is not CallStanding.VOID,
            Relation.CONFLICT,
        ),
        RecognitionRule(
            lambda call, earlier: (
                _same_ids(call, earlier) and _equal(call, earlier) and not _is_other_by_key(call, earlier)
            ),
            Relation.SAME,
        ),
    )
    unfinished = RecognitionRule(equal_and(CallStanding.RUNNING, CallStanding.STOPPED), Relation.JOINED)
    if is_harmless:
        return (*by_key, unfinished)
    return (
        *by_key,
        RecognitionRule(in_other_run, Relation.DOUBTFUL),
        unfinished,
        RecognitionRule(equal_and(*again), Relation.JOINED),
        RecognitionRule(equal_and(CallStanding.PASSED), Relation.DOUBTFUL),
        RecognitionRule(reworded, Relation.DOUBTFUL),
    )
