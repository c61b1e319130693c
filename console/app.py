"""The command line: the commands in their groups; `start` is also reached by a bare `--task`."""

import typer

from console.commands import decide, look, operate, run

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Give tasks to Replan's workers, and see what became of them and why.",
    epilog='Example: python starter.py --task "book a slot for the team at 14:00, then calculate 18% of 2450"',
)
GROUPS = {"Run": run.COMMANDS, "Look": look.COMMANDS, "Decide": decide.COMMANDS, "Operate": operate.COMMANDS}

for group, commands in GROUPS.items():
    for name, (command, example) in commands.items():
        app.command(name, rich_help_panel=group, epilog=f"Example: {example}")(command)
