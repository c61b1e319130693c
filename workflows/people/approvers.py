"""Who must approve a call, as its tool declares it, and whether what people have stated is enough.

Read when an answer is checked, and by the worker before the tool is called: the worker reads its own declaration, and
only statements whose signatures it has verified.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import not_

from pydantic import BaseModel, Field

from workflows.marks import Kept
from workflows.people.statement import UNDO, Statement, folded, newest_of_each

MAX_COUNT, MAX_NAMED = 10, 20
"""The most people who must approve a call, and the most roles and people whom a rule names."""
ROLE, PERSON = "role:", "person:"
NAMED = re.compile(r"role:[^\s:,][^\s,]{0,199}|person:[^\s:,](?:[^\s,]| (?! )){0,198}[^\s,]?")
"""A role or a person in a rule."""


class Approvers(BaseModel, frozen=True):
    """Who must approve a call. Who started the task never counts where `not_starter`."""

    by: Kept[tuple[str, ...]] = Field(default=(), exclude_if=not_)
    """Roles (`role:finance`) and people (`person:ann`), each of whom may approve; empty for everybody who is known."""
    count: int = Field(default=1, exclude_if=lambda count: count == 1)
    """How many different people must approve."""
    not_starter: bool = Field(default=False, exclude_if=not_)
    after: float = Field(default=0.0, exclude_if=not_)
    """Seconds after which those in `then` may approve, too."""
    then: Kept[tuple[str, ...]] = Field(default=(), exclude_if=not_)

    def takes(self, statement: Statement) -> bool:
        """Whether the person of a statement is one of those who may approve."""
        return _is_among(self.by, statement) or (
            bool(self.then)
            and statement.at - statement.asked >= timedelta(seconds=self.after)
            and _is_among(self.then, statement)
        )

    def refuses(self, statement: Statement, starter: str | None) -> str:
        """Why the person of a statement may not approve, as a sentence; empty if the person may."""
        if statement.choice == UNDO and self.then:  # nobody was asked, so no time runs
            return self.model_copy(update={"then": ()}).refuses(statement, starter)
        if not self.takes(statement):
            roles = f" ({', '.join(statement.roles)})" if statement.roles else ""
            return f"{statement.person}{roles} may not approve it: it needs {self.text(statement.asked)}."
        if self.not_starter and starter and folded(statement.person) == folded(starter):
            return f"{starter} started the task, and may not approve this call: another person must."
        return ""

    def needed(self, starter: str | None) -> int:
        """How many different people must approve; `starter` is who started the task, None if nobody knows."""
        # One of two people is another one than the starter, whoever that is.
        return max(self.count, 2) if self.not_starter and not starter else self.count

    def people(self, statements: Sequence[Statement], starter: str | None) -> list[str]:
        """The different people among those who made the statements that may approve."""
        return [one.person for one in newest_of_each(one for one in statements if not self.refuses(one, starter))]

    def are_enough(self, statements: Sequence[Statement], starter: str | None) -> bool:
        """Whether the people who made these statements are those whom the rule asks for."""
        return len(self.people(statements, starter)) >= self.needed(starter)

    def text(self, asked: datetime | None = None, needed: int = 0) -> str:
        """The rule in words, such as `2 people with the role finance, none of whom started the task`.

        `needed` is what `needed` returns: more than `count` if nobody knows who started the task.
        """
        who = _who(self.by, self.count)
        alone = ""
        if self.not_starter:
            alone = ", none of whom started the task" if self.count > 1 else ", who did not start the task"
        later = f"from {asked + timedelta(seconds=self.after):%Y-%m-%d %H:%M} UTC" if asked else "later"
        too = f", and {later} also {_those(self.then)}" if self.then else ""
        more = f"; {needed} people, since nobody vouches for who started it" if needed > self.count else ""
        return f"{who}{alone}{too}{more}"


def _is_among(named: Sequence[str], statement: Statement) -> bool:
    people = {folded(name.removeprefix(PERSON)) for name in named if name.startswith(PERSON)}
    return not named or folded(statement.person) in people or any(f"{ROLE}{role}" in named for role in statement.roles)


def _those(named: Sequence[str]) -> str:
    roles = [name.removeprefix(ROLE) for name in named if name.startswith(ROLE)]
    names = [name.removeprefix(PERSON) for name in named if name.startswith(PERSON)]
    return " or ".join([*([f"those with the role {' or '.join(roles)}"] if roles else []), *names])


def _who(named: Sequence[str], count: int) -> str:
    people = "a person" if count == 1 else f"{count} people"
    roles = [name.removeprefix(ROLE) for name in named if name.startswith(ROLE)]
    names = [name.removeprefix(PERSON) for name in named if name.startswith(PERSON)]
    if not named:
        return f"{people} who {'is' if count == 1 else 'are'} known"
    of_roles = f"{people} with the role {' or '.join(roles)}" if roles else ""
    of_names = " or ".join(names) if count == 1 or roles else f"{count} of {', '.join(names)}"
    return " or ".join(filter(None, [of_roles, of_names]))
