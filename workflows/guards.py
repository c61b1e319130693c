"""Calls that a planner may not make: repeats of what failed, and effects that untrusted content may have asked for."""

from collections.abc import Collection, Iterable, Mapping

from pydantic import BaseModel, Field, JsonValue

from workflows.catalogue import Effect, ToolSpec
from workflows.plan import digest

TOLD = "You had made the same call before, with the same result, and nothing has changed since: do something else."
"""What the planner is told with the second result."""


class FailedCall(BaseModel):
    """The memory of one call that failed persistently."""

    effects: int
    """Effect steps that the task had finished at the fault."""
    looked: str | None = None
    """Which observation (a read and its arguments, as a digest) shows whether the world changed."""
    seen: str | None = None
    """Digest of what that observation showed at the fault."""


class RepeatGuard(BaseModel):
    """What the guard remembers of one task; plain data, part of Progress."""

    failed: dict[str, FailedCall] = Field(default_factory=dict)
    """By digest of kind and resolved arguments."""
    seen: dict[str, str] = Field(default_factory=dict)
    """By observation, the digest of what it showed last."""

    def remember(self, kind: str, args: Mapping[str, JsonValue], effects: int) -> None:
        """Note that this call failed persistently while `effects` effect steps were finished."""
        self.failed[digest(kind, dict(args))] = FailedCall(effects=effects)

    def observed(
        self,
        kind: str,
        args: Mapping[str, JsonValue],
        look: str,
        look_args: JsonValue,
        shown: JsonValue,
        refused: JsonValue = None,
    ) -> None:
        """Note what a fresh observation showed after a call was refused.

        Later ones are compared with what `refused` the call, where that can be compared with an observation, else with
        the first of them.
        """
        looked = digest(look, look_args)
        self.seen[looked] = digest(shown)
        call = self.failed.get(digest(kind, dict(args)))
        if call is not None and call.seen is None:
            call.looked, call.seen = looked, digest(refused) if _alike(refused, shown) else self.seen[looked]

    def refuses(self, kind: str, args: Mapping[str, JsonValue], effects: int) -> bool:
        """Whether this call would repeat a persistent failure in an unchanged world."""
        call = self.failed.get(digest(kind, dict(args)))
        if call is None or effects > call.effects:
            return False
        return call.looked is None or self.seen.get(call.looked) == call.seen


def _alike(refused: JsonValue, shown: JsonValue) -> bool:
    """Whether two views of the world have the same fields, so that they differ only where the world does."""
    return isinstance(refused, dict) and isinstance(shown, dict) and refused.keys() == shown.keys() and bool(shown)


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


class Grants(BaseModel):
    """What one task may still do; plain data, part of Progress."""

    kinds: list[str] = Field(default_factory=list)
    """Kinds that change the world and were planned in time, with the kinds that may take over from them."""
    is_tainted: bool = False
    """Whether a call that returns such text has begun; whether it ended, and how, does not matter."""

    def plan(self, kinds: Iterable[str], specs: Mapping[str, ToolSpec]) -> None:
        """Note the kinds of a plan that was accepted; one that was made too late grants nothing."""
        if self.is_tainted:
            return
        for kind in kinds:
            self._grant(kind, specs)

    def begin(self, spec: ToolSpec) -> None:
        """Note that a call of this kind begins."""
        self.is_tainted = self.is_tainted or spec.untrusted

    def withholds(self, spec: ToolSpec, named: Collection[str]) -> bool:
        """Whether a kind may not be planned any more; those that whoever gave the task `named` always may."""
        if not self.is_tainted or spec.effect is Effect.READ:
            return False
        return spec.kind not in self.kinds and spec.kind not in named

    def withheld(self, specs: Iterable[ToolSpec], named: Collection[str]) -> list[str]:
        """The kinds that may not be planned any more."""
        return [spec.kind for spec in specs if self.withholds(spec, named)]

    def _grant(self, kind: str, specs: Mapping[str, ToolSpec]) -> None:
        spec = specs.get(kind)
        while spec is not None and spec.kind not in self.kinds:
            if spec.effect is not Effect.READ:
                self.kinds.append(spec.kind)
            spec = specs.get(spec.fallback or "")


def refusal(kind: str) -> str:
    """Why a kind may not be planned, and what may be done instead, for a model and for a person."""
    return (
        f"{kind} changes the world, and no plan named it before this task read text that anybody may have written:"
        f" do without it, or ask the user, who can allow it from the start (--allow {kind})"
    )
