"""The approval of a call: the code that a person is shown, and what was allowed with it.

Made when a request shows the call, and when a person approves it; read in the attempt that follows, before the tool is
called.
"""

from collections.abc import Mapping
from operator import not_

from pydantic import BaseModel, Field, JsonValue

from workflows.json_values import digest
from workflows.people.statement import Statement


def approval_code(run: str, key: str, call: str) -> str:
    """The code of a call that a person is asked to approve: another one in another `run`, as after a reset.

    `key` is the idempotency key, and `call` is the digest of the kind and arguments.
    """
    return digest("approval", run, key, call)[:12]


def undo_code(key: str, call: str) -> str:
    """The code of a call that undoes an effect, in any run: its own idempotency key is `key`, its digest `call`.

    So a statement about it buys this one call: sent again with another key, it would be another refund.
    """
    return digest("undo", key, call)[:12]


class ApprovedCall(BaseModel, frozen=True):
    """What a person approved: one call, in one run of the task."""

    code: str = ""
    """The code that the person was shown and has sent."""
    shown: str = ""
    """The digest of the kind and the arguments that the person was shown."""
    allowed: str = ""
    """The digest of the kind and the arguments that may be called: others than `shown` if the person edited them."""
    added: str = Field(default="", exclude_if=not_)
    """The digest of the arguments that the tool adds, as the person was shown them; empty if they were unknown."""
    statements: tuple[Statement, ...] = Field(default=(), exclude_if=not_)
    """What doors have signed about the people who approved it; needed where the tool says who may."""

    def allows(self, run: str, key: str, call: str, added: Mapping[str, JsonValue]) -> bool:
        """Whether the call with the idempotency key `key` and the digest `call` may be made in the run `run`.

        `added` are the arguments that the tool adds now: a newer version may have other defaults than the person saw.
        """
        is_shown = self.added in ("", added_digest(added))
        return is_shown and self.allowed == call and self.code == approval_code(run, key, self.shown)


def added_digest(added: Mapping[str, JsonValue]) -> str:
    """The digest of the arguments that a tool adds to those of a call; empty if there are none."""
    return digest("added", dict(added)) if added else ""
