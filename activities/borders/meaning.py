"""What an error means to any program: a small Fault of any exception, and whether a retry of its call makes sense.

This is all that the module `replan.faults` has besides its plugin; nothing here knows of Temporal or of a store.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Literal

from pydantic import JsonValue, TypeAdapter

from activities.borders import declared, judge
from activities.borders.table import Proof, Verdict
from workflows.faults.fault import Applied, Code, Quadrant


@dataclass(frozen=True)
class Fault:
    """What an error means: whether time can cure it, and what is known of the effect of the request that failed."""

    quadrant: Quadrant
    """`transient_infrastructural`, `transient_semantic`, `persistent_infrastructural` or `persistent_semantic`."""
    code: Code
    """What happened, such as `not_found`; docs/errors.md lists all codes."""
    reason: str
    """What happened, in one sentence of the tables; never the message of the exception, which may hold secrets."""
    applied: Applied
    """Whether the request that failed may have changed something: `none` or `unknown`. Other requests of the same
    function do not count: `FaultsPlugin(effects=...)` counts them."""
    retry_after: float | None = None
    """Seconds that the service asked to wait; None if it asked for no wait."""
    observed: JsonValue = None
    """The state that the service reported; None if it reported none."""
    guessed: str = ""
    """The attribute from which the fault was guessed, such as `ShopError.status_code`, if no table has the class."""
    is_known: bool = True
    """Whether a table knows the error; if not, the code is `bug`."""

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.quadrant.is_transient

    def as_dict(self) -> dict[str, JsonValue]:
        """The fault as JSON, without what is empty."""
        return {
            name: value.value if isinstance(value, Enum) else value
            for name, value in vars(self).items()
            if value not in (None, "") and name != "is_known"
        } | ({} if self.is_known else {"is_known": False})


def classify(error: BaseException, raises: declared.Raises | None = None) -> Fault:
    """What an error means, by the tables of Replan; `raises` are your own, and come first.

    `raises` maps classes of exceptions and HTTP statuses to codes: `{ShopError: "conflict", 402: "refused"}`. An error
    that no table knows is a `bug` with `is_known=False`.

    Raises:
        ValueError: `raises` has a mistake.
    """
    return fault_of(judge(error, entries_of(raises)))


def is_transient(error: BaseException, raises: declared.Raises | None = None) -> bool:
    """Whether the call that failed with `error` may succeed if it is repeated; False if no table knows the error.

    It may have had its effect all the same: repeat a call that must not happen twice only if `classify(error).applied`
    is `none`. `raises` is as in `classify`.
    """
    return classify(error, raises).is_transient


def retry_after(error: BaseException, raises: declared.Raises | None = None) -> float | None:
    """Seconds that the service asked to wait before a retry; None if it asked for no wait.

    `raises` is as in `classify`.
    """
    return classify(error, raises).retry_after


def entries_of(raises: declared.Raises | None) -> declared.Entries | None:
    """The entries for a `raises`; None for none. Raises ValueError for a mistake, with the remedy."""
    if not raises:
        return None
    if wrong := next(declared.mistakes(raises), None):
        raise ValueError(f"raises= {wrong}")
    return declared.entries(raises)


def fault_in(detail: JsonValue) -> Fault | None:
    """The fault in a detail that `Fault.as_dict` made; None if it is no such detail, whoever wrote it."""
    try:
        return _details().validate_python(detail)
    except ValueError:
        return None


@cache
def _details() -> TypeAdapter[Fault]:
    """What reads details; it takes milliseconds to make, and few programs read some."""
    return TypeAdapter(Fault)


def fault_of(verdict: Verdict) -> Fault:
    """The fault that a verdict of the tables tells a program."""
    found = verdict.fault
    return Fault(
        found.quadrant,
        found.code,
        found.reason,
        applied=Applied.UNKNOWN if verdict.proves is Proof.UNKNOWN else Applied.NONE,
        retry_after=found.retry_after,
        observed=found.observed,
        guessed=found.guessed,
        is_known=not verdict.unknown,
    )


Effect = Literal["read", "idempotent", "keyed", "unkeyed"]
"""What a call changes, as a program says it; only an `unkeyed` call must not be repeated in doubt."""


class Next(Enum):
    """What should follow an attempt that failed."""

    UNTOUCHED = "untouched"
    """Nothing is known: whatever follows without us."""
    RETRY = "retry"
    """A retry by the policy of the call, after the wait that the service asked for."""
    SKIP = "skip"
    """No retry: it cannot help."""
    ASK = "ask"
    """No retry: the call may have had its effect, and must not have it twice."""


def follows(fault: Fault, effect: Effect | None = None, *, is_strict: bool = False) -> Next:
    """What should follow a failed attempt of a call with this effect (None if it is not known).

    `is_strict`: an error that no table knows is not retried either.
    """
    if effect == "unkeyed" and fault.applied is not Applied.NONE:
        return Next.ASK
    if not fault.is_known:
        return Next.SKIP if is_strict else Next.UNTOUCHED
    return Next.RETRY if fault.is_transient else Next.SKIP
