"""ROOMS THAT CAN BE LEFT OUT: each folder here is one, with its code, its tests, and `plugin.py`: what it brings.

The other rooms know of an extra only by what its plugin says; an extra that is not here is not missed. Nothing in
`workflows/` asks for them: a history replays whatever is installed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple


class Command(NamedTuple):
    """A command in the help, and the module in which it is."""

    group: str
    help: str
    example: str
    """An example for the help: the arguments after the command itself."""
    module: str = ""
    """The dotted name of the module with the function `NAME_command`; without a dot, of one in console/commands; empty
    for the one there that has the name of the command."""


@dataclass(frozen=True)
class Plugin:
    """What an extra brings. Modules are dotted names: each is imported when what it brings is used."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    """The commands of the console, by name."""


@cache
def plugins() -> Mapping[str, Plugin]:
    """What the extras that are here bring, by the name of the extra."""
    names = sorted(name for _, name, is_package in iter_modules(__path__) if is_package)
    return {name: import_module(f"{__name__}.{name}.plugin").PLUGIN for name in names}
