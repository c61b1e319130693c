"""Makes exceptions of Replan from failures of the connection, from HTTP statuses, and from errors of JSON-RPC.

The module `answers` does the same for the answers of tools.
"""

from collections.abc import Mapping

from mcp import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

from activities.borders.address import of_url
from activities.borders.http import DOWN
from activities.borders.waits import wait_of
from activities.errors import NeedsPerson, ToolError, answered, unsent
from activities.scrubbing import text_of
from extras.mcp.answers import tool_error
from extras.mcp.config import CannotOpen
from extras.mcp.tools_file import ErrorRow
from extras.mcp.transports import UNREADABLE, Link, Sent
from workflows.faults.fault import Code, Quadrant

_REJECTED = (INVALID_PARAMS, INVALID_REQUEST)


def unreachable(kind: str, error: CannotOpen, url: str) -> ToolError:
    """The exception for a call that was not sent, since there is no connection; `url` is empty for a command."""
    if error.code is Code.UNREACHABLE:
        reason = f"The server of {kind}{place(url)} cannot be reached: {error.why}."
    else:
        reason = f"The server of {kind} takes no calls: {error.why}. Check its credentials in the tools file."
    return unsent(tool_error(error.code, reason, error.words, proves_none=True))


def place(url: str) -> str:
    """Where a server is, for a reason: ` at shop.example:443`; empty for the server of a command."""
    return f" at {address}" if (address := of_url(url)) else ""


def is_unreadable(error: MCPError) -> bool:
    """Whether a transport made the error, because an answer is no message of JSON-RPC."""
    return error.code == PARSE_ERROR and (error.message == UNREADABLE or error.message.startswith("Failed to parse"))


def of_status(kind: str, sent: Sent, rows: Mapping[str, ErrorRow], through: str = "") -> ToolError:
    """The exception for an HTTP response that is no success; `rows` are those of the tools file, by text or status.

    `through` is `Link.through`.
    """
    status = sent.status or 0
    reason = f"The server of {kind} answered with HTTP status {status}{through}"
    wait = wait_of(sent.headers)
    if row := rows.get(str(status)):
        return _declared(row, f"{reason}, which its tools file has under errors.", status, wait)
    match status:
        case 401:
            return answered(NeedsPerson(f"{reason}: renew its credentials.", code="unauthorized"))
        case 402:  # a declined payment as often as an unpaid bill
            return answered(NeedsPerson(f"{reason}: pay what it asks for."))
        case 403:
            return answered(NeedsPerson(f"{reason}: its credentials do not allow the call.", code="forbidden"))
        case 407:
            reason = f"{reason}: the proxy does not accept the credentials, fix them in HTTP_PROXY or its like."
            return answered(NeedsPerson(reason, code="unauthorized"))
        case 429:
            return answered(tool_error(Code.RATE_LIMITED, f"{reason}.", proves_none=True, retry_after=wait))
        case _ if status >= 500:
            failed = tool_error(Code.SERVER_ERROR, f"{reason}.", proves_none=False, retry_after=wait)
            failed.fault = failed.fault.model_copy(update={"is_down": status == DOWN})
            return failed
        case 408:
            return tool_error(Code.TIMEOUT, f"{reason}.", proves_none=False, retry_after=wait)
        case _ if status < 400:
            return answered(
                NeedsPerson(f"{reason}, a redirect that is not followed: write its new address in the file.")
            )
    return answered(NeedsPerson(f"{reason}: check its url."))


def _declared(row: ErrorRow, reason: str, status: int, wait: float | None) -> ToolError:
    """The exception that a row declares for a status; without `applied`, it proves what the status itself proves."""
    made = tool_error(Code(row.code), reason, proves_none=row.applied == "none", retry_after=wait)
    is_answer = 400 <= status < 500 and status != 408 and made.quadrant is not Quadrant.TRANSIENT_INFRASTRUCTURAL
    if "applied" in row.model_fields_set or not is_answer or row.code == Code.BUG:
        return made
    made.proves_nothing = False
    return answered(made)


def of_error(kind: str, error: MCPError) -> ToolError:
    """The exception for an error of JSON-RPC that the server returned in place of a result.

    It proves nothing: what Replan sends was checked before, and a tool can raise each of them after it acted.
    """
    text = str(error.message)
    if error.code == METHOD_NOT_FOUND:
        return tool_error(Code.NEEDS_PERSON, f"The server of {kind} knows no calls of tools.", text, proves_none=False)
    if error.code in _REJECTED:
        return tool_error(Code.INVALID_INPUT, f"{kind} does not take these arguments.", text, proves_none=False)
    return tool_error(Code.SERVER_ERROR, f"{kind} failed with the error {error.code}.", text, proves_none=False)


def code_of(link: Link) -> Code:
    """The code of the fault for a connection that cannot be opened."""
    lasting = {401: Code.UNAUTHORIZED, 403: Code.FORBIDDEN}
    return link.other.no_token or lasting.get(link.other.status or 0, Code.UNREACHABLE)


def why_of(error: BaseException, link: Link) -> tuple[str, str]:
    """Why a connection failed, in words for people; and the words of the server or of a library, or an empty text."""
    if link.other.why:
        return link.other.why, ""
    if (link.other.status or 0) >= 300 and not link.other.is_spoken:
        return f"it answered with HTTP status {link.other.status}{link.through}", ""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"{error.filename} cannot be started: {error.strerror}", ""
    if isinstance(error, CannotOpen):
        return error.why, error.words
    if isinstance(error, MCPError):
        return f"it answered with the error {error.code}", text_of(error.message, str, 200)
    return f"its connection failed with {type(error).__name__}", text_of(error, str, 200)
