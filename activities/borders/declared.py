"""Faults that a user declares: `raises=` of a tool, and the entry points `replan.faults` of a company's packages.

@tool.keyed(raises={ShopError: "conflict", ShopDown: fault("server_error", applied="unknown"), 402: "conflict"})

[project.entry-points."replan.faults"]        # in a package's pyproject.toml: package = "module:mapping"
shop = "shop.faults:FAULTS"
"""

import importlib.metadata
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from activities.borders.http import STATUS, with_answer
from activities.borders.table import Cases, Entry, Proof, Row, Table, Verdict, parents, qualified
from activities.errors import RESERVED_CODES, ToolError
from workflows.faults.fault import QUADRANT, Code, Quadrant
from workflows.text import nearest

GROUP = "replan.faults"
"""The group of entry points; the name of an entry point is the top-level package whose exceptions it declares."""
CODES = sorted(code.value for code in Code if code not in RESERVED_CODES)
"""The codes that may be declared; the others are Replan's own."""

MAX_LISTED = 5
"""The most mistakes or classes of one mapping that a log line names."""


@dataclass(frozen=True)
class DeclaredFault:
    """What `fault()` returns; nothing is checked before a worker loads the tool."""

    code: str
    applied: str | None = None
    reason: str | None = None
    retry_after: float | None = None


Declared = str | DeclaredFault | Callable[[Any], str | DeclaredFault | None]
"""A fault code, a `fault(...)`, or a function that returns one of these for an exception; None leaves it to Replan's
own tables."""
# Not `type[BaseException] | int`: keys are invariant, so a mapping that a program annotated would fit no more.
Raises = Mapping[Any, Declared]
"""By class of exceptions, or by HTTP status, what it is."""
Entries = Mapping[type[BaseException] | int, Entry]


def fault(
    code: str,
    *,
    applied: Literal["none", "unknown"] | None = None,
    reason: str | None = None,
    retry_after: float | None = None,
) -> DeclaredFault:
    """Declare how an exception is classified, in `raises=` and in a mapping of the entry points `replan.faults`.

    `code` is one of docs/errors.md. `applied` is what the exception proves about the effect of the call: "none" that
    the call had no effect, whatever the tool sent before; "unknown" nothing. Without `applied`, a rejection (the codes
    that lead to a new plan) proves that the rejected request had no effect, and any other code proves nothing. `reason`
    is one sentence for the planner and for people, by default with the name of the class. `retry_after` is in seconds.
    """
    return DeclaredFault(code, applied, reason, retry_after)


def entries(raises: Raises) -> Entries:
    """The entries, by class or HTTP status, for a `raises=` that has no mistakes."""
    return {
        (int(raised) if isinstance(raised, int) else raised): _entry(raised, declaration, "raises=")
        for raised, declaration in raises.items()
    }


def by_status(before: Verdict, error: BaseException, by_tool: Verdict) -> Verdict:
    """The verdict `by_tool` that a tool declares for the HTTP status of an exception, in place of the verdict `before`.

    It proves what `before` does, unless the declaration says by `applied=` or by its code what it proves.
    """
    proves = before.proves if by_tool.proves is Proof.REFUSED else by_tool.proves
    observed = before.fault.observed if by_tool.fault.quadrant is Quadrant.PERSISTENT_SEMANTIC else None
    fault = by_tool.fault.model_copy(update={"guessed": before.fault.guessed, "observed": observed})
    by_tool = replace(by_tool, fault=fault, proves=proves, requests=before.requests, words=before.words)
    return with_answer(by_tool, error)


def entry_of(raised: type[BaseException], raises: Entries) -> Entry | None:
    """The entry for a class or for the nearest of its parents; None if the tool declares none of them."""
    # By identity: a class of a class may have a hash or an equality that raises.
    return next((entry for parent in parents(raised) for known, entry in raises.items() if known is parent), None)


def mistakes(raises: object, *, takes_statuses: bool = True) -> Iterator[str]:
    """Yield each mistake in a `raises=`, as the rest of a sentence that begins with the option."""
    if not isinstance(raises, Mapping):
        yield 'must be a dict of exception classes, e.g. raises={ShopError: "conflict"}.'
        return
    for raised, declaration in raises.items():
        name = getattr(raised, "__name__", repr(raised))
        if _is_number(raised):
            yield from (
                _mistakes_of_status(raised, declaration)
                if takes_statuses
                else [f"has the key {raised!r}: a package declares classes, and only raises= of a tool an HTTP status."]
            )
        elif not (isinstance(raised, type) and issubclass(raised, BaseException)):
            yield f"has the key {name}, which is no class of exceptions: import the class and name it."
        elif raised in (BaseException, Exception):
            yield f"names {name}, which is every error, also of a bug: name the classes of the library."
        elif issubclass(raised, ToolError):
            yield f"names {name}, which says itself what it is: leave it out."
        elif not issubclass(raised, Exception):
            yield f"names {name}, which ends a process or cancels a call: leave it out."
        elif not callable(declaration):
            yield from (f"{name}: {wrong}" for wrong in _mistakes_of(declaration))


def _is_number(key: object) -> bool:
    """Whether a key of a mapping is meant as an HTTP status; a bool is not."""
    is_number = isinstance(key, int) and not isinstance(key, bool)
    return is_number or (isinstance(key, str) and key.strip().isdecimal())


def _mistakes_of_status(status: object, declaration: object) -> Iterator[str]:
    if not isinstance(status, int) or not 400 <= status < 600:
        near = nearest(str(status).strip(), [str(known) for known in STATUS])
        yield f"has the key {status!r}, which is no HTTP status of an error{near}: write a number from 400 to 599."
    elif not callable(declaration):
        yield from (f"{int(status)}: {wrong}" for wrong in _mistakes_of(declaration))


def from_entry_points(package: str) -> Table:
    """The table that installed packages declare for the exceptions of `package`; empty if none does.

    A mapping that cannot be loaded or has a mistake is logged and left out as a whole.
    """
    found = dict[str, Entry]()
    for point in importlib.metadata.entry_points(group=GROUP, name=package):
        try:
            table = point.load()
            wrong = list(mistakes(table, takes_statuses=False)) or [
                f"{qualified(raised)} is not of {package}: it needs an entry point with the name of its own package."
                for raised in table
                if qualified(raised).partition(".")[0] != package
            ]
        except (Exception, SystemExit) as error:  # any package may have declared it
            wrong = [f"cannot be loaded ({type(error).__name__})"]
        if wrong:
            log = _log()
            log.warning("faults_not_loaded", entry_point=point.value, package=package, problems=wrong[:MAX_LISTED])
            continue
        read = {qualified(raised): _entry(raised, declaration, point.value) for raised, declaration in table.items()}
        if twice := sorted({*found} & {*read}):
            log = _log()
            log.warning("faults_declared_twice", entry_point=point.value, package=package, classes=twice[:MAX_LISTED])
        found = read | found  # as for modules, the package that comes first on Python's path counts
    return found


def _log() -> Any:
    import structlog  # which takes as long to import as all of this room, and most programs have no such mistake

    return structlog.get_logger("replan.faults")


def _entry(raised: type[BaseException] | int, declaration: Declared, source: str) -> Entry:
    if not callable(declaration):
        return _row(declaration, raised)
    no_fault = f"The function in {source} for {_name(raised)} gives no fault"

    def decide(error: BaseException) -> Verdict | None:
        try:
            chosen = declaration(error)
            wrong = [] if chosen is None else list(_mistakes_of(chosen))
        except Exception as failed:  # it is the user's
            wrong = [f"it raised {type(failed).__name__}."]
        if wrong:
            reason = f"{no_fault}, since {wrong[0]} Correct the function."
            return Row(Code.BUG, reason, Proof.UNKNOWN).verdict()
        return None if chosen is None else _row(chosen, raised).verdict()

    passed = f"{no_fault}, since a NoneType is no fault, and no table knows the exception either: correct the function."
    otherwise = Row(Code.BUG, passed, Proof.UNKNOWN)
    return Cases("a function", {}, decide, otherwise, may_pass=True)


def _name(raised: type[BaseException] | int) -> str:
    return f"status {raised:d}" if isinstance(raised, int) else raised.__name__


def _row(declaration: str | DeclaredFault, raised: type[BaseException] | int) -> Row:
    declared = declaration if isinstance(declaration, DeclaredFault) else DeclaredFault(declaration)
    code = Code(declared.code)
    is_rejection = QUADRANT[code] is Quadrant.PERSISTENT_SEMANTIC
    reason = f"The tool raised {_name(raised)}, which it declares as {code.value}."
    if isinstance(raised, int):
        # The service answered, and its status says what the answer proves, unless it failed while it worked.
        is_rejection = QUADRANT[code] is not Quadrant.TRANSIENT_INFRASTRUCTURAL and code is not Code.BUG
        reason = f"The service returned {raised:d}, which the tool declares as {code.value}."
    by_code = Proof.REFUSED if is_rejection else Proof.UNKNOWN
    proves = _PROVES[declared.applied] if declared.applied else by_code
    return Row(code, declared.reason or reason, proves, declared.retry_after)


_PROVES = {"none": Proof.PROMISED, "unknown": Proof.UNKNOWN}


def _mistakes_of(declaration: object) -> Iterator[str]:
    """Yield each mistake in a declaration, which must be a fault code or a `fault(...)`, as a clause of a sentence."""
    declared = DeclaredFault(declaration) if isinstance(declaration, str) else declaration
    if not isinstance(declared, DeclaredFault):
        yield f'a {type(declaration).__name__} is no fault: write a code, e.g. "conflict", or fault("conflict", ...).'
        return
    if declared.code not in CODES:
        near = nearest(str(declared.code), CODES)
        yield f"there is no code {declared.code!r} for a tool{near}: use one of {', '.join(CODES)}."
    if declared.applied not in (None, "none", "unknown"):
        yield f'applied={declared.applied!r} must be "none" or "unknown": after an applied effect, return its result.'
    if declared.reason is not None and not (isinstance(declared.reason, str) and declared.reason.strip()):
        yield "reason= must be a sentence."
    wait = declared.retry_after
    if wait is not None and (isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < math.inf):
        yield f"retry_after={wait!r} must be a number of seconds, 0 or more."
