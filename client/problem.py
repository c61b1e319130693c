"""Why something that was asked for cannot be done."""

from enum import StrEnum


class ProblemKind(StrEnum):
    """Who can do something about a problem, and when."""

    BAD_REQUEST = "bad_request"
    FAILED = "failed"
    """The request was understood, but could not be carried out."""
    NEEDS_PERSON = "needs_person"
    UNREACHABLE = "unreachable"


class Problem(Exception):
    """Something cannot be done: what and why in `reason`, what to do in `remedy`."""

    def __init__(self, code: str, reason: str, remedy: str, kind: ProblemKind = ProblemKind.BAD_REQUEST) -> None:
        """`code` is for programs; reason and remedy are one sentence together."""
        said = f"{reason.removesuffix('.')}: {remedy}"
        super().__init__(said if said.endswith((".", "?", "!", "…")) else f"{said}.")
        self.code, self.reason, self.remedy, self.kind = code, reason, remedy, kind
