"""The repeat guard: a call that failed persistently is refused until the world has changed."""

from collections.abc import Mapping

from pydantic import BaseModel, Field, JsonValue

from workflows.plan import digest


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
