"""`python -m benchmarks.classify`: what it costs to find out what an exception is."""

import gc
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import httpx2
import typer
from rich.table import Table
from sqlalchemy import exc

from activities.borders import judge
from benchmarks import report
from benchmarks.report import Figure, Machine, Report

CALLS = 2_000
"""How many classifications one sample is the mean of."""
SAMPLES = 9


class Unknown(Exception):
    """A class that no table knows."""


def _status() -> httpx2.HTTPStatusError:
    request = httpx2.Request("POST", "https://shop.example/orders")
    response = httpx2.Response(409, json={"free": ["14:30"]}, request=request)
    return httpx2.HTTPStatusError("409", request=request, response=response)


ERRORS: Mapping[str, Exception] = {
    "a class with a row": ConnectionRefusedError(111, "refused"),
    "a class below one with a row": httpx2.ReadTimeout("late"),
    "an HTTP status, with a JSON body": _status(),
    "a code of a database": exc.OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked")),
    "a group of three": ExceptionGroup("three", [OSError(28, "full"), httpx2.ReadTimeout("late"), TimeoutError()]),
    "a class that no table knows": Unknown(),
}


class ClassifyReport(Report):
    """Microseconds for one classification, by what is classified."""

    microseconds: dict[str, Figure | None]

    def table(self) -> Table:
        """One row for each kind of exception."""
        table = Table("exception", "microseconds")
        for title, figure in self.microseconds.items():
            table.add_row(title, str(figure))
        return table


def main(json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None) -> None:
    """Classify one exception of each kind many times, in this process."""
    found = ClassifyReport(machine=Machine.this(), microseconds={title: _cost(one) for title, one in ERRORS.items()})
    report.show(found.table(), [f"on {found.machine}"], ())
    report.write(found, json)


def _cost(error: Exception) -> Figure | None:
    judge(error)  # imports its table
    return Figure.of([_sample(error) for _ in range(SAMPLES)])


def _sample(error: Exception) -> float:
    gc.collect()
    began = time.perf_counter()
    for _ in range(CALLS):
        judge(error)
    return (time.perf_counter() - began) / CALLS * 1e6


if __name__ == "__main__":
    typer.run(main)
