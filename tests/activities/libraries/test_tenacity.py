"""tenacity: what ended a tool's own retries decides, and earlier attempts may have had an effect."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from activities.borders import judge
from activities.borders.table import Proof, Verdict
from replan import Refused
from workflows.faults.fault import Code

pytestmark = pytest.mark.full
tenacity: Any = pytest.importorskip("tenacity")


def gives_up(call: Callable[[], object], attempts: int = 3, **options: Any) -> Verdict:
    """The verdict on the RetryError with which tenacity ends the retries of a call."""
    with pytest.raises(tenacity.RetryError) as error:
        tenacity.Retrying(stop=tenacity.stop_after_attempt(attempts), **options)(call)
    return judge(error.value)


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
        ([TimeoutError(), ConnectionRefusedError()], Code.UNREACHABLE, Proof.UNKNOWN),
        ([FileNotFoundError()], Code.NOT_FOUND, Proof.REFUSED),
        ([TimeoutError(), FileNotFoundError()], Code.NOT_FOUND, Proof.UNKNOWN),
        ([TimeoutError(), Refused("No.")], Code.REFUSED, Proof.UNKNOWN),
        ([KeyError("sk-secret")], Code.BUG, Proof.UNKNOWN),
        ([ExceptionGroup("x", [TimeoutError(), PermissionError()])], Code.FORBIDDEN, Proof.UNKNOWN),
    ],
    ids=repr,
)
def test_the_last_attempt_decides(errors: list[Exception], code: Code, proves: Proof) -> None:
    """It proves something only where it was the only one."""
    verdict = gives_up(failing(*errors), len(errors))

    assert (verdict.fault.code, verdict.proves) == (code, proves)


def test_a_port_that_refuses_thrice() -> None:
    """What the exception of each attempt proves is lost, but for that of the last."""
    verdict = gives_up(refused)

    assert (verdict.fault.code, verdict.proves) == (Code.UNREACHABLE, Proof.UNKNOWN)


def test_a_result_that_never_came() -> None:
    """The calls were answered: it polled until it gave up."""
    verdict = gives_up(lambda: None, retry=tenacity.retry_if_result(lambda result: result is None))

    assert (verdict.fault.code, verdict.proves) == (Code.UNEXPECTED_RESULT, Proof.UNKNOWN)


def test_try_again_stands_for_its_cause() -> None:
    """As `reraise=True` raises the cause."""

    def call() -> object:
        try:
            return refused()
        except OSError as error:
            raise tenacity.TryAgain from error

    assert gives_up(call).fault.code is Code.UNREACHABLE
    assert gives_up(failing(tenacity.TryAgain()), 1).fault.code is Code.BUSY


def test_retries_around_retries() -> None:
    """The innermost exception decides."""
    verdict = gives_up(lambda: tenacity.Retrying(stop=tenacity.stop_after_attempt(1))(refused), 1)

    assert (verdict.fault.code, verdict.proves) == (Code.UNREACHABLE, Proof.NOT_SENT)


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
    verdict = judge(error)

    assert (verdict.fault.code, verdict.proves) == (Code.BUG, Proof.UNKNOWN)
