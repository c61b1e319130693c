"""The command line: the commands in their groups; `start` is also reached by a bare `--task`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from console.commands import decide, look, operate, run


class _Switches:
    """A switch takes no value, so that the help shows none: `--json`, not `--json <bool>`."""

    def get_params(self, context: Any) -> Any:  # Typer keeps the class of a context private
        """All parameters, with `--help`."""
        parameters = super().get_params(context)  # type: ignore[misc]  # of the command that this is mixed into
        for one in parameters:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return parameters


class Command(_Switches, TyperCommand):
    """One command."""


class Group(_Switches, TyperGroup):
    """All commands."""


app = typer.Typer(
    cls=Group,
    add_completion=False,  # Typer's own completes programs, and ours is `python starter.py`
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Give tasks to Replan's workers, and see what became of them and why.",
    epilog='Example: python starter.py --task "book a slot for the team at 14:00, then calculate 18% of 2450"',
)
GROUPS = {"Run": run.COMMANDS, "Look": look.COMMANDS, "Decide": decide.COMMANDS, "Operate": operate.COMMANDS}

COMPLETION = Path(__file__).with_name("completion.bash")


def show_completion(wanted: bool) -> None:
    """Print the completion and end."""
    if wanted:
        typer.echo(COMPLETION.read_text(), nl=False)
        raise typer.Exit


@app.callback()
def whole(
    completion: Annotated[
        bool, typer.Option("--show-completion", callback=show_completion, is_eager=True, help="For bash: source it.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


for group, commands in GROUPS.items():
    for name, (command, example) in commands.items():
        app.command(name, cls=Command, rich_help_panel=group, epilog=f"Example: {example}")(command)
