"""Loops: a model that makes the same call again is told once that nothing has changed, and then refused."""

from collections.abc import Mapping

from pydantic import BaseModel, Field, JsonValue

from workflows.catalogue import Effect
from workflows.plan import digest

TOLD = "You had made the same call before, with the same result, and nothing has changed since: do something else."
"""What the planner is told with the second result."""


class LastCall(BaseModel):
    """What the newest of several identical calls showed."""

    revision: int
    shown: str
    """Digest of its result."""
    changes: int
    """Effect steps that the task had finished then."""
    count: int = 1
    """How many in a row showed the same."""


class LoopGuard(BaseModel):
    """The calls of the newest turns; plain data, part of Progress.

    Calls are in a row when the next turn makes them again, whatever else the turns do. A call that waits for the world
    is not in a row with itself when the turn between waits for a while.
    """

    calls: dict[str, LastCall] = Field(default_factory=dict)
    """By digest of kind and resolved arguments."""

    def note(
        self,
        kind: str,
        args: Mapping[str, JsonValue],
        result: JsonValue,
        effect: Effect,
        *,
        revision: int,
        changes: int,
    ) -> bool:
        """Note a finished call of the turn `revision`, after which the task has finished `changes` effect steps.

        Returns whether it showed what the same call in the turn before did, and nothing changed the world between. An
        idempotent call itself changed nothing then; of other effects that is not known.
        """
        self.calls = {key: one for key, one in self.calls.items() if one.revision >= revision - 1}
        made, shown = digest(kind, dict(args)), digest(result)
        before, own = self.calls.get(made), int(effect is Effect.IDEMPOTENT)
        is_same = before is not None and (before.shown, before.changes + own) == (shown, changes)
        count = before.count + 1 if before and is_same else 1
        self.calls[made] = LastCall(revision=revision, shown=shown, changes=changes, count=count)
        return is_same

    def refuses(self, kind: str, args: Mapping[str, JsonValue], *, revision: int, changes: int) -> bool:
        """Whether the turn after `revision` would make a call a third time in a row, in a world that is the same."""
        last = self.calls.get(digest(kind, dict(args)))
        return last is not None and last.count > 1 and (last.revision, last.changes) == (revision, changes)
