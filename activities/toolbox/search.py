"""The kind `search`: ranked full-text search over the task's documents, with an index that lives for one call."""

import difflib
import itertools
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing

from pydantic import BaseModel, Field

from activities.toolbox.errors import Refused
from activities.toolbox.injection import Documents
from activities.toolbox.library import Library, Passage, read_library
from activities.toolbox.tool import tool

MAX_TERMS, MAX_WIDER = 12, 5
SNIPPET, MAX_TEXT = 40, 600
"""Words and characters of a passage that are shown."""


class Query(BaseModel):
    """What to look for."""

    query: str = Field(description="A few words; a passage must hold all of them, e.g. refund policy", max_length=300)
    limit: int = Field(default=5, ge=1, le=20, description="How many passages at the most")


class Hit(BaseModel):
    """One passage."""

    path: str
    """The file, relative to the folder of documents."""
    line: int
    """The line, from 1, on which the first of the words stands."""
    title: str
    """The headings above it."""
    text: str


class Found(BaseModel):
    """The best passages first."""

    query: str
    hits: list[Hit]
    skipped: list[str] = Field(default_factory=list)
    """Files that were not read, and why."""


@tool.read
def search(args: Query, documents: Documents) -> Found:
    """Search the task's documents (.md and .txt); returns the best passages with file, line and headings."""
    library = read_library(documents.root)
    terms = _terms(args.query)
    with closing(_index(library.passages)) as index:
        hits = _ranked(index, terms, args.limit)
        if not hits:
            raise _no_results(args.query, terms, index, library)
    return Found(query=args.query, hits=hits, skipped=library.skipped)


_TERM = re.compile(r"[^\W_]+(?:[-.'\u2019][^\W_]+)*")
_FILLER = re.compile(
    "an?|and|any|are|as|at|be|by|can|do|does|for|from|how|i|in|is|it|me|my|of|on|or|our|the|their|to|us|was|we|what|"
    "when|where|which|who|will|with|you|your"
)
_FIRST, _END, _CUT = "\x02", "\x03", "\x04"
"""Marks around a found word and at a cut: documents hold no control characters once they are read."""


def _terms(query: str) -> list[str]:
    """The words that count; whatever else a query holds has no meaning to the index."""
    words = list(dict.fromkeys(_TERM.findall(unicodedata.normalize("NFC", query).lower())))
    return ([word for word in words if not _FILLER.fullmatch(word)] or words)[:MAX_TERMS]


def _index(passages: Sequence[Passage]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:")
    index.execute(
        "CREATE VIRTUAL TABLE passages USING fts5(path UNINDEXED, line UNINDEXED, above, heading, body,"
        " tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    index.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?)", passages)
    return index


def _match(terms: Sequence[str]) -> str:
    """All terms, each quoted, so that none is read as an operator; they hold letters, digits and `-.'` only."""
    return " AND ".join(f'"{term}"' for term in terms)


def _ranked(index: sqlite3.Connection, terms: Sequence[str], limit: int) -> list[Hit]:
    if not terms:
        return []
    rows = index.execute(
        "SELECT path, line, above, heading, body, snippet(passages, 4, ?, ?, ?, ?) FROM passages"
        " WHERE passages MATCH ? ORDER BY bm25(passages, 0, 0, 1, 6, 1), path, line LIMIT ?",
        (_FIRST, _END, _CUT, SNIPPET, _match(terms), limit),
    )
    return [_hit(*row) for row in rows]


def _hit(path: str, line: int, above: str, heading: str, body: str, marked: str) -> Hit:
    title = " > ".join(filter(None, (above, heading)))
    cut = marked.strip(_CUT)
    text = cut.replace(_FIRST, "").replace(_END, "")
    before = body[: body.find(text) + max(cut.find(_FIRST), 0)]
    shown = " ".join(marked.replace(_FIRST, "").replace(_END, "").replace(_CUT, " … ").split())
    return Hit(path=path, line=line + before.count("\n"), title=title, text=shown[:MAX_TEXT])


def _no_results(query: str, terms: Sequence[str], index: sqlite3.Connection, library: Library) -> Refused:
    candidates = dict.fromkeys(filter(None, (" ".join(some) for some in _fewer(terms, index, library))))
    wider = list(itertools.islice((some for some in candidates if _ranked(index, some.split(" "), 1)), MAX_WIDER))
    if not library.passages:
        reason = "There are no .md or .txt documents in the folder: name another folder."
    elif wider:
        reason = "No passage holds all words of the query: use one of the wider queries."
    else:
        reason = "No document holds any word of the query: look for something else."
    observed = {"query": query, "wider": wider, "skipped": library.skipped}
    return Refused(reason, code="no_results", observed=observed)


def _fewer(terms: Sequence[str], index: sqlite3.Connection, library: Library) -> Iterator[Sequence[str]]:
    """Queries that may have hits: spelt as the documents do, without unknown terms, one term fewer, one term."""
    known = [term for term in terms if _ranked(index, [term], 1)]
    unknown = [term for term in terms if term not in known]
    nearest = {term: _nearest(term, library) for term in unknown[:3]}
    yield [nearest.get(term, term) or "" for term in terms] if all(map(nearest.get, unknown)) else []
    yield known
    yield from itertools.combinations(known, len(known) - 1) if known else []
    yield from ([term] for term in known)
    yield from ([term] for term in nearest.values() if term)


def _nearest(term: str, library: Library) -> str | None:
    """The word of the documents that was probably meant: a typing error rarely changes the first letter."""
    alike = [word for word in library.words if word[0] == term[0] and abs(len(word) - len(term)) < 3]
    return next(iter(difflib.get_close_matches(term, alike, n=1, cutoff=0.7)), None)
