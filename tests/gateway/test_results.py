"""What an agent gets of a server's content, which a step keeps as text and parts."""

from typing import Any

import pytest
from mcp_types import CallToolResult

from activities.toolbox.mcp.answers import MAX_EFFECT, answer_of
from server.gateway import results


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def resource(words: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": f"file:///{len(words)}", "mimeType": "text/plain", "text": words}}


IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
BLOB = {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}
CONTENTS: dict[str, list[dict[str, Any]]] = {
    "a text": [text("a")],
    "a resource with a text": [resource("a\nb")],
    "resources after a text": [text("a"), resource("b"), resource(""), resource("c"), IMAGE],
    "data": [IMAGE, BLOB],
}


def content_of(sent: list[dict[str, Any]]) -> Any:
    """The content at the agent."""
    answer = answer_of(CallToolResult.model_validate({"content": sent}, by_name=False), is_read=False)
    return results.success(answer.model_dump(mode="json"), is_structured=False)["content"]


@pytest.mark.parametrize("name", CONTENTS)
def test_content_reaches_the_agent_as_the_server_sent_it(name: str) -> None:
    """An embedded resource has its text."""
    assert content_of(CONTENTS[name]) == CONTENTS[name]


def test_texts_come_first_and_in_one_block() -> None:
    """A step keeps all texts as one."""
    assert content_of([resource("a"), text("b"), IMAGE, text("c")]) == [text("b\nc"), resource("a"), IMAGE]


def test_a_text_that_takes_all_the_room_is_kept_without_its_resource() -> None:
    """The agent is told how much was left out."""
    notes = [text("(2 characters of text were left out.)"), text("(1 parts were left out.)")]

    assert content_of([resource("x" * MAX_EFFECT)]) == [text("x" * (MAX_EFFECT - 2)), *notes]
