"""Makes the part of a document that a tool returns: the pages from a number on, up to `MAX_TEXT` characters."""

import difflib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from activities.errors import Refused
from activities.toolbox.texts import DocumentText
from extras.documents.document import Document, UnreadableDocument, documents, read
from extras.documents.library import title_of
from workflows.text import normalized

MAX_TEXT = 20_000  # characters that one call returns
MAX_NEAREST, MAX_NAMED = 5, 20
_FOREIGN = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z][A-Za-z0-9+.-]*:")
"""Matches control characters, backslashes, and the beginning of a URL or a drive: no document has such a name."""


def read_from(root: Path, name: str, page: int = 1, also: Sequence[str] = ()) -> DocumentText:
    """Read the document `name` below `root`, from the page number `page` on.

    Raises:
        Refused: the document cannot be read, or no document has this name. In the second case the rejection suggests
            similar names of documents below `root`, and similar names in `also`.
    """
    existing = documents(root)
    name = normalized("NFC", name.strip()).removeprefix("./")
    if name not in existing:  # the name is only compared with existing names, and never used as a path
        raise _unknown(name, [*existing, *also])
    try:
        document = read(existing[name], first=page, max_text=MAX_TEXT)
    except UnreadableDocument as why:
        raise Refused(f"{name} cannot be read ({why}): do without it or use another document.") from None
    return excerpt(name, document, page)


def excerpt(name: str, document: Document, first: int) -> DocumentText:
    """Join as many pages from `first` on as one call may return; `left_out` of the result names the missing parts.

    Raises:
        Refused: there is no text on these pages.
    """
    pages = [page for page in document.pages if page.number >= first]
    if not pages:
        why = "; ".join(document.notes) if first <= document.of else f"it has {document.of} pages and no page {first}"
        reason = f"There is nothing to read on page {first} of {name} ({why}): begin with another page."
        raise Refused(reason, code="invalid_input", observed={"pages": document.of})
    sizes = itertools.accumulate(len(page.text) + 1 for page in pages)
    shown = [page for page, size in zip(pages, sizes, strict=True) if size <= MAX_TEXT] or pages[:1]
    text, last = "\n".join(page.text for page in shown), shown[-1].number
    left_out = [*document.notes]
    if len(text) > MAX_TEXT:
        left_out.append(f"the rest of page {last}, which is too long to be shown")
    if last < document.of:
        left_out.append(f"pages {last + 1} to {document.of}: call again with page {last + 1}")
    return DocumentText(
        name=name,
        title=title_of(name, document),
        text=text[:MAX_TEXT],
        first=shown[0].number,
        last=last,
        pages=document.of,
        left_out="; ".join(left_out) or None,
    )


def _unknown(name: str, existing: Sequence[str]) -> Refused:
    """The rejection for a name that is not in `existing`; it suggests the most similar of the existing names."""
    if name.startswith(("/", "~")) or ".." in name.split("/") or _FOREIGN.search(name):
        reason = f"{name[:80]!r} is no document's name: give it as search does, relative to the folder of documents."
        return Refused(reason, code="invalid_input")
    ways = {way.casefold(): full for full in reversed(existing) for way in (Path(full).stem, Path(full).name, full)}
    alike = difflib.get_close_matches(name.casefold(), ways, n=3 * MAX_NEAREST, cutoff=0.6)
    nearest = list(dict.fromkeys(ways[way] for way in alike))[:MAX_NEAREST]
    observed = {"nearest": nearest, "there": existing[:MAX_NAMED], "more": max(len(existing) - MAX_NAMED, 0)}
    return Refused(f"There is no document {name[:80]!r}: use one that is there.", code="not_found", observed=observed)
