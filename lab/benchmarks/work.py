"""The work that both sides do, with the same payloads."""

from pydantic import BaseModel, ConfigDict

TEXT = "The quick brown fox jumps over the lazy dog, again and again. " * 3
"""The argument and the result of every step: 186 bytes, a short answer of a tool."""
FAILURES = 2
"""How often `stumble` fails before it succeeds."""


class Words(BaseModel):
    """The argument and the result of a step."""

    model_config = ConfigDict(frozen=True)

    text: str


class Work(BaseModel):
    """One task."""

    model_config = ConfigDict(frozen=True)

    kind: str
    """`echo`, `stumble`, or a kind of Replan's own."""
    items: tuple[Words, ...]
    """One step each."""
    is_parallel: bool = False
    """Whether no step needs another."""

    @classmethod
    def of(cls, steps: int, *, kind: str = "echo", is_parallel: bool = False) -> "Work":
        """Work of so many steps."""
        return cls(kind=kind, items=(Words(text=TEXT),) * steps, is_parallel=is_parallel)
