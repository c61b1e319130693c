"""Words a mistake in a command line, before any command runs: its reason, and what to do."""

from typing import Any, NamedTuple

import typer

from runtime.validation import EXPECTED, expected

EXTRA = "Got unexpected extra argument(s) ("
EXAMPLE = "Example: "
"""How the epilog of a command's help begins."""


class BadUsage(NamedTuple):
    reason: str
    remedy: str
    extra: str = ""
    """The words for which the command has no argument."""
    option: str = ""
    """The option that the command does not have."""


def mistake(error: typer.TyperException, program: str) -> BadUsage:
    """The mistake that Typer found; `program` is the command as its user types it, such as `python starter.py show`."""
    # Typer exports the classes of these errors only as `typer.BadParameter`, so their attributes tell which one it is.
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    remedy = f"`{program} --help` shows what it takes"
    if hasattr(error, "possibilities"):
        return BadUsage(error.format_message(), remedy, option=getattr(error, "option_name", ""))
    if hasattr(error, "option_name"):
        has_no_value = "requires" in error.message
        reason = f"{error.option_name} {'needs a value, and none follows it' if has_no_value else 'takes no value'}"
        return BadUsage(reason, remedy if has_no_value else f"write {error.option_name} alone")
    if hasattr(error, "param_type") and parameter is not None:
        help = (parameter.help or "").rstrip(".")
        example = (context.command.epilog or "").removeprefix(EXAMPLE) if context else ""
        remedy = f"write it, as in `{example}`" if example else remedy
        return BadUsage(f"{_typed(parameter)} is missing ({help})", remedy)
    if error.message.startswith(EXTRA) and context is not None:
        extra = error.message.removeprefix(EXTRA).removesuffix(")")
        taken = " ".join(_typed(one) for one in context.command.params if one.param_type_name == "argument")
        return BadUsage(f"`{program}` takes only {taken or 'options'}, and not {extra!r}", remedy, extra)
    return BadUsage(_bad_value(error) or error.format_message().replace(": Value error, ", ": ").rstrip(".?"), remedy)


def _bad_value(error: typer.TyperException) -> str:
    """What pydantic expected of an option's value; empty if Typer's own words say it."""
    from pydantic import ValidationError  # not at the top: --help does not need it

    if isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError) and error.param:
        wrong = error.__cause__.errors(include_url=False)[0]
        if wrong["type"] in EXPECTED:
            return f"{_typed(error.param)} {expected(wrong)}, not {wrong['input']!r}"
    return ""


def _typed(parameter: Any) -> str:
    """A parameter as it is typed: `KIND`, or `--tokens N`."""
    name = parameter.opts[0] if parameter.param_type_name == "option" else ""
    return " ".join(filter(None, [name, parameter.metavar])) or parameter.name.upper()
