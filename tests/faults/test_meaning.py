"""`replan.faults`: what an error means to a program that has nothing else of Replan."""

import json
import subprocess
import sys
from typing import Any

import httpx2
import pytest

from evals.fakes.http_server import SILENCE, reply, serving
from replan import faults
from replan.faults import Applied, Code, Fault, Quadrant, classify, fault, is_transient, retry_after
from tests.processes import ROOT


class ShopError(Exception):
    """An error of the program's own."""


async def failed(answer: bytes | None, method: str = "POST") -> httpx2.HTTPError:
    """The exception of a request with this answer."""
    async with serving(answer) as url, httpx2.AsyncClient(timeout=0.2 if answer is SILENCE else 10) as client:
        try:
            (await client.request(method, url)).raise_for_status()
        except httpx2.HTTPError as error:
            return error
    raise AssertionError("the request succeeded")


@pytest.mark.parametrize(
    ("answer", "code", "quadrant", "applied", "wait"),
    [
        (reply(404), Code.NOT_FOUND, Quadrant.PERSISTENT_SEMANTIC, Applied.NONE, None),
        (reply(401), Code.UNAUTHORIZED, Quadrant.PERSISTENT_INFRASTRUCTURAL, Applied.NONE, None),
        (reply(429, retry_after="7"), Code.RATE_LIMITED, Quadrant.TRANSIENT_SEMANTIC, Applied.NONE, 7.0),
        (reply(503), Code.SERVER_ERROR, Quadrant.TRANSIENT_INFRASTRUCTURAL, Applied.UNKNOWN, None),
        (SILENCE, Code.TIMEOUT, Quadrant.TRANSIENT_INFRASTRUCTURAL, Applied.UNKNOWN, None),
    ],
)
async def test_an_error_has_a_cell_a_code_a_wait_and_what_is_known_of_its_effect(
    answer: bytes | None, code: Code, quadrant: Quadrant, applied: Applied, wait: float | None
) -> None:
    """For each of the four cells."""
    error = await failed(answer)
    found = classify(error)

    assert (found.code, found.quadrant, found.applied, found.retry_after) == (code, quadrant, applied, wait)
    assert (is_transient(error), retry_after(error)) == (quadrant.is_transient, wait)
    assert found.reason.endswith((".", ")")) and found.is_known


def test_an_error_that_was_not_sent_is_told_from_one_that_no_table_knows() -> None:
    """The first changed nothing, the second is not transient, and a program may tell it from a bug that is known."""
    unsent, unknown = classify(ConnectionRefusedError("secret")), classify(ShopError("x"))

    assert (unsent.code, unsent.applied) == (Code.UNREACHABLE, Applied.NONE)
    assert "secret" not in unsent.reason
    assert (unknown.code, unknown.is_transient, unknown.applied) == (Code.BUG, False, Applied.UNKNOWN)
    assert unknown.is_known is unknown.as_dict()["is_known"] is False


async def test_a_program_says_what_its_errors_and_statuses_mean() -> None:
    """Before the tables; by a class, a status, or a function."""
    raises: dict[Any, Any] = {
        ShopError: fault("busy", retry_after=3),
        402: "quota_exhausted",
        KeyError: lambda error: "not_found" if error.args == ("sku",) else None,
    }
    declined = await failed(reply(402))

    assert (classify(declined).code, classify(declined, raises).code) == (Code.REFUSED, Code.QUOTA_EXHAUSTED)
    assert (is_transient(ShopError(), raises), retry_after(ShopError(), raises)) == (True, 3.0)
    assert classify(KeyError("sku"), raises).code is Code.NOT_FOUND


@pytest.mark.parametrize("raises", [{402: "refusd"}, {"402": "refused"}, {ShopError: 7}, [ShopError]])
def test_a_mistake_in_what_a_program_says_is_told(raises: Any) -> None:
    """With the remedy, and not as the meaning of an error."""
    with pytest.raises(ValueError, match="raises="):
        classify(ShopError(), raises)


async def test_a_fault_is_json() -> None:
    """Without what is empty."""
    found = classify(await failed(reply(409, b'{"stock": 0}', content_type="application/json")))

    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    assert found.as_dict()["code"] == "conflict" and "retry_after" not in found.as_dict()
    assert isinstance(found, Fault)


def test_it_is_imported_without_a_server_a_store_or_an_sdk() -> None:
    """And so is all that it needs to classify an error of Python's own."""
    heavy = ("sqlalchemy", "temporalio", "structlog", "openai", "anthropic", "httpx2", "mcp")
    script = (
        "import sys; from replan.faults import classify; classify(TimeoutError());"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "[]"


def test_all_that_is_named_can_be_imported() -> None:
    """The plugin too, which is imported when it is used."""
    assert all(getattr(faults, name) is not None for name in faults.__all__)
    with pytest.raises(AttributeError, match="no attribute 'classifi'"):
        getattr(faults, "classi" + "fi")
