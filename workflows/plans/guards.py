"""Guards that reject calls: repeats of a failed call, and loops of one call."""

from collections.abc import Mapping

from pydantic import BaseModel, Field, JsonValue

from workflows.json_values import digest
from workflows.plans.catalogue import Effect

REPEATED_NOTICE = (
    "You had made the same call before, with the same result, and nothing has changed since: do something else."
)
"""What the planner is told if a call and its result are the same as in the previous turn."""


class FailedCall(BaseModel):
    """A call that failed with a persistent fault."""

    effects: int
    """How many effects the task had applied when the call failed."""
    looked: str | None = None
    """Digest of the read (its kind and arguments) that shows whether the state has changed; None if there is no such
    read."""
    seen: str | None = None
    """Digest of the state when the call failed. If a later result of the read has another digest, the state has
    changed."""


class RepeatGuard(BaseModel):
    """Rejects the repeat of a call that failed with a persistent fault, as long as the state has not changed."""

    failed: dict[str, FailedCall] = Field(default_factory=dict)
    """The failed calls, by the digest of their kind and resolved arguments."""
    seen: dict[str, str] = Field(default_factory=dict)
    """What `observe` tools saw last: from the digest of a call (kind and arguments) to the digest of its result."""

    def remember(self, kind: str, args: Mapping[str, JsonValue], effects: int) -> None:
        """Record that this call failed persistently when the task had applied `effects` effects."""
        self.failed[digest(kind, dict(args))] = FailedCall(effects=effects)

    def observed(
        self,
        kind: str,
        args: Mapping[str, JsonValue],
        look: str,
        look_args: JsonValue,
        shown: JsonValue,
        rejected: JsonValue = None,
    ) -> None:
        """Record the state that a read showed after the call of `kind` with `args` was rejected.

        `look` and `look_args` are the read, `shown` is its result, and `rejected` is the state that the fault
        contained. Later results of the read are compared with `rejected` if it has the same fields as `shown`, else
        with `shown`.
        """
        looked = digest(look, look_args)
        self.seen[looked] = digest(shown)
        call = self.failed.get(digest(kind, dict(args)))
        if call is not None and call.seen is None:
            call.looked, call.seen = looked, digest(rejected) if _alike(rejected, shown) else self.seen[looked]

    def refuses(self, kind: str, args: Mapping[str, JsonValue], effects: int) -> bool:
        """Whether this call must be rejected: it failed persistently before, and nothing has changed since.

        `effects` is how many effects the task has applied until now.
        """
        call = self.failed.get(digest(kind, dict(args)))
        if call is None or effects > call.effects:  # an effect of this task may have changed the state
            return False
        return call.looked is None or self.seen.get(call.looked) == call.seen


def _alike(state: JsonValue, other: JsonValue) -> bool:
    return isinstance(state, dict) and isinstance(other, dict) and state.keys() == other.keys() and bool(other)


class LastCall(BaseModel):
    """The newest of several identical calls (the same kind and arguments)."""

    revision: int
    """The number of the turn that made the call."""
    shown: str
    """Digest of the result of this call, to compare it with the result of the next identical call."""
    changes: int
    """How many effects the task had applied in total when this call had ended."""
    count: int = 1
    """How many identical calls in consecutive turns, this call included, had the same result."""


class LoopGuard(BaseModel):
    """Rejects the third of three identical calls in consecutive turns whose results do not change.

    A turn that does not make the call, for example because it waits, starts the count again.
    """

    calls: dict[str, LastCall] = Field(default_factory=dict)
    """For each different call, its newest repeat; the key is the digest of its kind and resolved arguments."""

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
        """Record a completed call of the turn `revision`; `changes` is how many effects the task has applied until now.

        Returns True if the previous turn made the same call with the same result, and no effect was applied between.
        """
        # Only consecutive turns count.
        self.calls = {key: call for key, call in self.calls.items() if call.revision >= revision - 1}
        made, shown = digest(kind, dict(args)), digest(result)
        # A repeated idempotent call is itself counted as an effect, but changes nothing.
        before, own = self.calls.get(made), int(effect is Effect.IDEMPOTENT)
        is_same = before is not None and (before.shown, before.changes + own) == (shown, changes)
        count = before.count + 1 if before and is_same else 1
        self.calls[made] = LastCall(revision=revision, shown=shown, changes=changes, count=count)
        return is_same

    def refuses(self, kind: str, args: Mapping[str, JsonValue], *, revision: int, changes: int) -> bool:
        """Whether this call is rejected: it is the third identical call in consecutive turns, and nothing changed.

        `revision` is the number of the previous turn, `changes` is how many effects the task has applied until now.
        """
        last = self.calls.get(digest(kind, dict(args)))
        return last is not None and last.count > 1 and (last.revision, last.changes) == (revision, changes)
