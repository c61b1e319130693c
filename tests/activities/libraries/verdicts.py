"""What the tests of libraries share: the exception of a call, what it is taken for, and the classes of a package."""

import asyncio
import inspect
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from activities.borders import judge
from activities.borders.table import Proof, Verdict
from tests.libraries import recorded
from workflows.faults.fault import Code

HIDDEN = "sk-secret"
"""What no fault may show."""
PROMISED, NOT_SENT, REFUSED, UNKNOWN = Proof
Outcome = tuple[Code, Proof]


def raised(call: Callable[[], object]) -> BaseException:
    """What a call raises."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("the call did not fail")


async def failing(call: Callable[..., object], *args: Any, **options: Any) -> BaseException:
    """What a call raises, in a thread as far as it is blocking."""
    try:
        found = await asyncio.to_thread(call, *args, **options)
        if inspect.isawaitable(found):
            await found
    except Exception as error:
        return error
    raise AssertionError("the call did not fail")


def judged(error: BaseException) -> Verdict:
    """The verdict on an exception, which has nothing of what must be hidden."""
    verdict = judge(error)

    assert HIDDEN not in verdict.fault.model_dump_json()
    return verdict


def outcome(error: BaseException | Verdict) -> Outcome:
    """The code and the proof of an exception or a verdict."""
    verdict = error if isinstance(error, Verdict) else judged(error)
    return verdict.fault.code, verdict.proves


def classes_of(package: str) -> list[type[BaseException]]:
    """The recorded exceptions of a package, as far as they can be imported here."""
    found = list[Any]()
    for one in recorded()[package]:
        with suppress(Exception):  # it needs another package, or another version
            found.append(pkgutil.resolve_name(one.name))
    return [one for one in found if isinstance(one, type) and issubclass(one, BaseException)]
