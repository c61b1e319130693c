"""Classifies failures by whether a retry could help, with the tables of `activities/borders`.

A history has no exception, only what Temporal recorded: the name of the class without its module (or another type), the
message, and the traceback. So a class is looked up by its name in all tables, and the packages in the traceback choose
among classes with the same name. A verdict that rests on a message alone is a guess.
"""

import builtins
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from activities.borders import http, model_errors, table_of, tables
from activities.borders.described import FOLLOWS
from activities.borders.meaning import Fault
from activities.borders.table import Entry, Proof, Row
from extras.audit.tools import Confidence, weaker
from workflows.faults.fault import QUADRANT, Applied, Code, Quadrant

CLASSES = Path(__file__).with_name("classes.json")
"""The exception classes of libraries that have no row in a table, by the row of the parent class that decides."""
MODELS = ("anthropic", "openai")
"""The packages of model APIs, where an HTTP status has another meaning than for a tool."""
_VAGUE = frozenset({"Exception", "RuntimeError", "ValueError", "BaseException", "ExceptionGroup", "SystemExit"})
"""Python's own classes that do not say what failed."""
_BUGS = (
    frozenset(
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, OSError | Warning)
    )
    - _VAGUE
)
WORKER_SHUTDOWN = "WorkerShutdown"
"""The failure type with which an SDK ends an attempt whose worker stops."""
INTEGRATIONS: Mapping[str, Code] = {
    # pydantic-ai
    "UserError": Code.BUG,
    "PydanticUserError": Code.BUG,
    "UsageLimitExceeded": Code.QUOTA_EXHAUSTED,
    "UnexpectedModelBehavior": Code.UNEXPECTED_RESULT,
    "ToolRetryError": Code.INVALID_INPUT,
    "ModelRetry": Code.INVALID_INPUT,
    # OpenAI Agents
    "MaxTurnsExceeded": Code.QUOTA_EXHAUSTED,
    "ModelBehaviorError": Code.UNEXPECTED_RESULT,
    "InputGuardrailTripwireTriggered": Code.REFUSED,
    "OutputGuardrailTripwireTriggered": Code.REFUSED,
    # The SDKs of Temporal
    "NotFoundError": Code.MISSING_TOOL,
    WORKER_SHUTDOWN: Code.WORKER_SHUTDOWN,
    # Other languages: what is thrown for wrong code and wrong input
    "NullPointerException": Code.BUG,
    "IllegalArgumentException": Code.INVALID_INPUT,
    "ReferenceError": Code.BUG,
    "RangeError": Code.BUG,
    "SocketTimeoutException": Code.TIMEOUT,
    "ConnectException": Code.UNREACHABLE,
    "UnknownHostException": Code.UNREACHABLE,
}
"""The codes of failure types that are in no table, by the name of the type in a history."""
CAPS = frozenset({"UsageLimitExceeded", "MaxTurnsExceeded"})
"""Failure types of a limit that the agent itself sets, such as its maximum of turns."""
_NETWORK = re.compile(
    r"(?i)fetch failed|connection (was )?(reset|refused|aborted|closed)|ECONN(RESET|REFUSED)|socket hang up|server"
    r" disconnected|name or service not known|temporary failure in name resolution|broken pipe|remote end closed"
)
_SLOW = re.compile(r"(?i)\b(timed? ?out|deadline exceeded)\b")
_PHRASES = "|".join(re.escape(status.phrase) for status in HTTPStatus if status >= 400)
_STATUS = (
    re.compile(
        r"(?i)\b(?:status(?:[ _]?code)?|http(?:/[\d.]+)?|error code|code)[\"']?\s*(?:[:=]|is)?\s*[\"']?([45]\d\d)\b"
    ),
    re.compile(r"(?i)\b(?:client|server) error '?([45]\d\d)\b|\b([45]\d\d) (?:client|server) error\b"),
    re.compile(rf"(?i)\b([45]\d\d)\b[\s,:()'-]+(?:message=)?'?(?:{_PHRASES})"),
    re.compile(r"(?i)(?:returned|answered|responded)(?: with)?(?: a)?(?: status)? ([45]\d\d)\b"),
)
"""Patterns of an HTTP status in the error messages of clients."""
_WAIT = re.compile(r"(?i)(?:try again|retry)[ -](?:in|after)\W{1,4}(\d+(?:\.\d+)?)\s*(ms|m(?:in)?\b|s|$|\D)")
"""The pattern of a requested wait in the error messages of services."""


class Failing(NamedTuple):
    """The failure of an attempt, as far as a history has it."""

    type: str = ""
    """The class name of the exception, or another failure type; empty if the failure has no type."""
    message: str = ""
    timeout: str = ""
    """Which timeout passed: `start to close`, `heartbeat`, `schedule to start`, `schedule to close`; else empty."""
    is_server: bool = False
    """Whether the server itself rejected what the attempt returned."""
    is_cancelled: bool = False
    wait: float | None = None
    """Seconds that the failure asks to wait before a retry."""
    packages: frozenset[str] = frozenset()
    """The packages in the traceback of the exception."""
    code: str = ""
    """The fault code in the details of the failure, as Replan writes it; empty if there is none."""
    fault: Fault | None = None
    """The Fault in the details of the failure, as Replan and `replan.FaultsPlugin` write it; None if there is none."""
    is_made: bool = False
    """Whether the program made the failure itself, as an ApplicationError, or the SDK is not that of Python."""
    cause: "Failing | None" = None

    @property
    def chain(self) -> Iterator["Failing"]:
        """The failure, then its cause, then the cause of that cause, and so on."""
        failing: Failing | None = self
        while failing is not None:
            yield failing
            failing = failing.cause

    @property
    def is_replans(self) -> bool:
        """Whether a worker of Replan wrote the failure."""
        return self.type in set(Quadrant)

    @property
    def is_silent(self) -> bool:
        """Whether the outcome of the attempt is unknown: a start-to-close or heartbeat timeout passed."""
        return self.timeout in ("start to close", "heartbeat")

    def is_same(self, other: "Failing | None") -> bool:
        """Whether `other` has the same type, timeout and message; numbers and ids in the message are ignored."""
        return other is not None and self.raised._likeness == other.raised._likeness

    @property
    def raised(self) -> "Failing":
        """The failure itself, if this is the one that the server puts before a failure that it has cut."""
        return next((one for one in self.chain if not one.is_server or one.cause is None), self)

    @property
    def _likeness(self) -> tuple[str, str, str]:
        return self.type, self.timeout, _without_numbers(self.message)

    @property
    def named_wait(self) -> float | None:
        """Seconds to wait before a retry, from the failure, its causes or their messages; None if they name no wait."""
        for failing in self.chain:
            if failing.wait is not None:
                return failing.wait
            if found := _WAIT.search(failing.message):
                unit = found[2].lower()
                return float(found[1]) * (0.001 if unit == "ms" else 60 if unit[:1] == "m" else 1)
        return None

    @property
    def words(self) -> str:
        """The failure as a text, such as `type: message`. It is untrusted content, which the caller must scrub."""
        if self.timeout:
            return f"timeout ({self.timeout})"
        # The server puts its own failure before one that it has cut.
        shown = next((failing for failing in self.chain if failing.type or not failing.cause), self)
        return ": ".join(filter(None, (shown.type, shown.message))) or "no message"


def _without_numbers(message: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+|[0-9a-f-]{16,}|\d+", "#", message)


class Diagnosis(NamedTuple):
    """How Replan would classify a failure."""

    code: Code
    reason: str
    confidence: Confidence
    proves: Proof = Proof.UNKNOWN

    @property
    def quadrant(self) -> Quadrant:
        """Whether the fault is transient or persistent, and infrastructural or semantic."""
        return QUADRANT[self.code]

    @property
    def is_transient(self) -> bool:
        return self.quadrant.is_transient

    @property
    def follows(self) -> str:
        """What Replan would have done after the failure, in words."""
        return FOLLOWS[self.quadrant]


def verdict(failing: Failing, *, of_model: bool = False) -> Diagnosis | None:
    """Classify a failure by the first failure in its `chain` that has a verdict; None if none of them has.

    With `of_model`, the failed call was sent to a model API, where HTTP statuses have other meanings.
    """
    return next(filter(None, (_verdict_by_rules(one, of_model=of_model) for one in failing.chain)), None)


def _verdict_by_rules(failing: Failing, *, of_model: bool) -> Diagnosis | None:
    if failing.timeout:
        return _of_timeout(failing.timeout)
    if failing.is_server and failing.cause is None:  # with one, the server only cut the failure's traceback
        return Diagnosis(Code.TOO_LARGE, "The server refused what the attempt returned.", Confidence.CERTAIN)
    if failing.is_replans:
        return _of_replan(failing)
    if failing.fault is not None:
        return _of_plugin(failing.fault)
    return _by_class(failing, of_model=of_model) or _by_status(failing, of_model=of_model) or _by_message(failing)


def _of_timeout(timeout: str) -> Diagnosis:
    if timeout == "heartbeat":
        return Diagnosis(Code.WORKER_LOST, "The worker sent no heartbeat in time.", Confidence.CERTAIN)
    proves = Proof.NOT_SENT if timeout == "schedule to start" else Proof.UNKNOWN
    return Diagnosis(Code.TIMEOUT, f"The timeout ({timeout}) passed.", Confidence.CERTAIN, proves)


def _of_replan(failing: Failing) -> Diagnosis:
    """The verdict that a worker of Replan recorded; without a recorded code, the first code of the same quadrant."""
    fitting = (code for code, quadrant in QUADRANT.items() if quadrant.value == failing.type)
    code = Code(failing.code) if failing.code in set(Code) else next(fitting)
    return Diagnosis(code, failing.message, Confidence.CERTAIN)


def _of_plugin(fault: Fault) -> Diagnosis | None:
    """The verdict that `replan.FaultsPlugin` recorded; None if no table knew the error."""
    if not fault.is_known:
        return None
    proves = Proof.UNKNOWN if fault.applied is not Applied.NONE else Proof.REFUSED
    return Diagnosis(fault.code, fault.reason, Confidence.GUESSED if fault.guessed else Confidence.CERTAIN, proves)


def fault_of(failing: Failing) -> Fault:
    """What `replan.FaultsPlugin` would have said of the failure, or did say.

    It is not known (`is_known` is False, and nothing follows) if no table has the class of the exception or of one of
    its causes, if the verdict is a guess, and if the failure is one that the plugin leaves as it is.
    """
    raised = failing.raised
    if raised.fault is not None:
        return raised.fault
    found = _of_timeout(raised.timeout) if raised.timeout else None if raised.is_made else _by_tables(raised)
    if found is None or found.confidence is Confidence.GUESSED:
        reason = "Nobody knows what this failure means."
        return Fault(QUADRANT[Code.BUG], Code.BUG, reason, Applied.NONE, is_known=False)
    applied = Applied.UNKNOWN if found.proves is Proof.UNKNOWN else Applied.NONE
    return Fault(found.quadrant, found.code, found.reason, applied, retry_after=failing.named_wait)


def _by_tables(failing: Failing) -> Diagnosis | None:
    """The verdict on the first exception of a chain of causes that has one; None below a mistake, as in the tables."""
    for one in failing.chain:
        short = one.type.rpartition(".")[2]
        if short == WORKER_SHUTDOWN:
            return Diagnosis(INTEGRATIONS[short], f"The type is {short}.", Confidence.LIKELY)
        if found := _by_row(one, of_model=False):
            return found
        if short in _BUGS:
            return None
    return None


def _by_class(failing: Failing, *, of_model: bool) -> Diagnosis | None:
    if found := _by_row(failing, of_model=of_model):
        return found
    short = failing.type.rpartition(".")[2]
    if _rows_of(failing.type)[0]:
        return None
    if short in INTEGRATIONS:
        return Diagnosis(INTEGRATIONS[short], f"The type is {short}.", Confidence.LIKELY)
    if short in _BUGS and not _NETWORK.search(failing.message):
        return Diagnosis(Code.BUG, f"{short} is a mistake in the code of the tool.", Confidence.LIKELY)
    return None


def _by_row(failing: Failing, *, of_model: bool) -> Diagnosis | None:
    """The verdict of the rows for the class of a failure; None if there are none, or if they disagree."""
    rows, package = _rows_of(failing.type)
    traced = [row for row in rows if row.partition(".")[0] in failing.packages]
    found = [_of_named_row(row, failing, of_model=of_model) for row in traced or rows]
    agreed = _agreed_verdict([verdict for verdict in found if verdict is not None])
    if agreed is None or traced or package:
        return agreed
    return agreed._replace(confidence=weaker(agreed.confidence, Confidence.LIKELY))


def _rows_of(type: str) -> tuple[Sequence[str], str]:
    """The rows for the name of a class, and the package that the name begins with; empty if it names none."""
    package = type.partition(".")[0] if "." in type else ""
    rows = _rows_by_class_name().get(type.rpartition(".")[2], ())
    return [row for row in rows if package in ("", row.partition(".")[0])], package


def _agreed_verdict(found: Sequence[Diagnosis]) -> Diagnosis | None:
    """The verdict of libraries whose classes have the same name; None if they disagree on whether a retry helps."""
    known = [verdict for verdict in found if verdict.code is not Code.BUG] or found
    # A verdict that the message has chosen says more than a verdict for the whole class.
    ranks = {Confidence.LIKELY: 0, Confidence.CERTAIN: 1, Confidence.GUESSED: 2}
    best = min((ranks[verdict.confidence] for verdict in known), default=0)
    sure = [verdict for verdict in known if ranks[verdict.confidence] == best]
    if len({verdict.is_transient for verdict in sure}) != 1:
        return None
    code = Counter(verdict.code for verdict in sure).most_common(1)[0][0]
    agreed = next(verdict for verdict in sure if verdict.code is code)
    is_proven = len({verdict.proves for verdict in sure}) == 1
    return agreed if is_proven else agreed._replace(proves=Proof.UNKNOWN)


def _of_named_row(row_name: str, failing: Failing, *, of_model: bool) -> Diagnosis | None:
    """The verdict of the table entry `row_name`; for a model API, that of the message, if the message has a verdict."""
    name, _, sqlstate = row_name.partition(" ")
    entry = table_of(name.partition(".")[0])[name]
    if of_model or name.partition(".")[0] in MODELS:
        return _by_status(failing, of_model=True, confidence=Confidence.LIKELY) or _of_entry(entry, failing)
    return _of_entry(entry, failing, sqlstate)


def _of_entry(entry: Entry, failing: Failing, sqlstate: str = "") -> Diagnosis:
    """The verdict of the entry's row that `sqlstate` or the message chooses; without such a row, of its default row.

    The verdict of the default row is a guess if the rows of the entry disagree on whether a retry helps.
    """
    if isinstance(entry, Row):
        return Diagnosis(entry.code, entry.reason, Confidence.CERTAIN, entry.proves)
    tokens = set(re.findall(r"[\w.-]+", failing.message))
    status = status_in(failing.message)
    # The class of an SQLSTATE is its first two characters.
    keys = (sqlstate, sqlstate[:2], str(status), *(key for key in entry.rows if key in tokens and not key.isdigit()))
    chosen = next((entry.rows[key] for key in keys if key in entry.rows), None)
    if chosen is None and status is not None and any(value.isdigit() for value in entry.rows):
        chosen = http.by_status(status)
    if chosen:
        return Diagnosis(chosen.code, chosen.reason, Confidence.LIKELY, chosen.proves)
    rows = [*entry.rows.values(), entry.otherwise]
    row = entry.rows.get("nothing", entry.otherwise)  # was sent before by the same call
    is_one = len({QUADRANT[other.code].is_transient for other in rows}) == 1
    is_proven = row is not entry.otherwise or len({other.proves for other in rows}) == 1
    confidence = Confidence.LIKELY if is_one else Confidence.GUESSED
    return Diagnosis(row.code, row.reason, confidence, row.proves if is_proven else Proof.UNKNOWN)


@cache
def _rows_by_class_name() -> Mapping[str, Sequence[str]]:
    """By the name of a class without its module, the names of the table rows that decide for the class.

    For a class in CLASSES, it is the row of a parent class; an SQLSTATE may follow the name of this row after a blank.
    """
    found = defaultdict[str, list[str]](list)
    for packages in tables().values():
        for name in table_of(packages[0]):
            if ".vendored." not in name:  # copies of other libraries, which know less of them
                found[name.rpartition(".")[2]].append(name)
    for row, names in json.loads(CLASSES.read_text(encoding="utf-8")).items():
        for name in names if ".vendored." not in row else ():
            found[name].append(row)
    return found


def _by_status(failing: Failing, *, of_model: bool, confidence: Confidence = Confidence.GUESSED) -> Diagnosis | None:
    status = status_in(failing.message)
    if of_model:
        # An integration may name the status alone, and keep the answer of the API as the cause.
        text = " ".join(one.message for one in failing.chain)
        tokens = set(re.findall(r"\w+", text))
        codes = model_errors.codes()
        means = next((means for code, means in codes.items() if "_" in code and code in tokens), None)
        means = means or model_errors.meaning_of_words(text, status or 0)
        if means is None and status is not None:
            means = model_errors.meaning_of(None, status)
        return Diagnosis(means.code, f"The model's API {means.says}.", confidence) if means else None
    if status is None:
        return None
    found = http.by_status(status)
    return Diagnosis(found.code, found.reason, confidence, found.proves)


def status_in(message: str) -> int | None:
    """The HTTP error status (400 to 599) in a message; None if the message has none."""
    for pattern in _STATUS:
        if found := pattern.search(message):
            return int(next(filter(None, found.groups())))
    return None


def _by_message(failing: Failing) -> Diagnosis | None:
    if _NETWORK.search(failing.message):
        return Diagnosis(Code.UNREACHABLE, "The message speaks of a lost connection.", Confidence.GUESSED)
    if _SLOW.search(failing.message):
        return Diagnosis(Code.TIMEOUT, "The message speaks of a timeout.", Confidence.GUESSED)
    return None
