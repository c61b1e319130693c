"""What is measured: pieces of work that both sides do, with the same payloads."""

from pydantic import BaseModel, ConfigDict

TEXT = "The quick brown fox jumps over the lazy dog, again and again. " * 3
"""The argument and the result of every step: 186 bytes, a short answer of a tool."""
FAILURES = 2
"""How often a `stumble` fails before it works."""


class Words(BaseModel):
    """The argument and the result of a step."""

    model_config = ConfigDict(frozen=True)

    text: str


class Work(BaseModel):
    """One task: the same steps on both sides."""

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


class Sizes(BaseModel):
    """How much is done in one round."""

    model_config = ConfigDict(frozen=True)

    short: int = 20
    long: int = 40
    """Sequential steps; the difference of the two is what each additional step costs."""
    tasks: int = 100
    task_steps: int = 5
    """Tasks that run at the same time, and the sequential steps of each."""
    parallel: int = 20
    """Steps of the task whose steps run at the same time; more than `routing.MAX_PARALLEL` would wait."""
