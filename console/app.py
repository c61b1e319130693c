"""The command line: the commands in their groups. A line that begins with an option, such as `--task`, runs `start`."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from console.entry import run as run_to_end
from console.options import Common
from extras import Command, plugins
from runtime.options import HELP, Version
from workflows.commands import STARTER

# A command NAME is the function `NAME_command` in console/commands/NAME.py.
CORE = {
    "start": Command("Run", "Start a task and follow it.", 'start --task "calculate 18% of 2450" --json'),
    "call": Command("Run", "Run one step. The quickest way to try a tool.", """call get_price '{"sku": "A-17"}'"""),
    "list": Command(
        "Look",
        "List tasks, newest first, with what needs a person. With --status waiting, the longest wait first.",
        "list --status escalated",
        "list_tasks",
    ),
    "show": Command("Look", "Show plans, steps, faults and the result of a task.", "show book-a-slot --follow"),
    "explain": Command("Look", "Say why a task did what it did, from its history.", "explain book-a-slot --step book"),
    "effects": Command(
        "Look",
        "List what a task changed, or may have changed, with keys, from its history and a worker's ledgers.",
        "effects book-a-slot",
    ),
    "transcript": Command(
        "Look",
        "Print the conversation of a task with its model, turn by turn. A worker reads it from its store.",
        "transcript book-a-slot --full",
    ),
    "tools": Command("Look", "List the tools of a running worker.", "tools book_slot"),
    "answer": Command(
        "Decide",
        "Answer a request of a task that waits for a person. Without CHOICE: show what it asks.",
        "answer book-a-slot retry",
    ),
    "extend": Command("Decide", "Give a running task more than its limits.", "extend book-a-slot --tool-calls +10"),
    "cancel": Command(
        "Decide", "Ask a task to stop. Finished steps stay, unless they are to be undone.", "cancel book-a-slot"
    ),
    "undo": Command(
        "Decide",
        "Undo the effects of a closed task, the newest first. It may be repeated: nothing is undone twice.",
        "undo book-a-slot",
    ),
    "settle": Command(
        "Decide",
        "Say what became of a call of `replan.effects` of which nobody knows it.",
        "settle send_mail-1f applied --result '\"sent\"' --store agent.db",
        "store",
    ),
    "reset": Command(
        "Decide",
        "Re-run from before STEP; refused if an effect could be applied twice.",
        "reset book-a-slot --to get_price",
    ),
    "incidents": Command(
        "Operate", "List the causes for which tasks wait for a person, with how many wait for each.", "incidents"
    ),
    "resolve": Command(
        "Operate",
        "Say that the cause of an incident is repaired: one task tries it first, then all others go on.",
        'resolve charge/unauthorized --reason "new key"',
        "incidents",
    ),
    "breakers": Command(
        "Operate",
        "List the tools that failed, and say which are left alone because their service is down.",
        "breakers --reset get_price",
    ),
    "report": Command(
        "Operate",
        "Add up what tasks did: how they ended, faults, retries, new plans, tokens. With charts as one HTML page.",
        "report --since 7d --html report.html",
    ),
    "answers": Command(
        "Operate",
        "List who answered what, how that person was known, and whether what was signed still holds: for an audit.",
        "answers --since 30d --people people.json",
    ),
    "doctor": Command(
        "Operate", "Check server, worker, store and tools. Each finding has its remedy.", "doctor --queue replan"
    ),
    "export": Command(
        "Operate",
        "Write a task's history to a file that can be replayed, with the explanation.",
        "export book-a-slot report.json --redact",
    ),
    "replay": Command(
        "Operate",
        "Replay saved histories, or those that a list filter finds, with this version: before a deploy.",
        "replay --query \"ExecutionStatus = 'Running'\"",
    ),
    "keys": Command("Operate", "Write a keyring for --keys, or say what is in one.", "keys new replan.keys"),
    "people": Command(
        "Operate",
        "Write the people file for --people: who may approve, tokens of people and programs, keys that sign.",
        "people add ann --roles finance --token",
    ),
    "prune": Command(
        "Operate",
        "Delete large payloads and conversations of closed tasks from the store. Their histories stay, without them.",
        "prune --older-than 30",
    ),
}
"""The commands that are always there, in the order of `--help`."""
_LAST: Mapping[str, int] = {entry.group: place for place, entry in enumerate(CORE.values())}
_OF_EXTRAS = [one for plugin in plugins().values() for one in plugin.commands.items()]
COMMANDS: dict[str, Command] = dict(
    sorted([*CORE.items(), *_OF_EXTRAS], key=lambda one: _LAST.get(one[1].group, len(CORE)))
)
"""All commands, in the order of `--help`: those of the extras stand last in their group."""

ON_STORE: Mapping[str, Command] = {
    "settle": CORE["settle"],
    "effects": Command("Look", "List the calls of a store of `replan.effects`.", "effects --store agent.db", "store"),
    "explain": Command(
        "Look", "Say why a call was not made again, or is unknown.", "explain send_mail-1f --store agent.db", "store"
    ),
    "undo": Command(
        "Decide",
        "Undo a call with the `undo=` of its function.",
        "undo send_mail-1f my_agent:effects --store agent.db",
        "store",
    ),
    "doctor": Command(
        "Operate", "Check a store of `replan.effects`. Each finding has its remedy.", "doctor --store agent.db", "store"
    ),
    "export": Command(
        "Operate",
        "Write calls of `replan.effects` to a file, with their explanations.",
        "export --session order-17 calls.json --store agent.db --redact",
        "store",
    ),
    "prune": Command(
        "Operate",
        "Delete settled calls of `replan.effects` that are old.",
        "prune --older-than 90 --store agent.db --dry-run",
        "store",
    ),
}
"""What these commands do if `--store` is among their words: then they are about calls without a task."""
STORE = "--store"

COMPLETION = Path(__file__).with_name("completion.bash")


class _Switches:
    """Shows a switch without a value in the help: `--json`, not `--json <bool>`."""

    def get_params(self, context: Any) -> Any:  # Typer keeps the class of a context private
        parameters = super().get_params(context)  # type: ignore[misc]  # of the command that this is mixed into
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):  # not every parameter is an option
                parameter.metavar = ""
        return parameters


class CommandWithSwitches(_Switches, TyperCommand):
    """A Typer command whose help shows switches without a value."""


class CommandGroup(_Switches, TyperGroup):
    """The Typer group of all commands; it imports the module of a command when the user chooses the command."""

    # The modules of the commands import the SDK, which takes half a second that `--help` does not have.
    def resolve_command(self, context: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(context, args)
        if name and name in ON_STORE and _names_store(rest):
            return name, load_on_store(name), rest
        return name, load(name) if name in COMMANDS else command, rest  # `replan` adds `worker`


def _names_store(args: Iterable[str]) -> bool:
    """Whether `--store` is written: a variable of the environment does not turn a command about tasks into another."""
    return any(word == STORE or word.startswith(f"{STORE}=") for word in args)


def load(name: str) -> Any:
    """Import the module of a command, and make the command from its function `NAME_command`."""
    entry = COMMANDS[name]
    if entry is ON_STORE.get(name):
        return load_on_store(name)
    module = import_module(entry.module if "." in entry.module else f"{__package__}.commands.{entry.module or name}")
    return _made(name, entry, with_common(getattr(module, f"{name}_command"), getattr(module, "OPTIONS", ())))


def load_on_store(name: str) -> Any:
    """Make the command that `--store` makes of this name; the SDK of Temporal is not imported."""
    module = import_module(f"{__package__}.commands.store")
    return _made(name, ON_STORE[name], with_store(getattr(module, f"{name}_command"), module.StoreOptions))


def _made(name: str, entry: Command, function: Any) -> Any:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    _register(alone, name, function, entry)
    return typer.main.get_command(alone)


def with_store(work: Callable[..., int], options: type[Any]) -> Callable[..., None]:
    """Make a Typer command of a function; the options of the dataclass `options` replace its parameter of that name."""
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(options)
    ]
    own = [one for one in inspect.signature(work, eval_str=True).parameters.values() if one.name != "options"]

    @functools.wraps(work)
    def run(**values: Any) -> None:
        chosen = options(**{field.name: values.pop(field.name) for field in fields(options)})
        raise typer.Exit(work(**values, options=chosen))

    _sign(run, [*own, *shared])
    return run


def _sign(function: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a function these parameters: Typer reads the options of a command from its signature."""
    function.__signature__ = inspect.Signature(parameters)  # what inspect looks for first
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def with_common(
    work: Callable[..., Coroutine[Any, Any, int]], options: Iterable[inspect.Parameter] = ()
) -> Callable[..., None]:
    """Make a Typer command of a coroutine function; `options` replace its `**` parameter, those of Common `common`."""
    taken = inspect.signature(work, eval_str=True).parameters
    named = [parameter for parameter in taken.values() if parameter.kind is not parameter.VAR_KEYWORD]
    own = [*options, *(parameter for parameter in named if parameter.name != "common")]
    shared = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(Common)
        if "common" in taken
    ]

    @functools.wraps(work)
    def run(**values: Any) -> None:
        if shared:
            values["common"] = common = Common(**{one.name: values.pop(one.name) for one in shared})
            common.check()
        raise typer.Exit(run_to_end(functools.partial(work, **values)))

    _sign(run, [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared])
    return run


def _register(typer_app: typer.Typer, name: str, function: Any, entry: Command) -> None:
    typer_app.command(
        name,
        cls=CommandWithSwitches,
        help=entry.help,
        rich_help_panel=entry.group,
        epilog=f"Example: {STARTER} {entry.example}",
    )(function)


app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,  # Typer's own completes programs, and ours may be a script
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
    help="Give tasks to Replan's workers, and see their results and what happened.",
    epilog=f'Example: {STARTER} --task "book a slot for the team at 14:00, then calculate 18% of 2450"',
)
for command_name, command_entry in COMMANDS.items():
    _register(app, command_name, lambda: None, command_entry)  # stands in `--help`; `load` makes the command that runs


def show_completion(is_wanted: bool) -> None:
    """If `is_wanted`, print the completion script for bash and exit."""
    if is_wanted:
        typer.echo(COMPLETION.read_text(encoding="utf-8"), nl=False)
        raise typer.Exit


@app.callback()
def whole(
    completion: Annotated[
        bool, typer.Option("--show-completion", callback=show_completion, is_eager=True, help="For bash: source it.")
    ] = False,
    version: Version = False,
) -> None:
    """Take the options that stand before any command: `--show-completion` and `--version`."""
