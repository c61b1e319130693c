"""Decides whether what arrives at a workflow was encrypted for its use: the start, an Update, or a Signal.

Runs when a workflow starts, and when an Update or a Signal arrives. A worker with a keyring decodes each payload, and
writes into its metadata for which use it was encrypted. Any other process writes nothing, and nothing is refused there.
"""

from collections.abc import Collection, Sequence

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ApplicationError

from workflows.json_values import canonical

USE = "replan-use"
"""The metadata entry of a payload with its use; it is a part of what is encrypted."""
IN_CLEAR = b""
"""In place of the use: the payload was not encrypted."""
NO_USE = b"[]"
"""In place of the use: none was named. Workers name none, and neither did clients of older versions."""
START, SCHEDULE, UPDATE, SIGNAL = "start", "schedule", "update", "signal"
"""The first parts of uses."""
NOT_SEALED = "not_sealed"
"""The type of the failure of an Update that is refused, and of a workflow that is no task and no rollback."""
PATCH = "not-sealed"
"""Prefix of a patch id; `start` or the number of a Signal follows. The marker records in history that the run refused
what arrived. It does not mark a version of the code: never remove it."""
SCHEDULED_BY = SearchAttributeKey.for_keyword("TemporalScheduledById")
"""The search attribute in which the server names the schedule that started a workflow."""

_REASONS = {
    IN_CLEAR: "it was sent in clear",
    NO_USE: "it was encrypted without a use, as older versions of Replan do",
    None: "it has no argument that could be encrypted",
}
_ANOTHER = "it was encrypted for another use"
_REMEDY = (
    "Send it with this version of Replan and the workers' `--keys`, or start the workers with `--accept-clear` while"
    " you change over."
)


def use_of(*parts: str) -> bytes:
    """A use as it stands in the metadata of a payload."""
    return canonical(list(parts)).encode()


class NotSealed(ApplicationError):
    """What arrived was not encrypted for its use. The message is sent in clear: who has no key must read it, too."""


class Seal:
    """What one run of a workflow requires of the payloads that arrive; `name` is that of its input in messages."""

    def __init__(self, name: str, arguments: Sequence[object]) -> None:
        """`arguments` are those of the workflow, undecoded."""
        info, self._signals = workflow.info(), 0
        uses = [_use_in(argument) for argument in arguments]
        began_in_clear = any(_use_in(payload) == IN_CLEAR for payload in info.raw_memo.values())
        # The worker encrypts the input of a later run, also that of a task that was begun in clear.
        self._is_strict = any(uses) and not (_is_continued(info) and began_in_clear)
        self.refusal = ""
        """Why the workflow may not run, as a sentence; empty if it may, as always if a worker has continued it."""
        if not _is_continued(info):
            reason = _why_unfit([use for use in uses if use is not None], _uses_of_start(info))
            if _is_refused("start", reason):
                self.refusal = _sentence(name, reason)

    def check_update(self, arguments: Sequence[object]) -> None:
        """Raise NotSealed unless the current Update is accepted; for validators, which do not run in a replay."""
        update, uses = workflow.current_update_info(), [_use_in(argument) for argument in arguments]
        if not self._is_strict or update is None:
            return
        accepted = {use_of(UPDATE, update.name, update.id, workflow.info().workflow_id)}
        if reason := _why_unfit(uses or [None], accepted):
            raise NotSealed(_sentence("answer", reason), type=NOT_SEALED, non_retryable=True)

    def why_signal_refused(self, name: str, arguments: Sequence[object]) -> str:
        """Why a Signal is dropped; empty if it is accepted. To be called once for each Signal, in their order."""
        self._signals += 1
        accepted = {use_of(SIGNAL, name, workflow.info().workflow_id), use_of(SIGNAL, name)}
        uses = [_use_in(argument) for argument in arguments]
        reason = _why_unfit(uses or [None], accepted) if self._is_strict else ""
        return (reason or _ANOTHER) if _is_refused(str(self._signals), reason) else ""


def _use_in(argument: object) -> bytes | None:
    """The use in the metadata of a payload; None if no keyring of a worker has decoded it."""
    payload = argument.payload if isinstance(argument, RawValue) else argument
    return payload.metadata.get(USE) if isinstance(payload, Payload) else None


def _is_continued(info: workflow.Info) -> bool:
    """Whether a worker has written the input, to continue as new."""
    # The server names the run before in runs of a cron schedule and of a retry policy, too, which any client can give.
    return bool(info.continued_run_id) and info.attempt == 1 and not info.cron_schedule


def _uses_of_start(info: workflow.Info) -> Collection[bytes]:
    """The uses that the input may have if no worker has continued the workflow."""
    accepted = {use_of(START, info.workflow_id)}
    if schedule := info.typed_search_attributes.get(SCHEDULED_BY):
        accepted.add(use_of(SCHEDULE, schedule))  # one input for all its runs, whose ids differ
    if info.parent is not None:
        accepted.add(NO_USE)  # a worker has started it, and the server says so
    return accepted


def _why_unfit(uses: Sequence[bytes | None], accepted: Collection[bytes]) -> str:
    unfit = [use for use in uses if use not in accepted]
    return _REASONS.get(unfit[0], _ANOTHER) if unfit else ""


def _is_refused(id: str, reason: str) -> bool:
    """Whether to refuse what there is a `reason` to refuse; in a replay, history decides in place of the reason."""
    # Keys and `--accept-clear` may differ where and when the history is replayed. So the marker of a patch keeps what
    # the run decided; a run that accepted has none, like the runs of versions that refused nothing.
    return (bool(reason) or workflow.unsafe.is_replaying()) and workflow.patched(f"{PATCH}:{id}")


def _sentence(name: str, reason: str) -> str:
    why = reason or _ANOTHER
    return f"The {name} is refused: {why}, and this queue takes only what its key has encrypted for this. {_REMEDY}"
