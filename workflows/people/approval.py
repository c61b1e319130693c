"""The approval of a call: the code that a person is shown, and what was allowed with it."""

from pydantic import BaseModel

from workflows.json_values import digest


def approval_code(run: str, key: str, call: str) -> str:
    """The code of a call that a person is asked to approve; `call` is the digest of its kind and arguments.

    Another run of the task, as after a reset, has another code for the same call.
    """
    return digest("approval", run, key, call)[:12]


class Approval(BaseModel, frozen=True):
    """What a person approved: one call, in one run of the task."""

    code: str
    """The code that the person was shown and has sent."""
    shown: str
    """The digest of the kind and the arguments that the person was shown."""
    allowed: str
    """The digest of the kind and the arguments that may be called: others than `shown` if the person edited them."""

    def allows(self, run: str, key: str, call: str) -> bool:
        """Whether the call with this key, and with the digest `call`, may be made in a run of the task."""
        return self.allowed == call and self.code == approval_code(run, key, self.shown)
