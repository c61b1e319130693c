"""The borders to the model providers: every class of both SDKs has a row, and reasons quote nobody."""

import subprocess
import sys
from collections.abc import Iterator

import anthropic
import httpx2
import openai
import pytest
from anthropic._error_classes import ERROR_CLASSES

from activities.borders import classify
from activities.borders.anthropic import TABLE as ANTHROPIC
from activities.borders.openai import TABLE as OPENAI
from activities.borders.table import Table, qualified
from tests.processes import ROOT
from workflows.faults.fault import Code, Quadrant

HIDDEN = "sk-secret"
ELSEWHERE = ("anthropic.lib.tools.",)
"""Helpers that run tools for whoever uses them; Replan does not."""
TRANSIENT = {(408, None), (409, None), (429, None), (499, None), (503, None), (504, None), (529, None)}
"""Statuses that time can cure; of the codes, those below one of them that are no matter of money, and few more."""
SPENT = {"contract_spend_limit_reached", "enforced_spend_limit_reached"}
CURED = {"request_body_timeout"}


def descendants(raised: type[BaseException]) -> Iterator[type[BaseException]]:
    """All classes below one that are loaded now."""
    for child in raised.__subclasses__():
        yield child
        yield from descendants(child)


def of_package(package: str) -> list[type[BaseException]]:
    """The exceptions of an SDK that a caller can meet."""
    found = {
        one
        for one in descendants(Exception)
        if one.__module__.partition(".")[0] == package
        and not one.__module__.startswith(ELSEWHERE)
        and not issubclass(one, Warning)
        and not one.__name__.startswith("_")
    }
    return sorted(found, key=lambda one: (one.__name__, one.__module__))


CLASSES = [(ANTHROPIC, one) for one in of_package("anthropic")] + [(OPENAI, one) for one in of_package("openai")]


def has_row(table: Table, raised: type[BaseException]) -> bool:
    """Whether a class is in the table, or below a class in it that says more than an SDK's base does."""
    bases = {anthropic.AnthropicError, openai.OpenAIError, anthropic.APIError, openai.APIError}
    row = next((parent for parent in raised.__mro__ if qualified(parent) in table), None)
    return row is not None and (row not in bases or raised in bases or raised.__name__ in UNSEEN)


def test_every_exception_of_both_sdks_has_a_row() -> None:
    """A class that a new version brings fails here until somebody says what it means; a base covers no stranger."""
    assert [raised for table, raised in CLASSES if not has_row(table, raised)] == []


UNSEEN = {
    "APIRemovedInV1",
    "MissingDependencyError",
    "MutuallyExclusiveAuthError",
    "StreamAlreadyConsumed",
}
"""Mistakes in the use of an SDK, which only a bug of ours could make: its base's row says so."""


@pytest.mark.full
def test_both_sdks_are_enumerated_whole() -> None:
    """Every exception that the packages export is among them, and every class of the provider's own table."""
    found = {raised for _, raised in CLASSES}
    exported = {
        one
        for package in (anthropic, openai)
        for name in dir(package)
        if isinstance(one := getattr(package, name), type) and issubclass(one, Exception)
        if not one.__module__.startswith(ELSEWHERE) and not name.startswith("_")
    }

    assert exported <= found
    assert set(ERROR_CLASSES.values()) <= found


def response(status: int, headers: dict[str, str] | None = None) -> httpx2.Response:
    """An answer that a request got."""
    return httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "https://models.example/v1"))


def test_every_status_and_code_of_anthropic_is_told_apart() -> None:
    """Time cures load, limits and outages; never money, permissions or a malformed request."""
    wrong = []
    for (status, code), raised in ERROR_CLASSES.items():
        body = {"error": {"type": None, "message": HIDDEN, "details": {"error_code": code}}}
        fault = classify(raised(HIDDEN, response=response(status), body=body))
        is_curable = code in CURED or ((status, None) in TRANSIENT and code not in SPENT)
        is_said = HIDDEN not in fault.model_dump_json() and fault.reason.endswith(".")
        if fault.quadrant.is_transient is not is_curable or not is_said:
            wrong.append((status, code, fault))

    assert wrong == []


@pytest.mark.parametrize("table", [ANTHROPIC, OPENAI], ids=["anthropic", "openai"])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503, 504, 529])
def test_a_bare_status_has_a_meaning(table: Table, status: int) -> None:
    """A proxy's answer has neither type nor code."""
    sdk = anthropic if table is ANTHROPIC else openai
    fault = classify(sdk.APIStatusError(HIDDEN, response=response(status), body=None))

    assert fault.quadrant.is_transient is (status in (408, 409, 429) or status >= 500)
    assert fault.quadrant in (*Quadrant,) and fault.code is not Code.BUG


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (anthropic.AnthropicError(HIDDEN), Code.BUG),
        (openai.OpenAIError(HIDDEN), Code.BUG),
        (openai.InvalidWebhookSignatureError(HIDDEN), Code.BUG),
        (openai.APITimeoutError(httpx2.Request("POST", "https://models.example")), Code.TIMEOUT),
        (anthropic.APITimeoutError(httpx2.Request("POST", "https://models.example")), Code.TIMEOUT),
        (anthropic.APIConnectionError(request=httpx2.Request("POST", "https://models.example")), Code.UNREACHABLE),
        (anthropic.APIResponseValidationError(response(200), None), Code.SERVER_ERROR),
        (anthropic.WorkloadIdentityError(HIDDEN), Code.UNAUTHORIZED),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_has_no_status(error: Exception, code: Code) -> None:
    """Connections, timeouts, and mistakes in the use of an SDK."""
    fault = classify(error)

    assert (fault.code, HIDDEN in fault.reason) == (code, False)


def test_a_retry_after_is_only_for_what_time_cures() -> None:
    """A provider may send the header along with anything."""
    told = response(401, {"retry-after": "3"})
    late = response(503, {"retry-after": "3"})

    assert classify(openai.AuthenticationError("no", response=told, body=None)).retry_after is None
    assert classify(openai.InternalServerError("no", response=late, body=None)).retry_after == 3


@pytest.mark.full
def test_no_sdk_is_loaded_before_a_model_is_asked() -> None:
    """A worker without keys starts as fast as ever: classifying and choosing a planner import neither."""
    code = (
        "import sys; from activities.borders import classify;"
        "from activities.planning.selection import PlannerSelection;"
        "PlannerSelection('anthropic,openai,offline', {'ANTHROPIC_API_KEY': 'x', 'OPENAI_API_KEY': 'y'});"
        "classify(KeyError()); sys.exit(bool({'anthropic', 'openai'} & sys.modules.keys()))"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
