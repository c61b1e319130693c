"""slack_sdk against a server on loopback: Slack says nearly all its errors under the status 200."""

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from activities.borders import judge
from activities.borders.table import Proof, Verdict
from tests.provocations.service import Service, serving
from workflows.faults.fault import Code

pytest.importorskip("slack_sdk")
pytestmark = pytest.mark.full

slack_sdk: Any = importlib.import_module("slack_sdk")


@pytest.fixture
def service() -> Iterator[Service]:
    """What answers in the place of Slack."""
    with serving() as running:
        yield running


def posted(service: Service) -> Verdict:
    """The verdict on what a message raises."""
    client = slack_sdk.WebClient("sk-secret", base_url=f"{service.url}/api/", retry_handlers=[], timeout=5)
    with pytest.raises(slack_sdk.errors.SlackApiError) as raised:
        client.chat_postMessage(channel="C1", text="hello")
    return judge(raised.value)


@pytest.mark.parametrize(
    ("error", "code", "proves"),
    [
        ("channel_not_found", Code.NOT_FOUND, Proof.REFUSED),
        ("not_in_channel", Code.CONFLICT, Proof.REFUSED),
        ("is_archived", Code.CONFLICT, Proof.REFUSED),
        ("msg_too_long", Code.INVALID_INPUT, Proof.REFUSED),
        ("invalid_auth", Code.UNAUTHORIZED, Proof.REFUSED),
        ("missing_scope", Code.FORBIDDEN, Proof.REFUSED),
        ("ratelimited", Code.RATE_LIMITED, Proof.REFUSED),
        ("fatal_error", Code.SERVER_ERROR, Proof.UNKNOWN),
        ("internal_error", Code.SERVER_ERROR, Proof.UNKNOWN),
        ("an_error_of_tomorrow", Code.REFUSED, Proof.UNKNOWN),
        ("words that are no code", Code.REFUSED, Proof.UNKNOWN),
    ],
)
def test_the_code_of_slack_decides(service: Service, error: str, code: Code, proves: Proof) -> None:
    """The status is 200; a code that nobody knows is a rejection that proves nothing."""
    service.fails(200, {"ok": False, "error": error})
    verdict = posted(service)

    assert (verdict.fault.code, verdict.proves, verdict.fault.guessed) == (code, proves, "")
    assert "words" not in json.dumps(verdict.fault.model_dump(mode="json"))


def test_a_limit_says_how_long_to_wait(service: Service) -> None:
    """This one has a status of its own."""
    service.fails(429, {"ok": False, "error": "ratelimited"}, headers={"Retry-After": "30"})
    verdict = posted(service)

    assert (verdict.fault.code, verdict.fault.retry_after) == (Code.RATE_LIMITED, 30)


def test_a_status_without_a_code_decides_itself(service: Service) -> None:
    """As of a gateway before Slack."""
    service.fails(503, b"<html>", headers={"Content-Type": "text/html"})
    verdict = posted(service)

    assert (verdict.fault.code, verdict.proves) == (Code.SERVER_ERROR, Proof.UNKNOWN)
