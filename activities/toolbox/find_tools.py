"""The kind `find_tools`. In a worker with many kinds, a model is shown the likely kinds and can search for others."""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing

from pydantic import BaseModel, Field

from activities.toolbox.declare.kind import Kind
from activities.toolbox.declare.tool import Tool, tool
from workflows.text import normalized

MAX_SHOWN = 30  # kinds that a model is shown: with more of them it chooses badly, and each request costs more
MAX_FOUND = 8
MAX_TERMS = 100
NAME = "find_tools"
FILLER = re.compile(
    "an?|and|any|are|as|at|be|by|can|do|does|for|from|how|i|in|is|it|me|my|of|on|or|our|the|their|to|us|was|we|what|"
    "when|where|which|who|will|with|you|your"
)
"""Words of a query that say nothing of what is looked for."""

_CREATE = (
    "CREATE VIRTUAL TABLE kinds USING fts5(name, description, arguments,"
    " tokenize = 'porter unicode61 remove_diacritics 2')"
)
_FIND = "SELECT name FROM kinds WHERE kinds MATCH ? ORDER BY bm25(kinds, 6, 3, 1), rowid LIMIT ?"


class ToolQuery(BaseModel):
    """What the tool should do."""

    query: str = Field(description="What the tool should do, in a few words, e.g. refund an order", max_length=300)


class Card(BaseModel):
    """One tool."""

    kind: str
    description: str
    effect: str


class Cards(BaseModel):
    """The likely tools, the most likely first."""

    tools: list[Card]


def find_tools_among(kinds: Mapping[str, Kind]) -> Tool[..., Cards]:
    """Make the tool `find_tools`, which searches in `kinds` as they are at the time of the call."""

    @tool.read(authority=(), untrusted=any(kind.spec.unread for kind in kinds.values()))
    def find_tools(args: ToolQuery) -> Cards:
        """Find more tools by what they do; those that are found can be used from then on."""
        found = [kinds[name] for name in ranked(kinds, args.query, MAX_FOUND + 1) if name != NAME]
        cards = [
            Card(kind=kind.spec.kind, description=" ".join(kind.description.split()), effect=kind.spec.effect.value)
            for kind in found[:MAX_FOUND]
        ]
        return Cards(tools=cards)

    return find_tools


def ranked(kinds: Mapping[str, Kind], text: str, limit: int) -> list[str]:
    """The names of at most `limit` kinds that share words with `text`, the best first; the order is deterministic.

    The words of a kind are in its name, its description and its argument names. Hidden kinds are left out.
    """
    terms = _terms(text)
    if not terms:
        return []
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute(_CREATE)
        rows = (
            (name, kind.description, " ".join(kind.args_schema.get("properties", ())))
            for name, kind in kinds.items()
            if not kind.is_hidden
        )
        index.executemany("INSERT INTO kinds VALUES (?, ?, ?)", rows)
        match = " OR ".join(f'"{term}"' for term in terms)  # quoted: a term such as `or` is no operator
        return [str(name) for (name,) in index.execute(_FIND, (match, limit))]


def _terms(text: str) -> list[str]:
    terms = re.findall(r"[^\W_]+", normalized("NFC", text).lower())
    return [word for word in dict.fromkeys(terms) if not FILLER.fullmatch(word)][:MAX_TERMS]
