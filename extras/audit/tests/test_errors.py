"""Whether a retry could help, from what a history keeps of an exception."""

from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.api.failure.v1 import Failure

from activities.borders.table import Proof
from extras.audit.errors import Failing, status_in, verdict
from extras.audit.record import failing_of
from extras.audit.secrets import secrets_in
from extras.audit.tests.made import WITH_LIBRARIES
from extras.audit.tools import Confidence, is_model, tokens_of, tool_of
from tests.libraries import AUDITED, text_without_row
from tests.made_histories import failure, timeout
from workflows.faults.fault import Code

CASES: list[Any] = [
    # of tables, by the name of the class
    ("HTTPStatusError", "Client error '404 Not Found' for url 'http://shop/7'", Code.NOT_FOUND),
    ("HTTPError", "409 Client Error: Conflict for url: http://shop/7", Code.CONFLICT),
    ("ClientResponseError", "429, message='Too Many Requests', url='http://shop'", Code.RATE_LIMITED),
    ("ReadTimeout", "", Code.TIMEOUT),
    ("RemoteProtocolError", "Server disconnected", Code.UNREACHABLE),
    ("ConnectError", "All connection attempts failed", Code.UNREACHABLE),
    ("UniqueViolation", "duplicate key value", Code.CONFLICT),
    ("DeadlockDetected", "deadlock detected", Code.BUSY),
    pytest.param(
        *("ClientError", "An error occurred (ThrottlingException) when calling the Invoke operation"),
        Code.RATE_LIMITED,
        marks=WITH_LIBRARIES,
    ),
    pytest.param("CardError", "Your card was declined", Code.REFUSED, marks=WITH_LIBRARIES),
    ("requests.exceptions.ReadTimeout", "", Code.TIMEOUT),
    # of Python
    ("KeyError", "'sku'", Code.BUG),
    ("ValidationError", "1 validation error for Order", Code.UNEXPECTED_RESULT),
    ("FileNotFoundError", "no such file", Code.NOT_FOUND),
    ("ValueError", "something is wrong", None),
    ("RuntimeError", "something is wrong", None),
    ("TimeoutError", "", Code.TIMEOUT),
    # by a status, whatever the class is
    ("ShopError", "the shop returned 409", Code.CONFLICT),
    ("ApiException", "(403) Reason: Forbidden, status: 403", Code.FORBIDDEN),
    ("Error", "Request failed with status code 503", Code.SERVER_ERROR),
    ("TypeError", "fetch failed: ECONNRESET", Code.UNREACHABLE),
    ("ShopError", "row 503 is odd", None),
    # of agents, and of Temporal
    ("UserError", "unknown tool", Code.BUG),
    ("NotFoundError", "Activity function charge is not registered on this worker", Code.MISSING_TOOL),
    ("persistent_semantic", "This word is taken.", Code.NOT_FOUND),
]


@pytest.mark.parametrize(("type", "message", "code"), CASES)
def test_a_failure_is_classified_by_the_tables(type: str, message: str, code: Code | None) -> None:
    """By its class where a table has it, by a status in its message, else not at all."""
    found = verdict(Failing(type, message))

    assert (found.code if found else None) is code


def test_a_model_is_judged_by_what_its_status_means() -> None:
    """404 is a wrong name, 409 is transient, and a used-up quota is no limit that passes."""
    texts = {
        "Error code: 404 - no such model": Code.NEEDS_PERSON,
        "Error code: 409 - conflict": Code.BUSY,
        "Error code: 429 - slow down": Code.RATE_LIMITED,
        "Error code: 429 - {'error': {'code': 'insufficient_quota'}}": Code.QUOTA_EXHAUSTED,
    }
    found = {text: verdict(Failing("APIStatusError", text), of_model=True) for text in texts}

    assert {text: judged.code for text, judged in found.items() if judged} == texts


def test_the_first_of_the_causes_that_says_something_counts() -> None:
    """An integration wraps what the library raised; the server puts a failure of its own before a long one."""
    cut = failure("", "Failure exceeds size limit.", cause=failure("ReadTimeout", ""))
    cut.server_failure_info.SetInParent()
    wrapped = failure("ToolFailed", "the tool failed", cause=failure("KeyError", "'sku'"))
    found = [verdict(failing_of(one)) for one in (cut, wrapped)]

    assert [one.code for one in found if one] == [Code.TIMEOUT, Code.BUG]


TRACE = '  File "/app/.venv/lib/python3.11/site-packages/httpx/_client.py", line 1, in send\n'


@pytest.mark.parametrize(
    ("failed", "proves", "confidence"),
    [
        # What waited in the queue did nothing.
        (timeout("START_TO_CLOSE"), Proof.UNKNOWN, Confidence.CERTAIN),
        (timeout("HEARTBEAT"), Proof.UNKNOWN, Confidence.CERTAIN),
        (timeout("SCHEDULE_TO_START"), Proof.NOT_SENT, Confidence.CERTAIN),
        # The traceback chooses among libraries.
        (failure("ReadTimeout", trace=TRACE), Proof.UNKNOWN, Confidence.CERTAIN),
        (failure("ReadTimeout"), Proof.UNKNOWN, Confidence.LIKELY),
    ],
)
def test_a_timeout_says_whether_the_attempt_began(failed: Failure, proves: Proof, confidence: Confidence) -> None:
    """A class alone is only likely."""
    found = verdict(failing_of(failed))

    assert found and (found.proves, found.confidence) == (proves, confidence)


@WITH_LIBRARIES
def test_the_classes_without_a_row_are_those_of_the_recorded_libraries() -> None:
    """`python -m tests.libraries` writes them anew."""
    assert AUDITED.read_text(encoding="utf-8") == text_without_row()


def test_a_wait_is_read_from_the_message() -> None:
    """In seconds."""
    texts = {
        "retry after 30 s": 30.0,
        "Please try again in 20s.": 20.0,
        "try again in 500ms": 0.5,
        "retry in 2m": 120.0,
    }

    assert {text: Failing("", text).named_wait for text in texts} == texts


@pytest.mark.parametrize("text", ["503 rows", "order 404", "port 4040", "in 429 s"])
def test_a_number_is_no_status(text: str) -> None:
    """Only one that is called so."""
    assert status_in(text) is None


def test_a_tool_is_found_behind_an_activity_that_runs_any() -> None:
    """With its own arguments, which stand beside contexts that differ from call to call."""
    pydantic_ai = tool_of("agent__a__toolset__t__call_tool", [{"name": "charge", "tool_args": {"n": 1}, "ctx": {}}])
    mcp = tool_of("temporalio.mcp.shop.call-tool", [{"name": "get_price", "arguments": {"sku": "A"}}])
    own = tool_of("charge_card", [{"name": "get_price"}])

    assert (pydantic_ai.name, pydantic_ai.writes, pydantic_ai.args) == ("charge", Confidence.LIKELY, {"n": 1})
    assert (mcp.name, mcp.writes) == ("get_price", None)
    assert (own.name, own.writes) == ("charge_card", Confidence.LIKELY)


def test_a_name_says_whether_a_call_writes_or_a_model_is_asked() -> None:
    """By its first verb; models by those of integrations, and by what people call it."""
    reads = ("get_order", "listBookings", "order_status", "calculate", "search-and-rank", "frobnicate")
    writes = ("create_order", "bookRoom", "SendMail", "shop.charge", "delete-user", "email")
    models = (
        "agent__a__model_request",
        "invoke_model_activity",
        "call_llm",
        "ask_model",
        "ChatCompletion",
        "plan",
        "replan",
    )
    others = ("charge", "get_plan_price", "planning_permission", "chatter")

    assert [name for name in (*reads, *writes) if tool_of(name, []).writes is not None] == [*writes]
    assert [name for name in (*models, *others) if is_model(name)] == [*models]


def test_tokens_are_read_where_results_have_them() -> None:
    """Under `usage`, by any of the usual names."""
    results: list[JsonValue] = [
        {"usage": {"total_tokens": 7}},
        {"a": [{"usage": {"input_tokens": 5, "output_tokens": 2}}]},
        {"b": 1},
    ]

    assert [tokens_of(result) for result in results] == [7, 7, None]


def test_secrets_are_told_from_what_only_looks_like_one() -> None:
    """Keys, tokens and passwords; no placeholder, no id, no number."""
    opaque = "4f9a8b7c6d5e4f3a2b1c"
    secrets = [f"sk-{opaque}", f"Bearer {opaque}", f'"api_key": "{opaque}"', "postgresql://u:hunter22@db/x"]
    others = ["sk-***", "Bearer of news", '"api_key": "${KEY_2026_PRODUCTION}"', "https://db/x", '"key": "step/7"']

    assert [text for text in secrets if not list(secrets_in(text))] == []
    assert [text for text in (*others, "tokens: 12", "AKIA" + "Z" * 16) if list(secrets_in(text))] == []
