"""Vouches for who answers: a door, or a person's own key, signs a statement that the worker verifies.

Used when somebody is known who starts a task or answers one of its requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from runtime.people_file import VALID, Signer
from workflows.people.requests import Choice, Given, GivenApproveAll, GivenWithCode, HumanRequest
from workflows.people.statement import START, UNDO, Statement, given_digest

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

    def of_answer(self, choice: Choice, given: Given, request: HumanRequest, where: tuple[str, str, str]) -> Statement:
        """A statement about an answer to a request; `where` is the namespace, the task, and its run."""
        calls = (given.call,) if isinstance(given, GivenWithCode) else ()
        return self._signed(
            where,
            asked=request.since,
            request=request.id,
            step=request.step or "",
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

    def _signed(self, where: tuple[str, str, str], **more: object) -> Statement:
        namespace, task, run = where
        now = datetime.now(UTC)
        about = {"key": "", "person": self.person, "how": self.how, "roles": tuple(self.roles)}
        times = {"at": now, "until": now + VALID, "namespace": namespace, "task": task, "run": run}
        return self.signer.sign(Statement.model_validate({**about, **times, **more}))
