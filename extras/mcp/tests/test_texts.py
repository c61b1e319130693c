"""What the texts of servers mean: each known text is matched by its own row, and no innocent text is."""

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from activities.borders.declared import CODES
from activities.errors import ToolError
from extras.mcp.answers import TEXTS, AnswerTexts, KnownText
from extras.mcp.tools_file import ErrorRow
from workflows.faults.fault import Code

FILE = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
SDKS: dict[str, list[dict[str, Any]]] = FILE.pop("sdk")
OF_SDKS = [row for rows in SDKS.values() for row in rows]
ROWS = [(name, row) for name, rows in {**FILE, **SDKS}.items() for row in rows]


def answer(text: str, *, is_error: bool = True) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def matched(server: str, row: KnownText) -> dict[str, Any] | None:
    """The first row of the file that is about the example of `row`."""
    rows = (found for found in [*FILE.get(server, ()), *OF_SDKS] if is_about(KnownText.model_validate(found), row))
    return next(rows, None)


def is_about(found: KnownText, row: KnownText) -> bool:
    return found.holds(row.tool, row.example, is_error=row.where == "error")


def wrong_rows() -> Iterator[str]:
    for server, written in ROWS:
        row = KnownText.model_validate(written)
        place = f"{server}: {row.match.pattern}"
        if (first := matched(server, row)) is not written:
            yield f"{place}: its example is matched by {first and first['match']}"
        if row.code.value not in CODES:
            yield f"{place}: {row.code} is no code of a tool"
        if row.where == "success" and row.match.pattern[:1] != "^" and row.match.pattern[-1:] != "$":
            yield f"{place}: a success may have it anywhere"
        if row.code in (Code.TIMEOUT, Code.UNEXPECTED_RESULT) and row.applied == "none" and server != "mcp-fetch":
            yield f"{place}: {row.code} proves nothing"


def test_each_row_is_about_its_own_example() -> None:
    """Its code is a tool's, and no text of a success or of an unknown outcome proves more than it can."""
    assert list(wrong_rows()) == []


@pytest.mark.parametrize(("server", "row"), ROWS)
def test_an_answer_with_a_known_text_is_its_fault(server: str, row: dict[str, Any]) -> None:
    """As the rows say: the code, and whether the call may have been applied."""
    found = KnownText.model_validate(row)
    texts = AnswerTexts({}, server if server in FILE else "")
    result = answer(found.example, is_error=found.where == "error")
    fault = texts.fault("shop.do", found.tool or "do", result)

    assert fault is not None and fault.fault.code is found.code
    assert fault.proves_nothing is (found.applied == "unknown")
    assert found.example[:40] not in fault.fault.reason and fault.fault.observed == {"text": found.example[:2_000]}


INNOCENT = (
    *("", "done", "Error", "not found", "An unknown tool: none", "The request timed out after all", "x\ny"),
    *("I saw 'Unknown tool: x' in a log", "The page says: Input validation error: 'a' is required", "Error 32602"),
    *('{"error": "MCP error -32602: Tool x not found"}', "Roots not supported by this plant", "a: 1 validation error"),
)


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("text", INNOCENT)
def test_no_row_of_the_sdks_is_about_another_text(text: str, is_error: bool) -> None:
    """An error without a row is a rejection that proves nothing, and a success stays one."""
    fault = AnswerTexts({}, "another").fault("shop.do", "do", answer(text, is_error=is_error))

    if not is_error:
        assert fault is None
        return
    assert fault is not None and fault.fault.code is Code.REFUSED and fault.proves_nothing


OWN = {
    "Sold out": ErrorRow(code="conflict", applied="none"),
    "unknown tool": ErrorRow(code="busy"),
    "failed:": ErrorRow(code="gone", applied="none", in_success=True),
}
MEANINGS: list[tuple[str, bool, tuple[Code, bool] | None]] = [
    ("It is SOLD OUT today", True, (Code.CONFLICT, False)),
    ("It is sold out today", False, None),
    ("Unknown tool: x", True, (Code.BUSY, True)),
    ("Failed: no money", False, (Code.GONE, False)),
    ("  \nfailed: no money", False, (Code.GONE, False)),
    ("It never failed: it works", False, None),
    ("It failed: no money", True, (Code.GONE, False)),
]


@pytest.mark.parametrize(("text", "is_error", "expected"), MEANINGS)
def test_the_rows_of_a_file_come_first(text: str, is_error: bool, expected: tuple[Code, bool] | None) -> None:
    """Whatever the case; in a success only where it begins with the text, which may else be a result."""
    fault: ToolError | None = AnswerTexts(OWN, "").fault("shop.do", "do", answer(text, is_error=is_error))

    assert (fault and (fault.fault.code, fault.proves_nothing)) == expected


def test_a_row_of_another_server_or_tool_does_not_count() -> None:
    """The same words may mean something else there."""
    text = answer("No changes were staged: nothing new", is_error=False)

    assert AnswerTexts({}, "mcp-git").fault("git.git_add", "git_add", text) is not None
    assert AnswerTexts({}, "mcp-git").fault("git.git_log", "git_log", text) is None
    assert AnswerTexts({}, "mcp-time").fault("time.git_add", "git_add", text) is None


def test_an_error_of_a_tool_that_checks_first_proves_that_nothing_was_changed() -> None:
    """As the tools file says of it; of another tool of the server, an error proves nothing."""
    texts = AnswerTexts({}, "", frozenset({"do"}))
    failed = answer("nothing to commit", is_error=True)

    known, other = texts.fault("shop.do", "do", failed), texts.fault("shop.undo", "undo", failed)

    assert known is not None and other is not None
    assert (known.proves_nothing, other.proves_nothing) == (False, True)


SAID: Sequence[tuple[str, bool, bool]] = [
    ('{"status": "error", "message": "no funds"}', False, True),
    ('{"success": false, "reason": "no funds"}', False, True),
    ('{"ok": false, "error": "no funds"}', False, True),
    ('{"status": "error", "message": "no funds"}', True, False),
    ('{"status": "error"}', False, False),
    ('{"status": "ok", "message": "paid"}', False, False),
    ('{"success": 0, "message": "three jobs"}', False, False),
    ('status: error, message: {"status": "error"}', False, False),
]


@pytest.mark.parametrize(("text", "is_read", "is_failure"), SAID)
def test_an_error_inside_a_success_is_seen_by_its_shape(text: str, is_read: bool, is_failure: bool) -> None:
    """Only of a tool that changes something: a read may report the failure of something else. It proves nothing."""
    fault = AnswerTexts({}, "").fault("shop.do", "do", answer(text, is_error=False), is_read=is_read)

    assert (fault is not None) is is_failure
    assert fault is None or fault.proves_nothing
