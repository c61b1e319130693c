"""The commands of whoever runs the whole: none yet."""

from collections.abc import Callable

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {}
