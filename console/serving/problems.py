"""Problems in HTTP: their statuses, and `application/problem+json` documents (RFC 9457) with Replan's codes."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response
from temporalio.service import RPCError, RPCStatusCode

from client import document
from client.encrypted import no_key
from client.problem import Problem, ProblemKind
from console.serving.access import Denied
from runtime.payloads import NoKey

MEDIA_TYPE = "application/problem+json"
PROBLEM_SCHEMA = "#/components/schemas/ProblemDocument"
OF_KIND: Mapping[ProblemKind, int] = {
    ProblemKind.BAD_REQUEST: 422,
    ProblemKind.FAILED: 409,
    ProblemKind.NEEDS_PERSON: 409,
    ProblemKind.UNREACHABLE: 503,
}
OF_CODE: Mapping[str, int] = {
    "unknown_id": 404,
    "unknown_step": 404,
    "unknown_cause": 404,
    "no_tasks": 404,
    "closed": 409,
    "other_task": 409,
    "still_running": 409,
    "too_large": 413,
    "misconfigured": 500,
}
"""The HTTP statuses of problems by code; for these codes, OF_KIND does not count."""


class ProblemDocument(BaseModel):
    """A problem: programs decide by `code`."""

    type: str = Field(examples=["urn:replan:problem:unknown_id"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no task 'book-a-slot' here"])
    code: str = Field(examples=["unknown_id"])
    remedy: str = Field(examples=["`GET /tasks` shows those there are"])


def status_of(problem: Problem) -> int:
    return OF_CODE.get(problem.code, OF_KIND[problem.kind])


def problem_of(error: Problem | NoKey | RPCError) -> Problem:
    """Convert an error of the Temporal server or of a payload to a Problem; a Problem is returned unchanged."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NoKey):
        return no_key(error)
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return Problem("refused", "The Temporal server rejects this", "check ids, queue and sizes")
    reason = f"The Temporal server did not answer ({error.status.name.lower()})"
    return Problem("unreachable", reason, "try again; tasks go on meanwhile", ProblemKind.UNREACHABLE)


def denial(denied: Denied) -> Response:
    """The response to a request that is refused."""
    body = body_of(denied.status, denied.code, denied.reason, denied.remedy)
    headers = {"www-authenticate": "Bearer"} if denied.status == 401 else {}
    return Response(body, denied.status, headers, MEDIA_TYPE)


def body_of(status: int, code: str, reason: str, remedy: str, **more: Any) -> str:
    """The JSON document of a problem; `more` are further fields."""
    fields = {"type": f"urn:replan:problem:{code}", "title": HTTPStatus(status).phrase, "status": status}
    return document.written({**fields, "detail": reason, "code": code, "remedy": remedy, **more})
