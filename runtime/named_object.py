"""Imports the object that a MODULE:OBJECT names, such as that of REPLAN_CODEC."""

import importlib
import os
import sys
from typing import Any

LOADABLE = "give MODULE:OBJECT, of a module that can be imported in this folder"


class CannotLoad(Exception):
    """The name leads to no object; the message says why."""


def named_object(name: str) -> Any:
    """The object of `MODULE:OBJECT`, from an installed module or one in the current folder. Raises CannotLoad."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise CannotLoad("no object is named after a colon")
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109  # as for tools: last, so that it shadows nothing
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module of the user's may raise anything
        raise CannotLoad(f"{type(error).__name__}: {error}") from error
    return found
