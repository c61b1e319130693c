"""The options that `worker.py` and `starter.py` share; importing them takes no time, unlike the settings."""

from typing import Annotated

import typer

from runtime.process import version

HELP = {"help_option_names": ["--help", "-h"]}


def show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"Replan {version()}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version of Replan, and exit.")
]
