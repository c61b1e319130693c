"""`python -m evals.faults`: attempts that could not help, in a worker without `replan.FaultsPlugin` and with it."""

import asyncio
import importlib.util
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from benchmarks.processes import our_server
from benchmarks.report import Machine, Report, write
from evals.faults import trial
from evals.faults.libraries import LIBRARIES, Kind
from evals.faults.servers import LIMIT_SECONDS, NoServer
from evals.faults.trial import ATTEMPTS, DONE, Cell, Side
from evals.frameworks.environments import NoEnvironment, python_of
from evals.markdown import table
from runtime.dev_server import ServerUnavailable
from runtime.process import leave

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LAB = Path(__file__).parents[2]


class FaultsReport(Report):
    """Each situation of each library, without the line and with it."""

    attempts: int
    """The most attempts that the retry policy allows."""
    cells: tuple[Cell, ...]


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help=f"Of {', '.join(LIBRARIES)}; all.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write each situation to this file.")] = None,
) -> None:
    """Call libraries wrongly, and count attempts; exit code 1 if the line loses a success or leaves a useless retry.

    Libraries that are not here are installed into an environment that lies over this one, once.
    """
    chosen = names or [*LIBRARIES]
    for name in chosen:
        if name not in LIBRARIES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(LIBRARIES)}.", param_hint="NAME")
    logging.disable()  # each failed attempt is logged
    try:
        if missing(chosen):
            _go_on_in(asyncio.run(python_of(REQUIREMENTS, say, is_over=True)))
        cells = asyncio.run(run(chosen))
    except (NoEnvironment, NoServer, ServerUnavailable) as problem:
        typer.echo(str(problem), err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    typer.echo("\n\n".join(pages(cells)))
    typer.echo(f"\nOn {Machine.this()}")
    write(FaultsReport(machine=Machine.this(), attempts=ATTEMPTS, cells=tuple(cells)), json)
    leave(0 if is_good(cells) else 1)


def missing(names: Sequence[str]) -> list[str]:
    """The packages of these libraries that cannot be imported here."""
    packages = (package for name in names for package in LIBRARIES[name].packages)
    return [package for package in packages if importlib.util.find_spec(package) is None]


def _go_on_in(python: Path) -> None:
    if Path(sys.prefix) == python.parents[1]:
        raise NoEnvironment(f"{python.parents[1]} lacks {', '.join(missing([*LIBRARIES]))}: delete it, then again.")
    # The other environment does not know this checkout.
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (LAB, LAB.parent)))
    os.execv(python, [str(python), "-m", "evals.faults", *sys.argv[1:]])  # noqa: S606  # no shell is needed


def say(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


async def run(names: Sequence[str]) -> list[Cell]:
    """The cells of these libraries, with a server of their own. Raises NoServer, ServerUnavailable."""
    with tempfile.TemporaryDirectory(prefix="replan-faults-") as folder:
        async with our_server(Path(folder)) as server:
            return await trial.run(await Client.connect(server.address), names, say)


def is_good(cells: Sequence[Cell]) -> bool:
    """Whether no useless retry is left, and nothing else changed."""
    return not any(cell.useless(cell.within) for cell in cells) and all(cell.is_unharmed for cell in cells)


def pages(cells: Sequence[Cell]) -> list[str]:
    """The tables, in Markdown."""
    names = list(dict.fromkeys(cell.library for cell in cells))
    rows = [_row(name, [cell for cell in cells if cell.library == name]) for name in names]
    rows += [_row("all", cells)] if len(names) > 1 else []
    columns = ("library", "attempts", "with the line", "that could not help", "with it", "calls done", "with it")
    detail = ("library", "situation", "attempts", "with the line", "its failure")
    return [
        table(columns, rows),
        table(detail, _details(cells)),
        f"Without the line a call is made {ATTEMPTS} times at the most. A rate limit is over after {LIMIT_SECONDS} s,"
        " for which the service asks; what else passes, passes after two attempts.",
    ]


def _row(name: str, cells: Sequence[Cell]) -> list[str]:
    passing = [cell for cell in cells if cell.kind is not Kind.NEVER]
    attempts = [sum(cell.without.attempts for cell in cells), sum(cell.within.attempts for cell in cells)]
    useless = [sum(cell.useless(cell.without) for cell in cells), sum(cell.useless(cell.within) for cell in cells)]
    done = [sum(cell.without.is_done for cell in passing), sum(cell.within.is_done for cell in passing)]
    return [name, *map(str, attempts), *map(str, useless), *(f"{number} of {len(passing)}" for number in done)]


def _details(cells: Sequence[Cell]) -> Iterator[list[str]]:
    """A row for the situations of a library in which the same happened."""
    for (library, *marks), group in groupby(
        cells, lambda cell: (cell.library, _mark(cell.without), _mark(cell.within))
    ):
        found = list(group)
        raised = dict.fromkeys(cell.without.ended.partition(":")[0] for cell in found if not cell.without.is_done)
        yield [library, ", ".join(cell.situation for cell in found), *marks, ", ".join(f"`{name}`" for name in raised)]


def _mark(side: Side) -> str:
    return f"{side.attempts}, {DONE if side.is_done else 'failed'}"


if __name__ == "__main__":
    typer.run(main)
