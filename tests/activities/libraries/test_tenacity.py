"""tenacity: what ended a tool's own retries decides, and earlier attempts may have had an effect."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from activities.borders.table import Proof
from replan import Refused
from tests.activities.libraries.verdicts import NOT_SENT, REFUSED, UNKNOWN, Outcome, outcome, raised
from workflows.faults.fault import Code

pytestmark = pytest.mark.full
tenacity: Any = pytest.importorskip("tenacity")


def gives_up(call: Callable[[], object], attempts: int = 3, **options: Any) -> Outcome:
    """What the RetryError with which tenacity ends the retries of a call is taken for."""
    error = raised(lambda: tenacity.Retrying(stop=tenacity.stop_after_attempt(attempts), **options)(call))

    assert type(error) is tenacity.RetryError
    return outcome(error)


def failing(*errors: Exception) -> Callable[[], object]:
    """A call that raises one after the other."""
    left = list(errors)

    def call() -> object:
        raise left.pop(0)

    return call


def refused() -> object:
    """Connect to a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    return socket.create_connection(address)


@pytest.mark.parametrize(
    ("errors", "code", "proves"),
    [
        ([TimeoutError(), ConnectionRefusedError()], Code.UNREACHABLE, UNKNOWN),
        ([FileNotFoundError()], Code.NOT_FOUND, REFUSED),
        ([TimeoutError(), FileNotFoundError()], Code.NOT_FOUND, UNKNOWN),
        ([TimeoutError(), Refused("No.")], Code.REFUSED, UNKNOWN),
        ([KeyError("sk-secret")], Code.BUG, UNKNOWN),
        ([ExceptionGroup("x", [TimeoutError(), PermissionError()])], Code.FORBIDDEN, UNKNOWN),
    ],
    ids=repr,
)
def test_the_last_attempt_decides(errors: list[Exception], code: Code, proves: Proof) -> None:
    """It proves something only where it was the only one."""
    assert gives_up(failing(*errors), len(errors)) == (code, proves)


def test_the_innermost_exception_decides_and_earlier_attempts_are_lost() -> None:
    """Of a port that refuses thrice, of retries around retries, and of calls that were answered until it gave up."""
    around = gives_up(lambda: tenacity.Retrying(stop=tenacity.stop_after_attempt(1))(refused), 1)
    polled = gives_up(lambda: None, retry=tenacity.retry_if_result(lambda result: result is None))

    assert gives_up(refused) == (Code.UNREACHABLE, UNKNOWN)
    assert around == (Code.UNREACHABLE, NOT_SENT)
    assert polled == (Code.UNEXPECTED_RESULT, UNKNOWN)


def test_try_again_stands_for_its_cause() -> None:
    """As `reraise=True` raises the cause."""

    def call() -> object:
        try:
            return refused()
        except OSError as error:
            raise tenacity.TryAgain from error

    assert gives_up(call)[0] is Code.UNREACHABLE
    assert gives_up(failing(tenacity.TryAgain()), 1)[0] is Code.BUSY


def endless() -> Exception:
    """A RetryError whose last attempt ended with itself."""
    attempt = tenacity.Future(1)
    error: Exception = tenacity.RetryError(attempt)
    attempt.set_exception(error)
    return error


def cancelled() -> Future[object]:
    """A future that never ran."""
    future = Future[object]()
    future.cancel()
    return future


@pytest.mark.parametrize(
    "error",
    [tenacity.RetryError(None), tenacity.RetryError(Future()), tenacity.RetryError(cancelled()), endless()],
    ids=["None", "pending", "cancelled", "endless"],
)
def test_an_attempt_that_cannot_be_read(error: Exception) -> None:
    """A person sees it; and nothing waits for an attempt that is not over."""
    assert outcome(error) == (Code.BUG, UNKNOWN)
