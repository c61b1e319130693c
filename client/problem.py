"""Problem: the error of a client function that cannot do what it was asked to do."""

from enum import StrEnum


class ProblemKind(StrEnum):
    """The sort of a problem; each has its own exit code (console/exits.py)."""

    BAD_REQUEST = "bad_request"
    FAILED = "failed"
    """The request is correct, but could not be carried out."""
    NEEDS_PERSON = "needs_person"
    UNREACHABLE = "unreachable"


class Problem(Exception):
    """Something cannot be done: `reason` says what and why, `remedy` says what to do."""

    def __init__(self, code: str, reason: str, remedy: str, kind: ProblemKind = ProblemKind.BAD_REQUEST) -> None:
        """`code` is for programs; `reason` and `remedy` together make one sentence."""
        said = f"{reason.removesuffix('.')}: {remedy}"
        super().__init__(said if said.endswith((".", "?", "!", "…")) else f"{said}.")
        self.code, self.reason, self.remedy, self.kind = code, reason, remedy, kind


class WrongValue(Problem):
    """A field of what was given has a value that it cannot have; it is named as in Python and JSON."""

    def __init__(self, field: str, expected: str, name: str = "") -> None:
        """`expected` follows the name in the sentence; a person may know the field by another `name`."""
        super().__init__("usage", f"{name or field} {expected}", f"give another {name or field}")
        self.field, self.expected = field, expected

    def named(self, name: str) -> "WrongValue":
        """The same problem, with the name by which the reader knows the field."""
        return WrongValue(self.field, self.expected, name)
