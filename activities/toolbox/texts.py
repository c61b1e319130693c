"""What tools hand over of a document or of a page: its text, and how the bytes of one become text."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.errors import NeedsPerson
from extras import NotHere, part, plugins


class HtmlText(NamedTuple):
    title: str  # the page's title, else its first heading, else empty
    text: str  # lines of Markdown: `## Heading`, `- item`, `cell | cell`; its only control characters end lines
    cut: str  # why the text is not the whole page, e.g. "its elements are nested too deep"; empty if it is


def new_libraries() -> Any:
    """The indexes of folders of documents, all empty, as `Libraries` of extras/documents; None without that extra."""
    return part("documents").Libraries() if "documents" in plugins() else None


def reader(what: str) -> Any:
    """The module `extras.documents.reading`; raises NeedsPerson if that extra is not here, as `what` needs it."""
    try:
        return part("documents")
    except NotHere as why:
        raise NeedsPerson(f"{what} needs {why}.") from None


_MARKS: Mapping[bytes, str] = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_META = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w-]{1,32})", re.IGNORECASE)
_KNOWN = re.compile(
    r"(?:iso-?8859-(?:[2-9]|1[013-6])|windows-125[0-8]|cp125[0-8]|utf-?8|utf-?16|utf-16[lb]e|koi8-[ru]|mac-?(?:roman|cyrillic)"
    r"|gb2312|gbk|gb18030|big5(?:-hkscs)?|shift[-_]jis|euc-(?:jp|kr)|iso-2022-jp)",
    re.IGNORECASE | re.ASCII,
)
"""Names of the encodings of web pages (https://encoding.spec.whatwg.org). A page that names another encoding is read as
UTF-8, because Python needs quadratic time for some other encodings."""
_LATIN = re.compile(r"(?:us-?)?ascii|iso-?8859-1|latin-?1", re.IGNORECASE | re.ASCII)
"""Names of encodings that browsers read as windows-1252."""


def encoding_of(content: bytes, declared: str | None) -> str:
    """A page's encoding: its byte order mark, else `declared` (from the HTTP header), else its `<meta>`, else UTF-8."""
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return encoding
    found = _META.search(content[:2048])
    meta = found[1].decode("ascii", errors="replace") if found else ""
    name = (declared or ("utf-8" if meta.lower().startswith("utf-16") else meta)).strip()
    if _LATIN.fullmatch(name):
        return "cp1252"
    return name.replace("_", "-") if _KNOWN.fullmatch(name) else "utf-8"
