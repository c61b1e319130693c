"""Undoing an applied call: by a call of its `undo=` function with a key of its own, so that it happens once.

The row names the undoing call before that is made, and its result is not returned from then on. A process that is
killed anywhere leaves what the next `undo` of the same key finishes.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, update

from activities.effects import identity
from activities.effects.arguments import Bound
from activities.effects.calls import State
from activities.effects.desk import CallRecord, Desk, clause_about
from activities.effects.errors import EffectRefused
from activities.effects.function import Function
from activities.effects.ledger import LEDGER
from activities.effects.remedies import to_see
from activities.storage.store import StoreUnavailable

RESULT = "result"
"""The parameter of an `undo=` function that gets the result of the call that it undoes."""


def check_undo(name: str, function: Function) -> None:
    """Raise TypeError if the `undo=` of a function cannot undo it."""
    undo = undo_of(function)
    if undo is None or undo.store is not function.store:
        other = getattr(function.options.undo, "__name__", repr(function.options.undo))
        raise TypeError(
            f"undo= of {name} is {other}, which is no function of the same Effects: decorate it too, as in"
            f" @effects.idempotent, above {name}."
        )
    known = {*function.arguments.own, RESULT}
    parameters = undo.arguments.public.parameters.values()
    lacking = [one.name for one in parameters if one.default is inspect.Parameter.empty and one.name not in known]
    if lacking:
        raise TypeError(
            f"undo= of {name}, {undo.name}, needs {lacking[0]!r}, which is neither a recorded argument of {name} nor"
            f" {RESULT!r}: give it a default, or leave it out of ignore=."
        )


def undo_of(function: Function) -> Function | None:
    """The `undo=` of a function, if it is a function of an Effects."""
    found = getattr(function.options.undo, "replan_function", None)
    return found if isinstance(found, Function) else None


@dataclass(frozen=True)
class UndoRow:
    """What the row of a call says while another call undoes it: `begin`, then `end` or `take_back`."""

    desk: Desk
    key: str
    """The key of the call that is undone."""
    by: str
    """The key of the row of the call that undoes it."""

    def begin(self) -> None:
        """Record that the call is about to be made; raises EffectRefused if the other one was undone meanwhile."""
        self._mark([State.APPLIED], {"undone_by": self.by})

    def end(self) -> None:
        """Record that the call was applied."""
        self._mark([State.APPLIED, State.UNDONE], {"state": State.UNDONE.value, "undone_at": datetime.now(UTC)})

    def _mark(self, states: Sequence[State], values: Mapping[str, Any]) -> None:
        row = (LEDGER.c.key == self.key, LEDGER.c.state.in_([state.value for state in states]))
        changed = self.desk.database.write(lambda tx: tx.execute(update(LEDGER).where(*row).values(values)).rowcount)
        if not changed:
            reason, look = f"The call {self.key} has changed meanwhile", to_see(self.desk.database.url, "effects")
            raise EffectRefused("changed", self.key, reason, f"{look} shows what it is now")

    def take_back(self) -> None:
        """Record that the call failed: unless it may have been applied, the other one stands as before."""

        def work(tx: Connection) -> None:
            by = self.desk.viewer.row(tx, self.by)
            if by is None or by.state == State.VOID:
                mine = (LEDGER.c.key == self.key, LEDGER.c.state == State.APPLIED.value, LEDGER.c.undone_by == self.by)
                tx.execute(update(LEDGER).where(*mine).values(undone_by=None))

        with suppress(StoreUnavailable):  # then the next `undo` finds out
            self.desk.database.write(work)


@dataclass(frozen=True)
class UndoFunctionCall(UndoRow):
    """The call that undoes another one: `begin`, `make`, then `end` or `take_back`."""

    session: str
    function: Function
    values: Mapping[str, Any]

    def make(self) -> None:
        """Make the call of a plain function."""
        with identity.scope(self.session, f"undo/{self.key}", None, None):
            self.function.wrapper()(**self.values)

    async def make_async(self) -> None:
        """Make the call of an async function."""
        with identity.scope(self.session, f"undo/{self.key}", None, None):
            await self.function.wrapper()(**self.values)


def plan_undo(desk: Desk, functions: Mapping[str, Function], key: str) -> UndoFunctionCall | None:
    """The call that undoes the call with this key; None if it is undone already.

    Raises EffectRefused if it was not applied, or nothing can undo it.
    """
    call = desk.call(key)
    if call.state is State.UNDONE:
        return None
    if call.state is not State.APPLIED:
        remedy = "settle it first" if call.is_unsettled else "there is nothing to undo"
        raise EffectRefused("not_applied", key, f"The call {key} {clause_about(call)}", remedy)
    function = functions.get(call.function)
    if function is None:
        reason = f"This Effects has no function {call.function}, which made the call {key}"
        raise EffectRefused("no_undo", key, reason, "import the module that declares it")
    undo = undo_of(function)
    if undo is None:
        raise EffectRefused("no_undo", key, f"{call.function} has no undo=", "name a function that undoes it")
    return UndoFunctionCall(
        desk, key, undo.key_of(call.session, f"undo/{key}"), call.session, undo, _values(call, function, undo)
    )


def _values(call: CallRecord, function: Function, undo: Function) -> dict[str, Any]:
    """The arguments of the call that undoes `call`."""
    wanted = undo.arguments.public.parameters
    values = function.arguments.decode(call.arguments or {}, Bound({}, {}, []))
    if RESULT in wanted:
        if not call.has_result and wanted[RESULT].default is inspect.Parameter.empty:
            remedy = "settle it as applied, with its result"
            raise EffectRefused("no_undo", call.key, f"The result of {call.key} is not known", remedy)
        values[RESULT] = function.decode(json.dumps(call.result)) if call.has_result else None
    return {name: value for name, value in values.items() if name in wanted}
