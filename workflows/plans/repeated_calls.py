"""Guards that reject calls: repeats of a failed call, and repeats without progress.

Runs when a proposal is checked and when a step starts, and after each call and observation, which the guards note.
"""

from collections.abc import Mapping

from pydantic import BaseModel, Field, JsonValue

from workflows.json_values import digest
from workflows.plans.catalogue import Effect

REPEATED_NOTICE = (
    "You had made the same call before, with the same result, and nothing has changed since: do something else."
)
"""What the planner is told if a call and its result are the same as before, and nothing has changed between them."""
MAX_REMEMBERED = 50
"""How many different calls a task remembers, those of the two newest turns in any case: the longest cycle noticed."""
WAITED = 5.0
"""Seconds. If a call takes so long, the world may have changed meanwhile: a tool may wait on purpose."""


class FailedCall(BaseModel):
    """A call that failed with a persistent fault."""

    effects: int
    """How many effects the task had applied when the call failed."""
    looked: str | None = None
    """Digest of the read (its kind and arguments) that shows whether the state has changed; None if there is none."""
    seen: str | None = None
    """Digest of the state when the call failed; a later result of the read with another digest is a change."""
    told: str | None = Field(default=None, exclude_if=lambda told: told is None)
    """Where the fault has more fields than the read, the digest of those of the read; takes the place of `seen`."""
    unmoved: int = Field(default=0, exclude_if=lambda effects: effects == 0)
    """How many effects the task had applied when the read showed the state of the fault: none changed the state."""


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
        effects: int = 0,
    ) -> None:
        """Record the state that a read showed after the call of `kind` with `args` was rejected.

        `look` and `look_args` are the read, `shown` is its result, and `rejected` is the state that the fault
        contained. Later results of the read are compared with `rejected` if `rejected` has all fields of `shown`,
        else with `shown`. `effects` is how many effects the task has applied until now.
        """
        looked = digest(look, look_args)
        self.seen[looked] = digest(shown)
        call = self.failed.get(digest(kind, dict(args)))
        if call is not None and call.seen is None:
            is_alike = _have_same_fields(rejected, shown)
            call.looked, call.seen = looked, digest(rejected) if is_alike else self.seen[looked]
            call.told = _digest_of_shared_fields(rejected, shown)
            if self.seen[looked] == (call.seen if is_alike else call.told):
                call.unmoved = effects

    def refuses(self, kind: str, args: Mapping[str, JsonValue], effects: int) -> bool:
        """Whether this call must be rejected: it failed persistently before, and nothing has changed since.

        `effects` is how many effects the task has applied until now.
        """
        call = self.failed.get(digest(kind, dict(args)))
        if call is None:
            return False
        if effects > max(call.effects, call.unmoved):  # it may have changed the state
            return False
        before = call.seen if call.told is None else call.told
        return call.looked is None or self.seen.get(call.looked) == before


def _have_same_fields(state: JsonValue, other: JsonValue) -> bool:
    return isinstance(state, dict) and isinstance(other, dict) and state.keys() == other.keys() and bool(other)


def _digest_of_shared_fields(rejected: JsonValue, shown: JsonValue) -> str | None:
    """The digest of the fields of `rejected` that `shown` has, too; None unless `rejected` has all of them and more."""
    # The body of an HTTP error often has a sentence beside the state.
    if not (isinstance(rejected, dict) and isinstance(shown, dict) and shown and shown.keys() < rejected.keys()):
        return None
    return digest({name: rejected[name] for name in shown})


class LastCall(BaseModel):
    """The newest of several identical calls (the same kind and arguments)."""

    revision: int
    """The number of the turn that made the call."""
    shown: str
    """Digest of the result of this call, to compare it with the result of the next identical call."""
    known: int = Field(default=1, exclude_if=lambda known: known == 1)
    """How many identical calls, this call included, had the same result in the same state (`state`)."""
    state: int
    """What `ProgressGuard.state` was when this call had ended."""


class ProgressGuard(BaseModel):
    """Rejects a call that a planner makes for the third time although the task makes no progress, in every strategy.

    A call makes progress if the task learns or changes something by it: no identical call had the same result, or
    failed with the same fault, since an effect was applied or a person said something. A call is rejected if two
    identical calls before it had the same result, and since the turn of the second of them, that turn included, no call
    has made progress and no person said something. So no call, plan, or sequence of plans is repeated without end.

    Time is progress, too: a planner may wait, and look again. See `WAITED`.
    """

    calls: dict[str, LastCall] = Field(default_factory=dict)
    """For each different call, its newest repeat; the key is the digest of its kind and resolved arguments. A call that
    failed has the fault in its key, too. The newest call is the last."""
    repeats: int = 0
    """How many of the task's effects were idempotent calls that had been made before, and so changed nothing."""
    progressed: int = 0
    """The newest turn in which a call made progress."""
    waited: int = 0
    """The newest turn in which a call took WAITED seconds or more."""

    def note(
        self,
        kind: str,
        args: Mapping[str, JsonValue],
        result: JsonValue,
        effect: Effect,
        *,
        revision: int,
        changes: int,
        sent: int = 0,
        has_waited: bool = False,
        is_by_model: bool = False,
    ) -> bool:
        """Record a completed call of the turn `revision`.

        `changes` is how many effects the task has applied until now, and `sent` how many messages people have sent the
        planner. `has_waited`: the call, or the waits before it, took WAITED seconds or more. `is_by_model`: a model
        wrote the result, so that the result differs although nothing has changed.

        Returns True if there was an identical call with the same result, and nothing has changed since.
        """
        made, shown = digest(kind, dict(args)), digest(result)
        # A repeated idempotent call is itself counted as an effect, but changes nothing.
        before, own = self.calls.get(made), int(effect is Effect.IDEMPOTENT)
        is_shown = before is not None and before.shown == shown
        is_known = before is not None and (is_shown or is_by_model) and before.state == self.state(changes - own, sent)
        # Not of this turn: which of its calls ends first is chance.
        is_next = before is not None and before.revision >= revision - 1
        has_progressed = before and (
            self._has_waited(before.revision) or (not is_next and self.progressed > before.revision)
        )
        self.repeats += own if is_known else 0
        last = LastCall(revision=revision, shown=shown, state=self.state(changes, sent))
        last.known = before.known + 1 if before and is_known else 1
        self._keep(made, last)
        if has_waited:
            self.waited = revision
        if not is_known:
            self.progressed = revision
        return is_known and is_shown and not has_progressed

    def note_fault(
        self, kind: str, args: Mapping[str, JsonValue], fault: JsonValue, *, revision: int, changes: int, sent: int
    ) -> None:
        """Record a call that failed, as `note` does; `fault` is its code, and the state that it reported."""
        made, state = digest(kind, dict(args), fault), self.state(changes, sent)
        before = self.calls.get(made)
        if before is None or before.state != state:
            self.progressed = revision
        self._keep(made, LastCall(revision=revision, shown="", state=state))

    def refuses(self, kind: str, args: Mapping[str, JsonValue], *, changes: int, sent: int = 0) -> bool:
        """Whether this call is the third identical one without progress (see `note`)."""
        last = self.calls.get(digest(kind, dict(args)))
        if last is None or last.known == 1 or last.state != self.state(changes, sent):
            return False
        return self.progressed < last.revision and not self._has_waited(last.revision)

    def state(self, changes: int, sent: int) -> int:
        """A number that changes if an effect of the task changes something, or if a person sends a message."""
        return changes - self.repeats + sent

    def _has_waited(self, since: int) -> bool:
        """Whether a turn from `since` on has waited, and different calls were made: one slow call alone is no wait."""
        return self.waited >= since and sum(call.revision >= since for call in self.calls.values()) > 1

    def _keep(self, made: str, last: LastCall) -> None:
        self.calls.pop(made, None)  # the newest is the last
        self.calls[made] = last
        old = [key for key, call in self.calls.items() if call.revision < last.revision - 1]
        for key in old[: max(0, len(self.calls) - MAX_REMEMBERED)]:
            del self.calls[key]
