"""Restricts the list filter of a user to Replan's own workflows.

Runs before the server is asked for a list of tasks.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.service import RPCError, RPCStatusCode

from client.problem import Problem
from client.remedy import Argument, Text
from client.text import one_line

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+" | `(?:[^`]|``)*+`   # a text or a name: nothing in it counts
    | (?P<bracket>[()]) | (?P<quote>['"`]) | (?P<comment>--|//|/\*|\#)""",
    re.VERBOSE | re.DOTALL,
)
"""Matches the tokens that decide where a filter ends, by the rules of the server's parser."""
_EXAMPLE = "write it as in `ReplanReplans > 0 AND StartTime > '2026-01-01T00:00:00Z'`"


def within(own: str, query: str | None) -> str:
    """The list filter for what both `own` and the user's filter `query` find; without a `query`, `own` alone.

    Raises:
        Problem: `query` would not stay between the parentheses that are put around it.
    """
    if not query:
        return own
    if mistake := _mistake_in(query):
        raise Problem("bad_query", Text("This ", Argument("query"), f" cannot be used: it {mistake}"), _EXAMPLE)
    return f"({own}) AND ({query})"


@contextmanager
def using_filter() -> Iterator[None]:
    """Inside the block, a list filter that the server rejects raises Problem."""
    try:
        yield
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise bad_query(error) from error
        raise


def bad_query(error: RPCError) -> Problem:
    """The Problem for a list filter that the server rejects."""
    message = one_line(error.message.removeprefix("invalid query: "))
    return Problem("bad_query", Text("The server rejects this ", Argument("query"), f" ({message})"), _EXAMPLE)


def _mistake_in(query: str) -> str:
    if not all(char.isprintable() or char.isspace() for char in query):
        return "has characters that are not printable"
    depth = 0
    for token in _TOKEN.finditer(query):
        if token["comment"]:
            return f"has a comment ({token['comment']})"
        if token["quote"]:
            return f"has a quote ({token['quote']}) that is not closed"
        depth += {"(": 1, ")": -1}.get(token["bracket"] or "", 0)
        if depth < 0:
            return "closes a parenthesis that it did not open"
    return "opens a parenthesis that it does not close" if depth else ""
