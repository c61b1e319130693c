"""The checks of `doctor`, and how they are printed."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from client.lines import wrap
from client.text import one_line
from console.render.terminal import terminal_size


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works, but something is missing or could be better."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """It was not checked, because a check before it failed."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    found: str
    """What was found, in words."""
    remedy: str = ""


def check_lines(found: Sequence[Check]) -> list[str]:
    width = min(22, max(len(check.name) for check in found))
    failed, warnings = (sum(check.status is status for check in found) for status in (Status.FAIL, Status.WARN))
    summary = f"{failed or 'nothing'} failed, {warnings or 'no'} warning{'' if warnings == 1 else 's'}"
    return [*(_line(check, width) for check in found), summary]


def _line(check: Check, width: int) -> str:
    """A check as one line; on a terminal, a long line is wrapped, with its further rows below its last column."""
    head = f"{check.status[:4]:<4}  {one_line(check.name):<{width}}  "  # `skipped` is shown as `skip`
    remedy = f" -> {check.remedy}" if check.remedy else ""
    text = one_line(check.found + remedy)
    if not sys.stdout.isatty():
        return head + text
    first, *rest = wrap(" " * len(head) + text, terminal_size(sys.stdout)[0])
    return "\n".join([head + first[len(head) :], *rest])
