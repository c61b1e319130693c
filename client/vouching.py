"""Vouches for who answers: a door, or a person's own key, signs a statement that the worker verifies.

Used when somebody is known who starts a task or answers one of its requests.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from client.problem import Problem
from runtime.people_file import VALID, VARIABLE, BadPeople, PeopleFile, Signer
from workflows.commands import command
from workflows.people.requests import Choice, Given, GivenApproveAll, GivenWithCode, HumanRequest
from workflows.people.statement import RESOLVE, START, UNDO, Statement, given_digest

NOT_GIVEN = {"by", "request", "statement", "call", "others"}
"""The fields of an answer that a statement has elsewhere."""


def given_by(given: Given) -> str:
    """The digest of the values of an answer, for its statement."""
    return given_digest(given.model_dump(mode="json", exclude=NOT_GIVEN))


@dataclass(frozen=True)
class Voucher:
    """Somebody who is known, and the key that says so."""

    person: str
    how: str
    """How the person is known: `token`, `proxy`, `provider` or `key`."""
    roles: Sequence[str]
    signer: Signer

    @classmethod
    def of_key(cls, identity: str | Path) -> Self:
        """The person whose own key is in this file, with the roles of the people file if REPLAN_PEOPLE names one.

        Raises Problem if a file cannot be used, or if the people file does not have the key, or has ended it.
        """
        try:
            signer, file = Signer.read(Path(identity)), os.environ.get(VARIABLE)
            people = PeopleFile.read(Path(file)) if file else None
        except BadPeople as error:
            raise Problem("misconfigured", error.reason, error.remedy) from error
        if people is None:
            return cls(signer.name, "key", signer.roles, signer)
        try:
            person = people.owner(signer.id, datetime.now(UTC))
        except ValueError as error:
            remedy = f"`{command('people', 'list')}` shows who is known"
            raise Problem("misconfigured", f"The key {identity} signs for nobody, since {error}", remedy) from error
        return cls(person.name, "key", person.roles, signer)

    def of_answer(
        self, choice: Choice, given: Given, request: HumanRequest | None, where: tuple[str, str, str]
    ) -> Statement:
        """A statement about an answer; `where` is the namespace, the task, and its run.

        `request` is None for more than its limits that a task did not ask for.
        """
        calls = (given.call,) if isinstance(given, GivenWithCode) else ()
        return self._signed(
            where,
            asked=request.since if request else datetime.now(UTC),
            request=request.id if request else "",
            step=(request.step or "") if request else "",
            choice=choice.value,
            calls=(*calls, *given.others) if isinstance(given, GivenApproveAll) else calls,
            given=given_by(given),
        )

    def of_start(self, namespace: str, task: str) -> Statement:
        """A statement about who starts a task."""
        return self._signed((namespace, task, ""), asked=datetime.now(UTC), choice=START)

    def of_undo(self, namespace: str, task: str, calls: Sequence[str]) -> Statement:
        """A statement about the calls, by their codes (`undo_code`), that may undo effects of a task."""
        return self._signed((namespace, task, ""), asked=datetime.now(UTC), choice=UNDO, calls=tuple(calls))

    def of_resolution(self, namespace: str, resolution: str, note: str) -> Statement:
        """A statement that the cause of an incident was repaired; `resolution` is the id of its workflow."""
        given = given_digest({"note": note})
        return self._signed((namespace, resolution, ""), asked=datetime.now(UTC), choice=RESOLVE, given=given)

    def _signed(self, where: tuple[str, str, str], **more: object) -> Statement:
        namespace, task, run = where
        now = datetime.now(UTC)
        about = {"key": "", "person": self.person, "how": self.how, "roles": tuple(self.roles)}
        times = {"at": now, "until": now + VALID, "namespace": namespace, "task": task, "run": run}
        return self.signer.sign(Statement.model_validate({**about, **times, **more}))
