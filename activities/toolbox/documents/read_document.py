"""The kind `read_document`: the text of one of the task's documents, as many pages as fit."""

import difflib
import itertools
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from activities.errors import Refused
from activities.toolbox.declare.tool import tool
from activities.toolbox.documents import document as shelf
from activities.toolbox.documents.document import Document, Unreadable
from activities.toolbox.documents.library import title_of
from activities.toolbox.injection import Documents

MAX_TEXT = 20_000
"""Characters that one call returns."""
MAX_NEAREST, MAX_NAMED = 5, 20
_FOREIGN = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z][A-Za-z0-9+.-]*:")
"""Control characters, backslashes, and the beginning of an address or a drive."""


class Wanted(BaseModel):
    """Which document, and from where on."""

    name: str = Field(description="The file, as search names it, e.g. refund-policy.md", min_length=1, max_length=400)
    page: int = Field(default=1, ge=1, le=1_000_000, description="The page to begin with, when there is more than one")


class Text(BaseModel):
    """What stands in a document."""

    name: str
    title: str
    text: str
    first: int
    """The first page that `text` holds."""
    last: int
    """The last page that `text` holds."""
    pages: int
    """How many pages the document has."""
    left_out: str | None = None
    """What `text` does not hold, and how to get it."""


@tool.read(timeout=60, untrusted=True)
def read_document(args: Wanted, documents: Documents) -> Text:
    """Read one of the task's documents (Markdown, text, HTML, PDF) by its name; long ones page by page."""
    return from_folder(args, documents)


def from_folder(args: Wanted, documents: Documents, also: Sequence[str] = ()) -> Text:
    """Read a document of the folder; `also` are names of others that may have been meant.

    Raises:
        Refused: there is none of this name, or it cannot be read.
        NeedsPerson: there is no folder.
    """
    there = shelf.documents(documents.root)
    name = unicodedata.normalize("NFC", args.name.strip()).removeprefix("./")
    if name not in there:  # the name is compared with those that are there, and never given to the file system
        raise _unknown(name, [*there, *also])
    try:
        document = shelf.read(there[name], first=args.page, max_text=MAX_TEXT)
    except Unreadable as why:
        raise Refused(f"{name} cannot be read ({why}): do without it or use another document.") from None
    return fitting(name, document, args.page)


def fitting(name: str, document: Document, first: int) -> Text:
    """Put together as many pages from `first` on as one call returns, and say what is left out.

    Raises:
        Refused: there is no such page, or it cannot be read.
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
    return Text(
        name=name,
        title=title_of(name, document),
        text=text[:MAX_TEXT],
        first=shown[0].number,
        last=last,
        pages=document.of,
        left_out="; ".join(left_out) or None,
    )


def _unknown(name: str, there: Sequence[str]) -> Refused:
    if name.startswith(("/", "~")) or ".." in name.split("/") or _FOREIGN.search(name):
        reason = f"{name[:80]!r} is no document's name: give it as search does, relative to the folder of documents."
        return Refused(reason, code="invalid_input")
    ways = {way.casefold(): full for full in reversed(there) for way in (Path(full).stem, Path(full).name, full)}
    alike = difflib.get_close_matches(name.casefold(), ways, n=3 * MAX_NEAREST, cutoff=0.6)
    nearest = list(dict.fromkeys(ways[way] for way in alike))[:MAX_NEAREST]
    observed = {"nearest": nearest, "there": there[:MAX_NAMED], "more": max(len(there) - MAX_NAMED, 0)}
    return Refused(f"There is no document {name[:80]!r}: use one that is there.", code="not_found", observed=observed)
