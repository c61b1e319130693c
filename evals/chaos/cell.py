"""One line of the table of placed kills: what was expected, and what three tasks came to."""

from collections import Counter

from pydantic import BaseModel, computed_field


class Expected(BaseModel):
    """How a task ends, and how often its effect happens."""

    statuses: tuple[str, ...]
    effects: tuple[int, ...] = ()
    """The counts that are right; empty for a kind without effect."""

    def __str__(self) -> str:
        counts = " or ".join(map(str, self.effects)) or "-"
        return f"{' or '.join(self.statuses)}, {counts}"


class Cell(BaseModel):
    """What one kind came to at one point."""

    effect: str
    """The kind's effect, and more where that matters."""
    point: str
    expected: Expected
    ended: list[str] = []
    """The status of each task."""
    effects: list[int | None] = []
    """How often the effect of each task happened."""
    remark: str = ""
    """What else was wrong."""
    is_apart: bool = False
    """Whether it shows what no promise covers."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def is_right(self) -> bool:
        """Whether every task ended as it should, with the effects that it should have."""
        counts = [count for count in self.effects if count is not None]
        as_said = set(self.ended) <= set(self.expected.statuses) and bool(self.ended)
        return as_said and set(counts) <= set(self.expected.effects) and not self.remark

    @property
    def row(self) -> tuple[str, ...]:
        """The line of the table."""
        counts = " ".join("-" if count is None else str(count) for count in self.effects)
        ended = " ".join(f"{number} x {status}" for status, number in Counter(self.ended).items())
        verdict = "apart" if self.is_apart and self.is_right else "right" if self.is_right else "WRONG"
        return self.effect, self.point, ended, counts, str(self.expected), verdict

    def __str__(self) -> str:
        return f"{self.effect} {self.point}: {self.ended}, effects {self.effects}, not {self.expected}. {self.remark}"
