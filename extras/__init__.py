"""ROOMS THAT CAN BE LEFT OUT: each folder here is one, with its code, its tests, and `plugin.py`: what it brings.

The other rooms know of an extra only by what its plugin says; an extra that is not here is not missed. Nothing in
`workflows/` asks for them: a history replays whatever is installed.
"""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Command(NamedTuple):
    """A command in the help, and the module in which it is."""

    group: str
    help: str
    example: str
    """An example for the help: the arguments after the command itself."""
    module: str = ""
    """The dotted name of the module with the function `NAME_command`; without a dot, of one in console/commands; empty
    for the one there that has the name of the command."""


class Plugin(NamedTuple):
    """What an extra brings. Its modules are dotted names: each is imported when it is used."""

    commands: Mapping[str, Command] = _NOTHING
    """The commands of the console, by name."""
    tables: Mapping[str, tuple[str, ...]] = _NOTHING
    """The modules with a TABLE of exceptions, and the top-level packages that raise them."""
    kinds: tuple[str, ...] = ()
    """The modules with tools that every worker has."""
    parts: Mapping[str, str] = _NOTHING
    """The modules that other rooms use, by the name under which they ask `part` for one."""


class NotHere(Exception):
    """The extra that has a part is not here; the message, of what needs it, goes on with the remedy."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"extras/{extra}, which is not in this copy of Replan: add that folder of the same version")


OF_EXTRA: Mapping[str, str] = MappingProxyType(
    {"bridge": "gateway", "documents": "documents", "store_page": "web", "tools_files": "mcp"}
)
"""The parts that other rooms ask for, and the extra that has each."""
COMMAND_OF: Mapping[str, str] = MappingProxyType({"audit": "audit", "mcp": "gateway", "serve": "web"})
"""The extra that brings each command which the core does not have."""


@cache
def plugins() -> Mapping[str, Plugin]:
    """What the extras that are here bring, by the name of the extra."""
    [folder] = __path__
    # Without pathlib, which takes a third of the time in which a bridge of the gateway starts.
    names = [name for name in os.listdir(folder) if os.path.isfile(f"{folder}/{name}/plugin.py")]  # noqa: PTH113, PTH208
    return {name: import_module(f"{__name__}.{name}.plugin").PLUGIN for name in sorted(names)}


def part(name: str) -> Any:
    """The module with this part of an extra. Raises NotHere if the extra is not here."""
    extra = OF_EXTRA[name]
    if extra not in plugins():
        raise NotHere(extra)
    return import_module(plugins()[extra].parts[name])
