"""Grants: what a task may change after it has read text that anybody may have written.

Such text may give orders, and whoever plans may obey them. So what is planned afterwards may change the world only by
kinds that somebody named before: in a plan, or with `--allow`.
"""

from collections.abc import Collection, Iterable, Mapping

from pydantic import BaseModel, Field

from workflows.catalogue import Effect, ToolSpec


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
