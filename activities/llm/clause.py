"""Clauses: a text cut into the things that it asks for, one after the other."""

import re
from collections.abc import Callable
from typing import NamedTuple

LOOK_AHEAD = 300
"""Characters after a joint that decide whether a clause begins there."""
_QUOTED = r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb|(?<!\w)'[^']*'(?!\w)"
_URL = r"https?://\S+?(?=[.,;:?!)]*(?:\s|$))"
_JOINT = re.compile(
    rf"{_QUOTED}|{_URL}|(?P<joint>[,;.\n ]{{0,3}}\b(?:and )?then\b,? |[,;\n][ \n]?(?:and )?|[.?!] (?:and )?| and )",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"(?:(?:please|and|also|now|first|finally|next|then|can you|could you|would you|i want you to)\b[ ,]*)+", re.I
)


class Clause(NamedTuple):
    """One thing that is asked for."""

    text: str
    is_after: bool
    """Whether `then` stands before it, which means: after what was asked before."""


def cut(text: str, begins: Callable[[str], bool]) -> list[Clause]:
    """Cut a text at `then` and `;`, and at `and`, commas and sentence ends where `begins` sees a clause behind them."""
    text = re.sub(r"\s+", lambda run: "\n" if "\n" in run.group() else " ", text.strip())
    clauses, start, is_after = list[Clause](), 0, False
    for found in _JOINT.finditer(text):
        joint = (found["joint"] or "").lower()
        rest = bare(text[found.end() : found.end() + LOOK_AHEAD])
        if not joint or not (";" in joint or "then" in joint or begins(rest)):
            continue
        clauses.append(Clause(bare(text[start : found.start()]), is_after))
        start, is_after = found.end(), "then" in joint or (is_after and not clauses[-1].text)
    clauses.append(Clause(bare(text[start:]), is_after))
    return [clause for clause in clauses if clause.text]


def bare(text: str) -> str:
    """A clause without words of politeness before it and signs after it."""
    text = text.strip()
    polite = _POLITE.match(text)
    return (text[polite.end() :] if polite else text).rstrip(" .,;:?!").lstrip(" ,;.")


def unquoted(text: str) -> str:
    """A text without the quotation marks around it."""
    text = text.strip(" ,")
    return text[1:-1].strip() if re.fullmatch(_QUOTED, text) else text
