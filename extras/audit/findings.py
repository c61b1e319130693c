"""What an audit can find in a history: one table, one small function for each row.

A new finding is a row of FINDINGS: its sentence, its remedy, its highest possible confidence, and the function that
finds it in an AuditedHistory. The name of this function is the name of the finding, and its heading in docs/audit.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from activities.borders.table import Proof
from activities.scrubbing import text_of
from client.history.records import CallEnd
from client.text import one_line
from client.wording import count
from extras.audit.errors import CAPS, Diagnosis, Failing, verdict
from extras.audit.record import MAX_SHOWN, AuditedCall, AuditedHistory
from extras.audit.tools import Confidence, weaker
from workflows.faults.fault import Code, Quadrant

LONG_SECONDS = 60.0
"""An attempt that takes this many seconds or longer should send heartbeats."""
DAY_SECONDS = 86_400.0
LIMIT_SECONDS = 60.0
"""Most rate limits are per minute: retries whose waits add up to less than this cannot outlast such a limit."""
MAX_EVENTS, MAX_BYTES, MAX_PAYLOAD = 51_200, 50 * 2**20, 2 * 2**20
"""The limits at which a server ends a workflow, or rejects a payload."""
NEAR = 5
"""A history is near a limit from 1/NEAR of the limit on: the server warns at a fifth."""
CARRIED_BYTES = 64 * 1024
"""A conversation that repeats fewer bytes than this is not reported."""
TASKS_AFTER = 10
"""Continue-as-new is overdue this many workflow tasks after the server suggested it."""
SAME_MANY = 3
"""From this many attempts on, a failure with the same message counts as a failure that does not change."""


class Group(StrEnum):
    """What a finding is about."""

    WASTE = "waste"
    """Calls that could not have helped."""
    EFFECT = "effect"
    """Effects that may have been applied twice."""
    POLICY = "policy"
    """Retry policies and timeouts."""
    SECRET = "secret"  # noqa: S105  # the word
    SIZE = "size"
    """How a history grows."""


@dataclass(frozen=True)
class FoundPlace:
    """One place where a finding holds."""

    events: tuple[int, ...]
    detail: str
    """What happened there, in one sentence; untrusted content in it is scrubbed and cut."""
    confidence: Confidence
    activity: str = ""
    args: str = ""
    """The arguments of the call, scrubbed and cut; empty if they do not matter, or cannot be read."""
    times: int = 1
    """How many calls the finding is about, such as retries."""
    instead: str = ""
    """What Replan's rules would have done; empty where the remedy of the finding is enough."""


class Finding(NamedTuple):
    """A row of FINDINGS."""

    group: Group
    sentence: str
    remedy: str
    confidence: Confidence
    """The highest confidence that a place of this finding can have."""
    find: Callable[[AuditedHistory], Iterator[FoundPlace]]

    @property
    def name(self) -> str:
        """The name in reports and in docs/audit.md: that of the function `find`."""
        return self.find.__name__


def shown(text: str) -> str:
    """An untrusted text, scrubbed, cut to MAX_SHOWN characters, and on one line."""
    return one_line(text_of(text, str, MAX_SHOWN))


def _persistent(failing: Failing | None, *, of_model: bool) -> Diagnosis | None:
    """The verdict on `failing` if it is persistent; None if it is transient, cancelled, unclassified or absent."""
    found = verdict(failing, of_model=of_model) if failing and not failing.is_cancelled else None
    return found if found and not found.is_transient else None


def retried_for_nothing(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in record.calls:
        # One that a retry helped could pass after all, and a cancel says nothing of it.
        if call.attempt < 2 or call.closed not in (CallEnd.FAILED, None) or call.is_local:
            continue
        last = _persistent(call.last, of_model=call.is_model)
        if last is None or call.last is None:
            continue
        is_each = call.last.is_same(call.failing)
        times = call.retries if is_each else 1
        confidence = last.confidence if times == 1 else weaker(last.confidence, Confidence.LIKELY)
        detail = (
            f"{count(times, 'retry', 'retries')} after {last.code.value}: {shown(call.last.words)}"
            f"{f', which attempt {call.attempt} got again' if is_each else ''}"
        )
        yield FoundPlace(call.event_ids, detail, confidence, call.name, call.args, times, last.follows)


def same_failure_each_time(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in record.calls:
        if call.is_completed or call.attempt < SAME_MANY or call.last is None or call.is_replans:
            continue
        if call.last_verdict is None and not call.last.timeout and call.last.is_same(call.failing):
            detail = f"attempts {call.retries} and {call.attempt} failed alike: {shown(call.last.words)}"
            yield FoundPlace(call.event_ids, detail, Confidence.GUESSED, call.name, call.args, call.retries)


def limit_not_waited_for(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in record.calls:
        known = call.verdict
        if call.closed is not CallEnd.FAILED or known is None or known.code is not Code.RATE_LIMITED:
            continue
        named = call.failing.named_wait if call.failing else None
        if call.retries and call.waits < (named or LIMIT_SECONDS) and not call.is_replans:
            asked = f", where the answer asked for {named:g} s" if named else ""
            detail = f"{count(call.retries, 'retry', 'retries')} within {call.waits:g} s of waits{asked}"
            sure = weaker(known.confidence, Confidence.LIKELY) if named else Confidence.GUESSED
            yield FoundPlace(call.event_ids, detail, sure, call.name, "", call.retries, known.follows)


def ran_again_after_unknown_outcome(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in record.calls:
        if (sure := _writes(call)) and call.attempt > 1 and (why := _unknown_outcome(call.last, call)):
            detail = f"attempt {call.attempt} ran after {why[0]}"
            yield FoundPlace(call.event_ids, detail, weaker(sure, why[1]), call.name, call.args)
    for before, call in _repetitions(record):
        if (sure := _writes(call)) and not before.is_completed and (why := _unknown_outcome(before.failing, before)):
            detail = f"scheduled again with the same arguments after {why[0]}"
            yield FoundPlace((*before.event_ids, *call.event_ids), detail, weaker(sure, why[1]), call.name, call.args)


def _writes(call: AuditedCall) -> Confidence | None:
    """How sure it is that a retry may repeat an effect of the call; None for reads, model calls and Replan's own."""
    if call.tool.writes is None or call.is_model or call.is_replans:
        return None
    # A key only helps if the service looks at it.
    return Confidence.GUESSED if call.tool.is_keyed else call.tool.writes


def _unknown_outcome(failing: Failing | None, call: AuditedCall) -> tuple[str, Confidence] | None:
    """Why the outcome of an attempt of `call` is unknown, and how sure that is.

    None if the outcome is known, or if the failure is missing, cancelled, persistent or unclassified.
    """
    if failing is None or failing.is_cancelled:
        return None
    silent = next((one for one in failing.chain if one.is_silent), None)
    if silent:
        return f"a {silent.timeout} timeout, which leaves open what the attempt before did", Confidence.CERTAIN
    known = verdict(failing, of_model=call.is_model)
    if known is None or known.proves is not Proof.UNKNOWN or not known.is_transient:
        return None
    return f"{known.code.value} ({shown(failing.words)}), which leaves it open", known.confidence


def _repetitions(record: AuditedHistory) -> Iterator[tuple[AuditedCall, AuditedCall]]:
    """Pairs of calls with the same type and the same arguments, the second scheduled after the first had ended."""
    before = dict[tuple[str, str], AuditedCall]()
    for call in record.calls:
        if call.digest and not call.is_model and not call.is_replans:
            earlier = before.get((call.kind, call.digest))
            if earlier and earlier.ended and earlier.ended < call.scheduled:
                yield earlier, call
            before[call.kind, call.digest] = call


def repeated_call(record: AuditedHistory) -> Iterator[FoundPlace]:
    asked = [call.ended for call in record.calls if call.is_model and call.ended]
    changes = [call.ended for call in record.calls if call.tool.writes and call.is_completed and call.ended]
    for before, call in _repetitions(record):
        since = before.ended or before.scheduled
        is_asked, may_differ = (
            any(since < event < call.scheduled for event in events) for events in (asked, [*record.pauses, *changes])
        )
        if not is_asked or may_differ:
            continue
        failed = _persistent(before.failing, of_model=False)
        is_same = before.is_completed and call.is_completed and before.result == call.result and before.result
        if not (is_same if before.is_completed else failed):
            continue
        after = f"it had failed with {failed.code.value}" if failed else "it had given the same result"
        detail = f"the model asked for it again after {after}"
        sure = weaker(Confidence.LIKELY, failed.confidence) if failed else Confidence.LIKELY
        yield FoundPlace((*before.event_ids, *call.event_ids), detail, sure, call.name, call.args)


def turns_after_cap(record: AuditedHistory) -> Iterator[FoundPlace]:
    """Calls of a model after an earlier call met a limit: a maximum of the agent, or a quota of the model."""
    reached: AuditedCall | None = None
    for call in record.calls:
        if reached and call.is_model and call.scheduled > (reached.ended or reached.scheduled):
            why = shown(reached.failing.words if reached.failing else "")
            detail = f"asked again after a limit was reached: {why}"
            yield FoundPlace((*reached.event_ids[-1:], *call.event_ids), detail, Confidence.LIKELY, call.name)
        is_cap = call.failing is not None and any(one.type in CAPS for one in call.failing.chain)
        known = call.verdict if call.is_model else None
        if is_cap or (known and known.code is Code.QUOTA_EXHAUSTED):
            reached = call


def no_new_plan(record: AuditedHistory) -> Iterator[FoundPlace]:
    """Rejected calls of a failed workflow, if its model was not called again after the rejection."""
    if record.status != "failed" or not any(call.is_model for call in record.calls):
        return
    for call in record.calls:
        rejected = _persistent(call.failing, of_model=False) if not call.is_model else None
        if rejected is None or rejected.quadrant is not Quadrant.PERSISTENT_SEMANTIC or call.is_replans:
            continue
        if not any(later.is_model and later.scheduled > (call.ended or call.scheduled) for later in record.calls):
            detail = f"{rejected.code.value} ended the workflow: {shown(call.failing.words if call.failing else '')}"
            events = (*call.event_ids, *((record.ended,) if record.ended else ()))
            yield FoundPlace(events, detail, rejected.confidence, call.name, call.args, 1, rejected.follows)


def workflow_ran_again(record: AuditedHistory) -> Iterator[FoundPlace]:
    if record.attempt > 1 and record.continued:
        detail = f"run {record.attempt} of the workflow began anew after: {shown(record.continued.words)}"
        yield FoundPlace((1,), detail, Confidence.CERTAIN)


def unbounded_retries(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in _first_call_of_each_type(record):
        if not call.is_local and not call.allowed and not call.schedule_to_close:
            detail = "no maximum of attempts, and no schedule-to-close timeout"
            yield FoundPlace(call.event_ids[:1], detail, Confidence.CERTAIN, call.name)


def no_timeout(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in _first_call_of_each_type(record):
        if not call.is_local and not call.heartbeat and call.start_to_close >= DAY_SECONDS:
            hours = f"{call.start_to_close / 3600:,.0f} h"
            detail = f"an attempt may take {hours}, without heartbeats: so long a lost worker goes unnoticed"
            yield FoundPlace(call.event_ids[:1], detail, Confidence.CERTAIN, call.name)


def long_without_heartbeat(record: AuditedHistory) -> Iterator[FoundPlace]:
    for call in record.calls:
        if call.is_local or call.heartbeat or not (call.started_at and call.ended_at):
            continue
        seconds = (call.ended_at - call.started_at).total_seconds()
        if seconds >= LONG_SECONDS:
            detail = f"the attempt took {seconds:,.0f} s, and its timeout is {call.start_to_close:,.0f} s"
            yield FoundPlace(call.event_ids, detail, Confidence.CERTAIN, call.name)


def _first_call_of_each_type(record: AuditedHistory) -> Iterator[AuditedCall]:
    """The first call of each type of activity, since a policy is written once for all calls of a type."""
    first = dict[str, AuditedCall]()
    for call in record.calls:
        first.setdefault(call.kind, call)
    yield from first.values()


def secret_in_payload(record: AuditedHistory) -> Iterator[FoundPlace]:
    for secret, event, where in record.secrets:
        detail = f"{secret.what} in {where}: {one_line(secret.masked)[:MAX_SHOWN]}"
        yield FoundPlace((event,), detail, secret.confidence)


def near_limit(record: AuditedHistory) -> Iterator[FoundPlace]:
    """A history, or a payload in it, whose size is near a limit of the server."""
    size, event = record.largest
    parts = {
        f"{record.events:,} of {MAX_EVENTS:,} events": record.events / MAX_EVENTS,
        f"{record.bytes / 2**20:.1f} of {MAX_BYTES // 2**20} MB": record.bytes / MAX_BYTES,
    }
    for detail, part in parts.items():
        if part >= 1 / NEAR:
            yield FoundPlace((record.events,), f"the history has {detail}", Confidence.CERTAIN)
    if size >= MAX_PAYLOAD / 2:
        yield FoundPlace((event,), f"a payload has {size / 2**20:.1f} of {MAX_PAYLOAD // 2**20} MB", Confidence.CERTAIN)


def carried_conversation(record: AuditedHistory) -> Iterator[FoundPlace]:
    """Activities of models whose inputs consist for the most part of the input before."""
    for activity, carried in record.carried.items():
        if carried.bytes >= CARRIED_BYTES and 2 * carried.bytes >= carried.all:
            detail = (
                f"{carried.bytes / 1024:,.0f} of {carried.all / 1024:,.0f} KB of its inputs repeat the input before,"
                f" in {count(len(carried.events), 'call')}"
            )
            yield FoundPlace(tuple(carried.events[:1] + carried.events[1:][-1:]), detail, Confidence.CERTAIN, activity)


def no_continue_as_new(record: AuditedHistory) -> Iterator[FoundPlace]:
    if record.suggested and record.tasks_after >= TASKS_AFTER and record.status != "continued":
        detail = f"{record.tasks_after:,} workflow tasks followed the server's suggestion"
        yield FoundPlace((record.suggested,), detail, Confidence.CERTAIN)


def stuck_workflow_task(record: AuditedHistory) -> Iterator[FoundPlace]:
    if record.stuck and record.status == "running":
        event, failing = record.stuck[-1]
        detail = f"the workflow task fails and is tried without end: {shown(failing.words)}"
        yield FoundPlace((event,), detail, Confidence.CERTAIN)


FINDINGS: tuple[Finding, ...] = (
    Finding(
        Group.WASTE,
        "Activities were retried after an error that cannot pass.",
        "List the type in `non_retryable_error_types`, or raise it as non-retryable, and tell the model or a person.",
        Confidence.CERTAIN,
        retried_for_nothing,
    ),
    Finding(
        Group.WASTE,
        "Activities were retried although they failed with the same message each time.",
        "Find out whether this error can pass; if it cannot, raise it as non-retryable.",
        Confidence.GUESSED,
        same_failure_each_time,
    ),
    Finding(
        Group.WASTE,
        "Retries of a rate limit were used up before the limit could pass.",
        "Raise the error with `next_retry_delay` from Retry-After, or retry more slowly and for minutes.",
        Confidence.LIKELY,
        limit_not_waited_for,
    ),
    Finding(
        Group.EFFECT,
        "Calls that write ran again although nobody knows what the attempt before did.",
        "Look with these arguments whether it happened twice. Send an idempotency key that all attempts share,"
        " or allow one attempt and ask the service.",
        Confidence.CERTAIN,
        ran_again_after_unknown_outcome,
    ),
    Finding(
        Group.EFFECT,
        "A whole workflow was retried, with every effect in it.",
        "Leave the workflow without a retry policy, and retry its activities.",
        Confidence.CERTAIN,
        workflow_ran_again,
    ),
    Finding(
        Group.WASTE,
        "A model made the same call with the same arguments again, though nothing had changed.",
        "Refuse a call that failed for good until something changed, and tell the model why.",
        Confidence.LIKELY,
        repeated_call,
    ),
    Finding(
        Group.WASTE,
        "A model was asked again after a limit was reached.",
        "End the run, or ask a person for more, as soon as a limit is reached.",
        Confidence.LIKELY,
        turns_after_cap,
    ),
    Finding(
        Group.WASTE,
        "A workflow failed on a rejected call of which its model was never told.",
        "Give the rejection to the model as the result of its call, so that it can choose again.",
        Confidence.CERTAIN,
        no_new_plan,
    ),
    Finding(
        Group.POLICY,
        "Retry policies have no end: neither a maximum of attempts nor a schedule-to-close timeout.",
        "Set `maximum_attempts`, or `schedule_to_close_timeout`.",
        Confidence.CERTAIN,
        unbounded_retries,
    ),
    Finding(
        Group.POLICY,
        "Attempts may take a day or longer without a heartbeat.",
        "Set `start_to_close_timeout` to what one attempt needs.",
        Confidence.CERTAIN,
        no_timeout,
    ),
    Finding(
        Group.POLICY,
        "Attempts took a minute or longer without heartbeats.",
        "Set `heartbeat_timeout`, and call `activity.heartbeat()`: a lost worker is then noticed at once.",
        Confidence.CERTAIN,
        long_without_heartbeat,
    ),
    Finding(
        Group.SECRET,
        "What looks like a secret stands in a history, for all who may read the namespace.",
        "Let the worker read it from its environment, encrypt payloads with a codec, and replace the secret.",
        Confidence.LIKELY,
        secret_in_payload,
    ),
    Finding(
        Group.SIZE,
        "Histories are near a limit at which the server ends the workflow.",
        "Continue as new, or keep large values outside and pass references.",
        Confidence.CERTAIN,
        near_limit,
    ),
    Finding(
        Group.SIZE,
        "Most of a history is a conversation that each call of the model carries again.",
        "Keep the conversation outside, and pass its number and what is new.",
        Confidence.CERTAIN,
        carried_conversation,
    ),
    Finding(
        Group.SIZE,
        "Workflows went on long after the server suggested continue-as-new.",
        "Look at `workflow.info().is_continue_as_new_suggested()` after each turn.",
        Confidence.CERTAIN,
        no_continue_as_new,
    ),
    Finding(
        Group.POLICY,
        "Workflow tasks fail and are tried again without end, so that the workflow stands still.",
        "Correct the code, or list the exception in `failure_exception_types` so that the workflow fails.",
        Confidence.CERTAIN,
        stuck_workflow_task,
    ),
)
"""All findings, in the order in which they are shown."""


def findings_in(record: AuditedHistory) -> Iterator[tuple[Finding, FoundPlace]]:
    """Yield each finding that applies to a history, once for each place where it applies."""
    for finding in FINDINGS:
        for found in finding.find(record):
            yield finding, found
