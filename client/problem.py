"""Problem: the error of a client function that cannot do what it was asked to do.

Made when a function of the client gives up; read by the door that reports it, such as the console.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from client.remedy import Argument, Door, Remedy, Text, in_python, render
from runtime.validation import expected


class ProblemKind(StrEnum):
    """The sort of a problem; each has its own exit code (console/exits.py)."""

    BAD_REQUEST = "bad_request"
    FAILED = "failed"
    """The request is correct, but could not be carried out."""
    NEEDS_PERSON = "needs_person"
    UNREACHABLE = "unreachable"


class Problem(Exception):
    """Something cannot be done: `reason` says what and why, `remedy` what to do. `str()` words both for a program."""

    def __init__(self, code: str, reason: str, remedy: str, kind: ProblemKind = ProblemKind.BAD_REQUEST) -> None:
        """`code` is for programs; `reason` and `remedy`, each a Text or a plain str, together make one sentence."""
        super().__init__(code, reason, remedy, kind)
        self.code, self.reason, self.remedy, self.kind = code, reason, remedy, kind
        self.argument = ""
        """The name of the wrong argument; empty if the problem is not one wrong argument."""

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The remedies that use Replan itself, in the order in which `remedy` names them."""
        return self.remedy.remedies if isinstance(self.remedy, Text) else ()

    def __str__(self) -> str:
        return self.sentence(in_python)

    def sentence(self, door: Door) -> str:
        """Reason and remedy as one sentence; `door` formats remedies and arguments for the reader."""
        reason, remedy = render(self.reason, door).removesuffix("."), render(self.remedy, door)
        is_question = reason.endswith("?")  # as in "did you mean show?"
        whole = f"{reason} {remedy[:1].upper()}{remedy[1:]}" if is_question else f"{reason}: {remedy}"
        return whole if whole.endswith((".", "?", "!", "…")) else f"{whole}."

    def fields(self, door: Door) -> dict[str, str]:
        """Code, reason and remedy as JSON outputs have them; `door` formats remedies and arguments for the reader."""
        return {"code": self.code, "reason": render(self.reason, door), "remedy": render(self.remedy, door)}


def wrong_value(name: str, error: Mapping[str, Any]) -> Problem:
    """The problem of an argument with an invalid value; `error` is an item of `ValidationError.errors()`."""
    # A text may be long, and no part of it says what is wrong.
    shown = f", not {error['input']}" if isinstance(error["input"], int | float) else ""
    problem = Problem(
        "usage", Text(Argument(name), f" {expected(error)}{shown}"), Text("give another ", Argument(name))
    )
    problem.argument = name
    return problem
