"""The tools with which an agent asks what its calls did, where no task stands behind them: `replan_outcome` and others.

No agent settles for a person what nobody knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue, ValidationError

from activities.borders import validation
from activities.effects.calls import State
from activities.effects.desk import CallRecord, Desk, clause_about
from activities.effects.errors import EffectRefused
from activities.effects.explanation import explain
from activities.effects.recognition import Identity
from activities.effects.undoing import UndoRow
from activities.storage.store import StoreUnavailable
from extras.gateway import results
from extras.gateway.effect_calls import EffectCalls, arguments_of, row_key
from extras.gateway.offers import OF_STORE, OfCall, Offer, OfSession, OwnArgs, Undone
from extras.gateway.request import AgentRequest
from extras.gateway.results import Do
from workflows.faults.fault import Applied, Code

MAX_CALLS = 200
"""The most calls of a session that are listed and undone together, the newest."""


@dataclass(frozen=True)
class AskedOfStore:
    """A call of one of the gateway's own tools."""

    calls: EffectCalls
    request: AgentRequest
    args: dict[str, JsonValue]

    @property
    def desk(self) -> Desk:
        return Desk(self.calls.store.database, lambda: self.calls.store.rows)

    async def read(self, work: Callable[[], Any]) -> Any:
        """Ask the store in a thread."""
        return await asyncio.wrap_future(self.calls.store.database.submit(work))

    async def record(self, id: str) -> CallRecord:
        """A call of the session; raises EffectRefused for any other id, whether a call has it or not."""
        record: CallRecord = await self.read(lambda: self.desk.call(id))
        if record.session != self.request.session.name:
            raise EffectRefused("unknown_key", id, f"This session has no call {id[:100]!r}", "take one that it has")
        return record

    async def records(self) -> list[CallRecord]:
        """The newest calls of the session, the oldest of them first."""
        found: list[CallRecord] = await self.read(lambda: self.desk.calls(self.request.session.name))
        return found[-MAX_CALLS:]


@dataclass(frozen=True)
class StoreTool:
    """A tool of the gateway itself; `answer` gets a call and the checked arguments, and returns a CallToolResult."""

    args: type[OwnArgs]
    about: str
    answer: Callable[[AskedOfStore, Any], Awaitable[dict[str, Any]]]
    is_read: bool = True

    async def __call__(self, asked: AskedOfStore) -> dict[str, Any]:
        try:
            args = self.args.model_validate(asked.args)
        except ValidationError as error:
            return results.fault(
                Do.CHANGE, code=Code.INVALID_INPUT.value, reason=validation.fields_of(error), is_structured=False
            )
        try:
            return await self.answer(asked, args)
        except EffectRefused as error:
            return results.fault(Do.CHANGE, code=error.code, reason=str(error), is_structured=False)
        except StoreUnavailable as error:
            code, wait = Code.STORE_UNAVAILABLE.value, results.WAIT_SECONDS
            return results.fault(Do.WAIT, code=code, reason=str(error), wait=wait, is_structured=False)


async def outcome(asked: AskedOfStore, args: OfCall) -> dict[str, Any]:
    record = await asked.record(args.id)
    if record.state is State.APPLIED and record.has_result:
        return results.success(record.result, is_structured=False)
    do, wait = _next(record)
    return results.fault(
        do,
        code="unknown_outcome" if record.is_unsettled and record.state is not State.DOUBTFUL else record.state.value,
        reason=f"The call {record.key} {clause_about(record)}",
        applied=_applied(record).value,
        wait=wait,
        task=record.key,
        is_structured=False,
    )


def _next(record: CallRecord) -> tuple[Do, float | None]:
    """What an agent should do about a call without a result, and after how many seconds."""
    if record.is_unsettled:
        return Do.PERSON, None
    if record.state in (State.VOID, State.SAME, State.ANOTHER):
        return Do.WAIT, 0.0  # the next equal call is made, or gets the result of the earlier one
    if record.state is State.OPEN:
        return Do.WAIT, results.WAIT_SECONDS
    return Do.DO_NOT_REPEAT, None


def _applied(record: CallRecord) -> Applied:
    if record.state in (State.APPLIED, State.UNDONE):
        return Applied.APPLIED
    return Applied.UNKNOWN if record.state in (State.OPEN, State.UNKNOWN) else Applied.NONE


async def _effects(asked: AskedOfStore, args: OfSession) -> dict[str, Any]:
    rows: list[JsonValue] = [
        {
            "id": record.key,
            "kind": record.function,
            "state": record.state.value,
            "at": record.at.isoformat(),
            "result": record.result,
        }
        for record in await asked.records()
    ]
    return results.success({"effects": rows}, is_structured=True)


async def _explain(asked: AskedOfStore, args: OfCall) -> dict[str, Any]:
    record = await asked.record(args.id)
    document: JsonValue = await asked.read(lambda: explain(asked.desk, record).document())
    return results.success(document, is_structured=True)


async def _undo(asked: AskedOfStore, args: Undone) -> dict[str, Any]:
    chosen = [await asked.record(args.id)] if args.id else reversed(await asked.records())
    done = [await _undo_one(asked, record) for record in chosen if args.id or record.state is State.APPLIED]
    return results.success({"undone": done}, is_structured=True)


async def _undo_one(asked: AskedOfStore, record: CallRecord) -> JsonValue:
    """Undo a call, by the companion of its tool; what came of it."""
    if record.state is not State.APPLIED:
        done = record.state is State.UNDONE
        return {"id": record.key, "undone": done, "why": [] if done else [f"It {clause_about(record)}."]}
    kind = asked.calls.tools.kind(record.function)
    companion = kind.spec.undo if kind else None
    if companion is None:
        return {"id": record.key, "undone": False, "why": [f"{record.function} has no undo."]}
    about = {"args": record.arguments, "result": record.result, "key": record.key}
    offer = Offer(companion.kind, companion.kind, asked.calls.effect_of(companion.kind), {"name": companion.kind})
    request = replace(asked.request, key=f"undo/{record.key}", resent="")
    mark = UndoRow(asked.desk, record.key, row_key(request.session.name, companion.kind, Identity("", request.key), ""))
    await asked.read(mark.begin)
    answer = await asked.calls.call(offer, arguments_of(companion, about), request)
    await asked.read(mark.take_back if answer.get("isError") else mark.end)
    why = [block["text"] for block in answer["content"] if block.get("type") == "text"] if answer.get("isError") else []
    return {"id": record.key, "undone": not answer.get("isError"), "why": [*why]}


_ANSWERS: Mapping[str, Callable[[AskedOfStore, Any], Awaitable[dict[str, Any]]]] = {
    "replan_outcome": outcome,
    "replan_effects": _effects,
    "replan_undo": _undo,
    "replan_explain": _explain,
}
BY_NAME: Mapping[str, StoreTool] = {
    name: StoreTool(entry.args, entry.about, _ANSWERS[name], entry.is_read) for name, entry in OF_STORE.items()
}
