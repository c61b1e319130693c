"""What the console says when it cannot do what was asked, and the exit codes of every command."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    COMPLETED = 0
    FAILED = 1
    BAD_USAGE = 2
    NEEDS_PERSON = 3
    OVER_BUDGET = 4
    CANCELLED = 5
    UNREACHABLE = 6
    DETACHED = 130


class Problem(Exception):
    """A command cannot go on: what and why in `reason`, what to do in `remedy`."""

    def __init__(self, code: str, reason: str, remedy: str, exit: Exit = Exit.BAD_USAGE) -> None:
        """`code` is for programs; reason and remedy are one sentence together."""
        said = f"{reason.removesuffix('.')}: {remedy}"
        super().__init__(said if said.endswith((".", "?", "!", "…")) else f"{said}.")
        self.code, self.reason, self.remedy, self.exit = code, reason, remedy, exit
