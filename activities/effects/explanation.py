"""Why a call of a store is as it is: what was decided, by which rule, and what follows when it is made again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection

from activities.effects.calls import (
    CallRequest,
    Claim,
    Conflict,
    Doubt,
    Recorded,
    RunningCall,
    State,
    Step,
    UndoneCall,
    UnresolvedCall,
)
from activities.effects.desk import CallRecord, Desk, clause_about, place
from activities.effects.flow import Running
from activities.effects.recognition import Identity
from activities.effects.remedies import IDENTITY, OUTCOME, RESULT, to_settle
from workflows.plans.catalogue import Effect


class WhyItem(NamedTuple):
    """One thing that was decided about a call."""

    what: str
    why: str | None
    decision: str
    """`made`, `not_made`, `applied`, `void`, `unknown`, `settled`, `answered` or `undone`."""
    data: Mapping[str, JsonValue] = {}

    def document(self) -> dict[str, JsonValue]:
        """The item as JSON."""
        return {"what": self.what, "why": self.why, "decision": self.decision, "data": dict(self.data)}


class Following(NamedTuple):
    """What follows if the same call comes once more, from a process that starts now."""

    decision: str
    """`made`, `answered`, `waits`, `found_out_first`, `doubtful`, `conflict` or `undone`."""
    text: str

    def document(self) -> dict[str, JsonValue]:
        """It as JSON."""
        return {"decision": self.decision, "text": self.text}


class Explained(NamedTuple):
    """A call, explained."""

    call: CallRecord
    summary: str
    items: Sequence[WhyItem]
    following: Following
    todo: Sequence[str]
    """What a person can do, in sentences with commands."""

    def document(self) -> dict[str, Any]:
        """The explanation as JSON."""
        return {
            "key": self.call.key,
            "session": self.call.session,
            "function": self.call.function,
            "state": self.call.state.value,
            "summary": self.summary,
            "items": [item.document() for item in self.items],
            "again": self.following.document(),
            "todo": list(self.todo),
        }


def explain(desk: Desk, call: CallRecord) -> Explained:
    """Explain a call; raises StoreUnavailable, or EffectRefused if it is gone."""
    summary = f"{call.function} of the session {call.session!r} {clause_about(call)}."
    return Explained(call, summary, list(items_of(call)), following(desk, call), list(todo_of(desk, call)))


def items_of(call: CallRecord) -> Iterator[WhyItem]:
    """What was decided about a call, in order."""
    why, where = call.why or {}, place(call.process)
    code, reason = str(why.get("code", "")), _sentence(str(why.get("reason", "")))
    if call.about is not None:
        about: dict[str, JsonValue] = {"about": call.about}
        what = f"{call.function} was called by {where}, and was not made: it may be {call.about} again."
        yield WhyItem(
            what, _sentence(f"That call {why.get('reason', '')}") if code == "doubtful" else None, "not_made", about
        )
    else:
        yield _claimed(call, where)
    match code:
        case "settled":
            yield WhyItem(reason, _was(call), "settled", _without(why, "reason", "answer"))
        case "found":
            yield WhyItem("The call had no recorded result, and reconcile= found its effect.", reason, "applied")
        case "not_found":
            yield WhyItem("The call had no recorded result, and reconcile= did not find its effect.", reason, "void")
        case "not_called" | "void":
            yield WhyItem("The call certainly had no effect.", reason, "void", {"code": code})
        case "unknown":
            yield WhyItem("The call failed without a proof that it had no effect.", reason, "unknown", {"code": code})
    if call.state is State.UNKNOWN and not code:
        what = f"No result is recorded, and {where} is gone: nobody knows whether the effect was applied."
        yield WhyItem(what, "The call is claimed before it is made, so it is never made again blindly.", "unknown")
    yield from _answers(call, why.get("answer"))
    if call.undone_by is not None:
        done = f"It was undone at {call.undone_at:%Y-%m-%d %H:%M:%S}Z" if call.undone_at else "Its undo has begun"
        why_not = "Its result is not returned any more."
        yield WhyItem(f"{done}, by the call {call.undone_by}.", why_not, "undone", {"undone_by": call.undone_by})


def _claimed(call: CallRecord, where: str) -> WhyItem:
    attempt = f" (attempt {call.attempts})" if call.attempts > 1 else ""
    identity: dict[str, JsonValue] = {"key": call.caller_key, "run": call.run, "call": call.call}
    known = {name: value for name, value in identity.items() if value is not None}
    why = "No earlier call of the session was taken for it." if call.attempts <= 1 else _again(call)
    what = f"{call.function} was claimed by {where} at {call.at:%Y-%m-%d %H:%M:%S}Z{attempt}."
    return WhyItem(what, why, "made", {"attempts": call.attempts, "effect": call.effect, **known})


def _again(call: CallRecord) -> str:
    if call.effect in (Effect.KEYED, Effect.TRANSACTIONAL, Effect.IDEMPOTENT):
        return f"An earlier attempt left its outcome open or failed; a {call.effect} call may be repeated."
    return "The earlier attempt certainly had no effect."


def _was(call: CallRecord) -> str | None:
    was = (call.why or {}).get("was")
    if was == State.APPLIED:
        return "Before that, its result was not known."
    return f"Before that, it was {was}." if was else None


def _answers(call: CallRecord, newest: Any) -> Iterator[WhyItem]:
    if not call.joined:
        return
    number = "One later call was" if call.joined == 1 else f"{call.joined} later calls were"
    last = newest if isinstance(newest, dict) else {}
    how = "was taken for it" if last.get("joined") else "had its key or its ids"
    why = (
        f"The newest that got its result, at {str(last.get('at', ''))[:19]}Z, {how}: this one {last.get('reason', '')}."
        if last
        else None
    )
    yield WhyItem(f"{number} taken for it.", why, "answered", last)


def following(desk: Desk, call: CallRecord) -> Following:
    """What follows if the call comes once more, from a process that starts now; nothing is changed."""
    viewer = desk.viewer

    def work(tx: Connection) -> Step:
        row = desk.row(tx, call.key)
        about = viewer.row(tx, row.about) if row.about is not None else None
        earlier = json.loads(about.arguments or "{}") if about is not None else None
        request = CallRequest(
            session=row.session,
            function=row.kind,
            effect=Effect(row.effect),
            identity=Identity(row.digest, row.caller_key, row.run, row.call, row.family),
            arguments=call.arguments or {},
            key="",
            timeout=0,
            client=Running(),
            # Only the program knows which arguments are words; a doubtful call was compared with its earlier one.
            differs_in_prose=lambda arguments: arguments == earlier,
        )
        return viewer.begin(tx, request, None, has_looked=False)

    return _following(call, desk.database.rehearse(work))


def _following(call: CallRecord, step: Step) -> Following:
    match step:
        case Claim() if step.key == call.key:
            return Following("made", f"It is made, as attempt {step.token} of this call.")
        case Claim():
            return Following("made", "It is another call, and is made.")
        case Recorded() if step.result is None:
            return Following("answered", f"It is not made. The result of {step.key} is not known: OutcomeUnknown.")
        case Recorded():
            return Following("answered", f"It is not made, and gets the result of {step.key}, which {step.why}.")
        case RunningCall():
            return Following("waits", f"It waits for {step.key}, which runs in {step.where}, and gets its result.")
        case UnresolvedCall():
            text = f"First it is found out with reconcile= whether {step.key} was applied; without it: OutcomeUnknown."
            return Following("found_out_first", text)
        case Doubt():
            return Following("doubtful", f"It is not made (DoubtfulCall): {step.about} {step.what}.")
        case Conflict():
            return Following("conflict", f"It is not made (KeyConflict): {step.key} has its key.")
        case UndoneCall():
            return Following("undone", f"It is not made (EffectUndone): {step.key} was undone.")


def todo_of(desk: Desk, call: CallRecord) -> Iterator[str]:
    """What a person can do about a call."""
    url = desk.database.url
    if call.state is State.DOUBTFUL:
        yield to_settle(call.key, IDENTITY, url)
    elif call.is_unsettled:
        yield to_settle(call.key, OUTCOME, url)
    elif call.state is State.APPLIED and not call.has_result:
        yield to_settle(call.key, RESULT, url)


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}." if text else ""


def _without(values: Mapping[str, JsonValue], *names: str) -> dict[str, JsonValue]:
    return {name: value for name, value in values.items() if name not in names}
