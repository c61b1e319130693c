"""What a trial came to, as a table and as JSON."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, computed_field
from rich.table import Table

from evals.chaos.account import Account
from evals.chaos.cell import Cell


class Report(BaseModel):
    """Everything that is worth keeping of a trial."""

    tasks: int
    seed: int
    store: str
    machine: str
    seconds: float = 0.0
    """Of the random part."""
    blows: dict[str, int] = {}
    """What was done to it, by sort."""
    workers: dict[str, int] = {}
    """What became of the workers."""
    account: Account | None = None
    """Of the random part."""
    placed: list[Cell] = []
    """Of the placed kills and the races."""
    stuck: str = ""
    """Why the trial was given up, where it was."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def broken(self) -> list[str]:
        """The promises that were broken, one line each."""
        said = [self.stuck] if self.stuck else []
        said += self.account.broken if self.account else []
        return said + [f"placed: {cell}" for cell in self.placed if not cell.is_right]

    def tables(self) -> list[Table]:
        """All of it for people."""
        tables = [_two_columns("Random blows", self._figures(self.account))] if self.account else []
        return [*tables, _placed(self.placed)] if self.placed else tables

    def _figures(self, account: Account) -> Mapping[str, Any]:
        return {
            "tasks": _spoken(account.tasks),
            "why not completed": _spoken(account.codes),
            "blows": _spoken(self.blows),
            "workers": _spoken(self.workers),
            "payment service": _spoken(account.troubles),
            "effects applied": _spoken(account.applied),
            "effects against what was said": _spoken(account.verdicts),
            "duplicates": account.duplicates,
            "lost": account.lost,
            "results of earlier effects": account.replayed,
            "effects taken back": account.undone,
            "unknown effects looked for": _spoken(account.reconciled),
            "steps by attempts": _spoken(account.attempts),
            "finished steps that ran again": len(account.ran_again),
            "histories that do not replay": len(account.not_replaying),
            "total of all accounts": f"{account.total_before} -> {account.total_after}",
            "seconds": round(self.seconds),
        }


def _two_columns(title: str, figures: Mapping[str, Any]) -> Table:
    table = Table("what", "how many", title=title, title_justify="left")
    for what, figure in figures.items():
        table.add_row(what, str(figure))
    return table


def _placed(cells: list[Cell]) -> Table:
    table = Table("effect", "point", "ended", "effects", "expected", "", title="Placed", title_justify="left")
    for cell in cells:
        table.add_row(*cell.row)
    return table


def _spoken(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in counts.items()) or "none"
