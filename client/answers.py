"""The record of answers: who answered what, how a door knew that person, and whether what was signed still holds.

Made for the command `answers`, from the histories of the server or of files. No worker is asked; a people file, which
has the public keys, verifies what doors have signed.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, BaseModel
from temporalio.client import Client
from temporalio.converter import DataConverter

from client.history.reader import HistoryBuilder
from client.history.records import AcceptedAnswer, History
from client.placeholders import is_placeholder
from client.replay import history_in
from client.report.report import MAX_TASKS, Period, Progress, Run, Unread, listed_runs, read_each
from client.vouching import given_by
from client.wording import args_before
from runtime.people_file import PeopleFile
from workflows import ids
from workflows.account.outcome import Outcome
from workflows.json_values import digest
from workflows.people.approval import approval_code
from workflows.people.requests import BUYS, Choice, Given, HumanAnswer, HumanRequest, ProposedCall
from workflows.people.statement import Statement

OF_CALL = (Choice.APPROVE, Choice.APPROVE_ALL, Choice.EDIT)
"""The answers whose statements name the calls that were shown."""


class Verification(StrEnum):
    """Whether what is recorded about an answer holds."""

    VERIFIED = "verified"
    """A key of the people file signed it, which was valid then, and it fits the answer."""
    SIGNED = "signed"
    """It fits the answer; without a people file, nobody knows whether the signature is true."""
    UNSIGNED = "unsigned"
    """Nobody vouched for the person: the name is a claim."""
    FALSE = "false"


class ShownCall(BaseModel, frozen=True):
    """A call that a person was shown."""

    step: str
    tool: str
    code: str
    """What stands for the call with all of its arguments, in its run."""
    args: str
    """The digest of the tool and the arguments; empty if the history does not have those that `code` stands for."""


class RecordedAnswer(BaseModel, frozen=True):
    """One answer of a person."""

    task_id: str
    request: str
    """The id of the request; empty for an extension of limits that no request asked for."""
    kind: str
    """The kind of the request."""
    step: str
    tool: str
    """The tool of the call that was asked about; empty if the request was about none."""
    choice: Choice
    number: int
    """Which one it is of the `needed` answers."""
    needed: int
    """How many people had to answer alike."""
    person: str
    """The name: stated by a door if there is a `statement`, else claimed."""
    how: str
    """How the door knew the person; empty for a name that was only claimed."""
    roles: tuple[str, ...]
    key: str
    """The id of the key that signed it: that of a door, or the person's own."""
    at: AwareDatetime
    """When the task took the answer."""
    shown: tuple[ShownCall, ...]
    statement: Statement | None
    verdict: Verification
    why: str = ""
    """Why it is false, as a clause; empty if it is not."""


class Record(BaseModel, frozen=True):
    """The answers that were found, the oldest first."""

    since: datetime | None
    until: datetime
    answers: tuple[RecordedAnswer, ...]
    tasks: int
    """How many tasks were read, whether they asked people or not."""
    more: int = 0
    """How many tasks were left out because of the limit."""
    unread: tuple[Unread, ...] = ()
    """The tasks that could be read only in part, so that answers may be missing."""

    def count(self, verdict: Verification) -> int:
        """How many answers have this verdict."""
        return sum(answer.verdict is verdict for answer in self.answers)


async def record_of_server(
    client: Client,
    period: Period,
    people: PeopleFile | None,
    *,
    limit: int = MAX_TASKS,
    progress: Progress | None = None,
) -> Record:
    """The answers that tasks of a period took in it. Raises Problem if the query cannot be used."""
    until, made = datetime.now(UTC), _Recording(people, client.namespace)
    runs, more = await listed_runs(client, period, limit)

    def take(_: Run, history: History) -> None:
        made.add(history)
        if progress:
            progress(made.histories, len(runs))

    await read_each(client, runs, take)
    return made.record(period.since, until, more)


async def record_of_files(
    files: Iterable[Path], people: PeopleFile | None, converter: DataConverter, since: datetime | None = None
) -> Record:
    """The answers in exported histories. Raises Problem for a file without a history."""
    until, made = datetime.now(UTC), _Recording(people)
    for file in files:
        saved = history_in(file)
        reading = HistoryBuilder(saved.workflow_id, converter)
        reading.history.run_ids.append(saved.run_id)
        for event in saved.events:
            await reading.add(event)
        made.add(await reading.complete())
    return made.record(since, until)


class _Answer(NamedTuple):
    """An answer with the request that it was given to; None for an extension that no request asked for."""

    given: HumanAnswer
    request: HumanRequest | None
    number: int = 1


def _answers_of(account: Outcome) -> Iterator[_Answer]:
    asked_for = [(one.answer.at, one.answer.extended) for one in account.requests if one.answer]
    for request in account.requests:
        for number, answer in enumerate([*request.endorsed, *([request.answer] if request.answer else [])], 1):
            yield _Answer(answer, request, number)
    yield from (_Answer(more, None) for more in account.extensions if (more.at, more.extended) not in asked_for)


class _Recording:
    def __init__(self, people: PeopleFile | None, namespace: str = "") -> None:
        """`namespace` is that of the histories; empty if it is not known."""
        self.histories = 0
        self._people, self._namespace = people, namespace
        self._found = dict[tuple[str, str, datetime, Choice, int], RecordedAnswer]()
        """By what tells answers of a task apart: several runs of a task have the same ones after a reset."""
        self._unread = dict[str, Unread]()
        self._tasks = set[str]()

    def add(self, history: History) -> None:
        """Add the answers of one run, and of those that continued as new into it."""
        self.histories += 1
        self._tasks.add(history.task_id)
        causes = {payload.why for payload in history.unreadable}
        causes |= {"cannot be replayed by this version"} if history.is_untold else set()
        if causes:
            self._unread[history.task_id] = Unread(task_id=history.task_id, why=", ".join(sorted(causes)))
        account = history.account
        for answer in _answers_of(account):
            row = self._row(history, account, answer)
            key = row.task_id, row.request, row.at, row.choice, row.number
            before = self._found.get(key)
            if before is None or before.verdict is not Verification.FALSE:  # what is false in one run is shown
                self._found[key] = row

    def record(self, since: datetime | None, until: datetime, more: int = 0) -> Record:
        """The answers that were taken since then, the oldest first."""
        rows = sorted((row for row in self._found.values() if since is None or row.at >= since), key=_in_order)
        unread = tuple(self._unread.values())
        return Record(since=since, until=until, answers=tuple(rows), tasks=len(self._tasks), more=more, unread=unread)

    def _row(self, history: History, account: Outcome, answer: _Answer) -> RecordedAnswer:
        given, request, stated = answer.given, answer.request, answer.given.statement
        shown = tuple(_shown(history, account, request)) if request else ()
        why = self._why_false(history, answer, shown)
        signed = Verification.VERIFIED if self._people else Verification.SIGNED
        step = next((one for one in account.steps if request and one.id == request.step), None)
        return RecordedAnswer(
            task_id=history.task_id,
            request=request.id if request else "",
            kind=request.kind.value if request else "budget",
            step=(request.step or "") if request else "",
            tool=request.call.kind if request and request.call else step.kind if step else "",
            choice=given.choice,
            number=answer.number,
            needed=(request.needed or 1) if request else 1,
            person=stated.person if stated else given.by,
            how=stated.how if stated else "",
            roles=stated.roles if stated else (),
            key=stated.key if stated else "",
            at=given.at,
            shown=shown,
            statement=stated,
            verdict=Verification.FALSE if why else signed if stated else Verification.UNSIGNED,
            why=why,
        )

    def _why_false(self, history: History, answer: _Answer, shown: Sequence[ShownCall]) -> str:
        """Why what is recorded about an answer does not hold, as a clause; empty if it does."""
        given, request = answer.given, answer.request
        sent, stated = _sent(history, answer), given.statement
        if sent is not None and sent.statement != stated:
            return "its event in the history has another statement"
        if stated is None:
            rule = request.approvers if request and given.choice in BUYS else None
            return f"the tool needs {rule.text()}, and nobody has signed it" if rule else ""
        if is_placeholder(stated.signature):
            return "its signature was replaced when the history was exported with --redact"
        try:
            if self._people is not None:
                self._people.verified(stated, given.at)
        except ValueError as error:
            return str(error)
        if answer.given.choice in OF_CALL and shown and not shown[0].args and _has_args(history, shown[0]):
            return "the history has other arguments than those that were shown"
        return self._why_unfit(history, answer, stated, sent)

    def _why_unfit(self, history: History, answer: _Answer, stated: Statement, sent: Given | None) -> str:
        """Why a statement is not about this answer, as a clause; empty if it is."""
        given, request = answer.given, answer.request
        about = (history.task_id, given.choice.value, given.by)
        if (stated.task, stated.choice, stated.person) != about or self._namespace not in ("", stated.namespace):
            return "it was signed for another task, another answer or another person"
        if sent is not None and stated.given != given_by(sent):
            return "it was signed for other values than those that were sent"
        if request is None:
            return ""
        if (stated.request, stated.asked) != (request.id, request.since):
            return "it was signed for another request"
        if given.choice in OF_CALL and request.call and request.call.code not in stated.calls:
            return "it was signed for another call"
        if request.approvers and given.choice in BUYS:
            starter = history.task.starter if history.task else None
            return request.approvers.refuses(stated, starter).rstrip(".")
        return ""


def _in_order(row: RecordedAnswer) -> tuple[datetime, str, str]:
    return row.at, row.task_id, row.request


def _sent(history: History, answer: _Answer) -> Given | None:
    """What the event of an answer has; None if no event is known, or if it cannot be read."""
    request, given = answer.request, answer.given
    about = ("", request.id) if request else ("",)

    def fits(known: AcceptedAnswer) -> bool:
        is_of_request = known.given is None or (isinstance(known.given, Given) and known.given.request in about)
        # The handler of an Update runs before its event is written.
        return is_of_request and known.choice is given.choice and known.at >= given.at

    sent = [known.given for known in history.answers if fits(known)]
    same = [one for one in sent if isinstance(one, Given) and one.statement == given.statement]
    found = next(iter([*same, *sent]), None)
    return found if isinstance(found, Given) else None


def _calls(request: HumanRequest) -> Sequence[ProposedCall]:
    return (request.call, *request.others) if request.call else ()


def _shown(history: History, account: Outcome, request: HumanRequest) -> Iterator[ShownCall]:
    """The calls that a request showed. The code of each proves whether the history still has the same arguments."""
    for call in _calls(request):
        id = call.step or request.step or ""
        step = next((one for one in account.steps if one.id == id), None)
        known = [args_before(account, request, step)] if step else []
        known += [made.args for made in history.of_step(id) if isinstance(made.args, dict)]
        # A fallback has a key of its own.
        keys = [ids.idempotency_key(name, history.key_prefix) for name in (id, ids.of_call(id, call.kind))]
        runs, found = {*history.run_ids, *history.related}, ""
        for shown in (digest(call.kind, args) for args in known):
            if call.code in (approval_code(run, key, shown) for run in runs for key in keys):
                found = shown
        yield ShownCall(step=id, tool=call.kind, code=call.code, args=found)


def _has_args(history: History, shown: ShownCall) -> bool:
    """Whether the history has the arguments of a call of this step and this tool."""
    calls = (call for call in history.of_step(shown.step) if call.kind == shown.tool and not call.is_local)
    return any(isinstance(call.args, dict) for call in calls)
