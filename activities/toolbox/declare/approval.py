"""The option `approve=Approval(...)`: when a call needs an approval, and whose.

Read when a worker loads a tool; the rule travels in the tool's spec, and the worker reads its own before each call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workflows.durations import seconds
from workflows.people.approvers import MAX_COUNT, MAX_NAMED, NAMED, Approvers

MAX_AFTER = 365 * 86_400.0
AFTER = re.compile(r"(\S+) escalate (\S.*)")
BY = "by is 'role:NAME' or 'person:NAME', or a list of them"


@dataclass(frozen=True, kw_only=True)
class Approval:
    """Which calls of a tool people must approve, and which people; without `by`, anybody whom a door knows."""

    when: str = "always"
    """`always`, or a condition over `args`, e.g. `args.amount > 500`."""
    by: str | Sequence[str] = ()
    """Who may approve: `role:finance`, `person:ann`, or a list of such names, one of which is enough."""
    count: int = 1
    """How many different people must approve, at most 10."""
    not_starter: bool = False
    """Whether who started the task does not count. If nobody knows who that is, two different people must approve."""
    after: str = ""
    """Who may approve, too, when nobody has for some time, as `4h escalate role:board`."""

    @property
    def approvers(self) -> Approvers:
        """The rule as data. Raises ValueError, with a sentence, if it cannot be used."""
        found = AFTER.fullmatch(self.after) if isinstance(self.after, str) else None
        if self.after and found is None:
            raise ValueError(f"after={self.after!r:.80} cannot be read: write it as '4h escalate role:board'.")
        if type(self.count) is not int or not 1 <= self.count <= MAX_COUNT:
            raise ValueError(f"count={self.count!r:.80} must be a whole number from 1 to {MAX_COUNT}.")
        if not isinstance(self.not_starter, bool):
            raise ValueError("not_starter must be True or False.")
        by, later = _names(self.by), 0.0
        if not by and self.by != ():
            raise ValueError(f"by={self.by!r:.80} names nobody: leave it out where anybody who is known may approve.")
        if found:
            try:
                later = seconds(found[1])
            except ValueError as error:
                raise ValueError(f"after: {error}.") from None
            if not 0 < later <= MAX_AFTER:  # also for a number that is none
                raise ValueError(f"after={self.after!r:.80} must begin with a time of at most a year.")
            if not by:
                raise ValueError("after needs by: without it everybody who is known may approve from the beginning.")
        then = _names(found[2].split()) if found else ()
        return Approvers(by=by, count=self.count, not_starter=self.not_starter, after=later, then=then)


def when_of(approve: Any) -> Any:
    """The condition in an option `approve=`."""
    return approve.when if isinstance(approve, Approval) else approve


def mistakes(name: str, approve: Any) -> list[str]:
    """The mistakes in the people that an option `approve=` of the tool `name` asks for, one sentence each."""
    if not isinstance(approve, Approval):
        return []
    try:
        _ = approve.approvers
    except ValueError as error:
        return [f"{name}: approve: {error}"]
    return [f"{name}: approve: when='never' asks nobody: leave approve out."] if approve.when == "never" else []


def _names(by: Any) -> tuple[str, ...]:
    names = by.split() if isinstance(by, str) else by
    if not isinstance(names, tuple | list) or not all(isinstance(one, str) and NAMED.fullmatch(one) for one in names):
        raise ValueError(f"{BY}, and not {by!r:.80}.")
    if len(names) > MAX_NAMED:
        raise ValueError(f"by has {len(names)} names, more than {MAX_NAMED}.")
    return tuple(dict.fromkeys(names))
