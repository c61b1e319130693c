"""Makes the part of a document that a tool returns: the pages from a number on, up to `MAX_TEXT` characters."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from activities.errors import Refused
from activities.toolbox.pages import MAX_TEXT, DocumentText, excerpt
from extras.documents.document import UnreadableDocument, documents, read
from workflows.text import normalized

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
