"""`python -m evals.retry_waste`: what retries come to, in the published model."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from evals.retry_waste.published_report import Published
from runtime.process import leave

SEEDS = 1000


def main(
    published: Annotated[bool, typer.Option("--published", help="The published model instead of workflows.")] = False,
    seeds: Annotated[int, typer.Option(min=2, help="How many seeds, from 0.")] = SEEDS,
) -> None:
    """Measure wasted retries; exit code 1 if a figure of the published model is not what is expected of it."""
    if not published:
        raise typer.BadParameter("Only --published is there so far.", param_hint="--published")

    def shown(numbers: Iterable[int]) -> Iterable[int]:
        return track(list(numbers), "seeds", console=Console(stderr=True), disable=not sys.stderr.isatty())

    report = Published.run(seeds, shown)
    typer.echo("\n\n".join(report.pages()))
    leave(0 if all(check.holds for check in report.checks) else 1)


if __name__ == "__main__":
    typer.run(main)
