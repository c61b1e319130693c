"""What a door states about an answer: who gave it, how that person was known, and what it is for.

Made and signed by a door when a person answers; the worker verifies it before it makes the call that was bought. The
workflow, which replays, verifies nothing.
"""

import unicodedata
from collections.abc import Iterable
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field

from workflows.json_values import canonical, digest
from workflows.marks import Kept
from workflows.text import normalized

START, RESOLVE, UNDO = "start", "resolve", "undo"
"""The `choice` of a statement that is no answer: about who started a task, resolved an incident, or lets calls undo
effects."""
MAX_ROLES, MAX_CALLS = 20, 1_000
MAX_SIGNED = 200
"""The most characters of a text in a statement."""
Text = Kept[str]


class Statement(BaseModel, frozen=True, extra="forbid"):
    """That a person gave an answer, signed by a door or by the person's own key."""

    key: Text = Field(max_length=MAX_SIGNED)
    """The id of the key that signed it."""
    person: str = Field(min_length=1, max_length=MAX_SIGNED)
    how: Text = Field(max_length=MAX_SIGNED)
    """How the person was known: `token`, `proxy`, `provider` or `key`."""
    roles: Kept[tuple[str, ...]] = Field(default=(), max_length=MAX_ROLES)
    at: AwareDatetime
    until: AwareDatetime
    asked: AwareDatetime
    """When the request was opened, as the person was shown it."""
    namespace: str = Field(max_length=MAX_SIGNED)
    task: str = Field(max_length=1_000)
    run: Text = Field(max_length=MAX_SIGNED)
    """The id of the run of the workflow that asked; empty for a start and an undo."""
    request: Text = Field(default="", max_length=MAX_SIGNED)
    step: Text = Field(default="", max_length=MAX_SIGNED)
    """The step that the request is about."""
    choice: Text = Field(max_length=MAX_SIGNED)
    # Whoever may guess names and values could test a guess with the three that follow: no redacted history has them.
    calls: tuple[str, ...] = Field(default=(), max_length=MAX_CALLS)
    """The codes of the calls that were shown, which stand for their arguments."""
    given: str = Field(default="", max_length=MAX_SIGNED)
    """The digest of the values that were sent with the answer."""
    signature: str = Field(default="", max_length=MAX_SIGNED)
    """The Ed25519 signature of `signed`, in Base64."""

    @property
    def signed(self) -> bytes:
        """The bytes that are signed: all other fields."""
        return b"replan statement 1\n" + canonical(self.model_dump(mode="json", exclude={"signature"})).encode()


def folded(name: str) -> str:
    """What two spellings of one person's name have in common: providers differ in capitals and in forms of letters."""
    capitals = normalized("NFKC", name).upper()  # so that a Turkish i without a dot is an I, too
    shown = "".join(letter for letter in capitals if unicodedata.category(letter) != "Cf")
    return normalized("NFKC", shown.casefold())


def newest_of_each(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """Of the statements of each person the last one."""
    return tuple({folded(statement.person): statement for statement in statements}.values())


def given_digest(values: Any) -> str:
    """The digest of what a person sends with an answer, for `Statement.given`."""
    return digest("given", values)
