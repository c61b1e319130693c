"""The kind `search`: ranked full-text search over the task's documents."""

import difflib
import itertools
import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field

from activities.errors import Busy, Refused
from activities.toolbox.declare.tool import tool
from activities.toolbox.find_tools import FILLER
from activities.toolbox.injection import Documents
from extras.documents.document import SUFFIXES
from extras.documents.library import CUT, END, FIRST, Library, Match
from workflows.text import normalized

MAX_TERMS, MAX_WIDER = 12, 5
MAX_TEXT = 600  # characters of a passage that are shown


class Query(BaseModel):
    """The words to search for."""

    query: str = Field(description="A few words; a passage must hold all of them, e.g. refund policy", max_length=300)
    limit: int = Field(default=5, ge=1, le=20, description="How many passages at the most")


class Hit(BaseModel):
    """A passage with all words of the query."""

    path: str
    """The file's path in the folder of documents: the name that `read_document` takes."""
    page: int | None = None
    """The number of the page, as `read_document` counts pages; None if the document has one page."""
    line: int
    """The number of the line with the first found word. Lines are counted from the start of the page in a PDF, and from
    the start of the text in other documents."""
    title: str
    text: str


class Found(BaseModel):
    """The best passages first."""

    query: str
    hits: list[Hit]
    skipped: list[str] = Field(default_factory=list)
    """Files that were not searched or not read completely, and why."""


@tool.read(authority=(), timeout=60, untrusted=True)
def search(args: Query, documents: Documents) -> Found:
    """Search the task's documents (Markdown, text, HTML, PDF); returns the best passages with file, page and line."""
    library, terms = documents.library, _terms(args.query)
    with library.fresh():
        hits = [_hit(found) for found in library.find(terms, args.limit)]
        if not hits:
            raise _no_results(args.query, terms, library)
        return Found(query=args.query, hits=hits, skipped=library.skipped)


_TERM = re.compile(r"[^\W_]+(?:[-.'\u2019][^\W_]+)*")


def _terms(query: str) -> list[str]:
    terms = list(dict.fromkeys(_TERM.findall(normalized("NFC", query).lower())))
    return ([word for word in terms if not FILLER.fullmatch(word)] or terms)[:MAX_TERMS]


def _hit(found: Match) -> Hit:
    title = " > ".join(filter(None, (found.above, found.heading)))
    cut = found.marked.strip(CUT)
    text = cut.replace(FIRST, "").replace(END, "")
    before = found.body[: found.body.find(text) + max(cut.find(FIRST), 0)]
    shown = " ".join(found.marked.replace(FIRST, "").replace(END, "").replace(CUT, " … ").split())
    line = found.line + before.count("\n")
    return Hit(path=found.name, page=found.page, line=line, title=title, text=shown[:MAX_TEXT])


def _no_results(query: str, terms: Sequence[str], library: Library) -> Refused | Busy:
    """The error for a query without hits: Busy while documents are unread, else Refused with other queries to try."""
    if library.unread:
        reason = f"No hit so far: {library.unread} documents are not read yet; the next call continues with them."
        return Busy(reason, retry_after=0)
    candidates = dict.fromkeys(filter(None, (" ".join(some) for some in _fewer(terms, library))))
    wider = list(itertools.islice((some for some in candidates if library.find(some.split(" "), 1)), MAX_WIDER))
    if library.is_empty:
        reason = f"There are no documents ({', '.join(SUFFIXES)}) in the folder: name another folder."
    elif wider:
        reason = "No passage holds all words of the query: use one of the wider queries."
    else:
        reason = "No document holds any word of the query: look for something else."
    observed = {"query": query, "wider": wider, "skipped": library.skipped}
    return Refused(reason, code="no_results", observed=observed)


def _fewer(terms: Sequence[str], library: Library) -> Iterator[Sequence[str]]:
    """Yield queries to try: with corrected spelling, without unknown terms, one known term fewer, a single term."""
    known = [term for term in terms if library.find([term], 1)]
    unknown = [term for term in terms if term not in known]
    nearest = {term: _nearest(term, library) for term in unknown[:3]}
    yield [nearest.get(term, term) or "" for term in terms] if all(map(nearest.get, unknown)) else []
    yield known
    yield from itertools.combinations(known, len(known) - 1) if known else []
    yield from ([term] for term in known)
    yield from ([term] for term in nearest.values() if term)


def _nearest(term: str, library: Library) -> str | None:
    # Only words with the same first letter, which typing errors rarely change: fewer words to compare.
    alike = [word for word in library.vocabulary if word[0] == term[0] and abs(len(word) - len(term)) < 3]
    return next(iter(difflib.get_close_matches(term, alike, n=1, cutoff=0.7)), None)
