"""Marks at the fields of models.

Read when a history is redacted: a string without a mark is replaced.
"""

from enum import Enum
from typing import Annotated, TypeVar

T = TypeVar("T")


class Mark(Enum):
    """What a redacted history shows of a field."""

    KEPT = "kept"
    REFERS = "refers"
    NAMED = "named"
    PATHS = "paths"


Kept = Annotated[T, Mark.KEPT]
"""Stays as it is, since decisions depend on it: an id, a kind, a code."""
Refers = Annotated[T, Mark.REFERS]
"""Arguments of a tool: in them, references to the results of steps stay."""
Named = Annotated[T, Mark.NAMED]
"""Values by the names of arguments: a name stays if a tool of the task declares it."""
Paths = Annotated[T, Mark.PATHS]
"""A path in data, or values by paths: a part of a path stays if a tool of the task declares it."""
