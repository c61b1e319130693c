"""Converts HTML to the text that a browser shows: headings, paragraphs and lists become lines of Markdown."""

import re
from collections.abc import Mapping

from activities.toolbox.extra import MissingPackage
from activities.toolbox.texts import HtmlText, encoding_of

MAX_TEXT = 2_000_000  # characters of text that are read from one page
MAX_DEPTH = 1_000  # levels of nested elements; with more levels the parser needs quadratic time
MAX_ELEMENTS = 200_000  # elements of one page; reading them takes about half a second
CHUNK = 16_384  # bytes between two checks of these limits


def text_of(html: str | bytes, *, charset: str | None = None, max_text: int = MAX_TEXT) -> HtmlText:
    """Read a page, also broken HTML, in time and memory linear in its length; `max_text` limits the characters.

    `charset` is the encoding that the HTTP header names; None if it names none (see `encoding_of`). Scripts, styles,
    drawings and elements that are marked as hidden are left out.

    Raises:
        MissingPackage: lxml is not installed.
    """
    try:
        from lxml import etree  # type: ignore[import-untyped]  # of the extra `documents`; it ships no types
    except ImportError:
        raise MissingPackage("lxml") from None
    content = html if isinstance(html, str) else html.decode(encoding_of(html, charset), errors="replace")
    data = content.encode("utf-8", errors="replace")
    lines = _Lines(max_text)
    # Events instead of a tree: a malicious page can make the building of a tree take quadratic time.
    parser = etree.HTMLParser(target=lines, encoding="utf-8", no_network=True)
    for start in range(0, len(data), CHUNK):
        parser.feed(data[start : start + CHUNK])
        if lines.cut:
            break
    else:
        parser.feed(b" ")  # the parser rejects a page of no bytes
        parser.close()
    return lines.page()


_HIDDEN = re.compile(
    "script|style|template|noscript|noframes|noembed|iframe|object|embed|applet|svg|math|canvas|audio|video|select|"
    "datalist|textarea"
)
_PARAGRAPH = re.compile(
    "address|article|aside|blockquote|dl|fieldset|figure|footer|form|h[1-6]|header|main|nav|ol|p|pre|section|table|ul"
)
_LINE = re.compile("body|br|caption|center|dd|details|dir|div|dt|figcaption|hr|html|legend|li|menu|summary|tr")
_CELL = re.compile("t[dh]")
_PREFIX: Mapping[str, str] = {"li": "- ", **{f"h{level}": "#" * level + " " for level in range(1, 7)}}
_MARKUP = re.compile(r"#{1,6}\s|```|~~~")
"""Matches text that Markdown would read as a heading or code at the start of a line."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Lines:
    """Receives the events of lxml's parser (start, end, data), and collects lines of text."""

    def __init__(self, max_text: int) -> None:
        self._max_text = self._left = max_text
        self._title, self._heading = list[str](), ""
        self._lines, self._pieces, self._prefix = list[str](), list[str](), ""
        self._elements, self._depth, self._hidden, self._titles, self._pre = 0, 0, 0, 0, 0
        self._is_full = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        self._depth += 1
        if self._hidden or _HIDDEN.fullmatch(tag) or _is_hidden(tag, attributes):
            self._hidden += 1
        elif tag == "title":
            self._titles += 1
        elif _CELL.fullmatch(tag):
            self._pieces.append(" | " if self._pieces else "")
        else:
            self._break(tag)
            self._pre += 1 if tag == "pre" else 0
            self._prefix = _PREFIX.get(tag, self._prefix)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._hidden:
            self._hidden -= 1
        elif tag == "title":
            self._titles = max(self._titles - 1, 0)
        else:
            self._break(tag)
            self._pre = max(self._pre - 1, 0) if tag == "pre" else self._pre
            self._prefix = "" if tag in _PREFIX else self._prefix

    def data(self, text: str) -> None:
        if self._hidden or self._is_full:
            return
        if self._titles:
            self._title.append(text[:1000])
            return
        if text.strip() or self._pieces or self._pre:
            self._pieces.append(text[: self._left])
            self._is_full = bool(text[self._left :].strip())
            self._left = max(self._left - len(text), 0)

    def comment(self, text: str) -> None:
        """Ignore a comment; lxml requires this method."""

    @property
    def cut(self) -> str:
        """Which limit the page exceeds, so that reading stops; empty if none."""
        if self._elements > MAX_ELEMENTS:
            return f"it has more than {MAX_ELEMENTS:,} elements"
        if self._depth > MAX_DEPTH:
            return "its elements are nested too deep"
        return f"its text is longer than {self._max_text:,} characters" if self._is_full else ""

    def close(self) -> None:
        """Do nothing at the end of the page; lxml requires this method."""

    def page(self) -> HtmlText:
        self._flush()
        title = " ".join(_CONTROL.sub(" ", "".join(self._title)).split())[:300]
        text = "\n".join(self._lines).strip("\n")
        return HtmlText(title or self._heading, text, self.cut)

    def _break(self, tag: str) -> None:
        """End the current line at a block element; before a paragraph, add an empty line."""
        is_paragraph = _PARAGRAPH.fullmatch(tag)
        if is_paragraph or _LINE.fullmatch(tag):
            self._flush()
        if is_paragraph and not self._prefix and self._lines and self._lines[-1]:
            self._lines.append("")

    def _flush(self) -> None:
        """Add the collected pieces of text as a line, or in `<pre>` as a code block."""
        if not self._pieces:
            return
        text, self._pieces = _CONTROL.sub(" ", "".join(self._pieces)), []
        line = " ".join(text.split()).strip("| ")
        if line and self._pre:
            self._lines += ["```", *map(_escaped, text.strip("\n").split("\n")), "```"]
        elif line:
            self._lines.append(self._prefix + (line if self._prefix else _escaped(line)))
            self._heading = self._heading or (line[:300] if self._prefix.startswith("#") else "")
            self._prefix = ""


def _is_hidden(tag: str, attributes: Mapping[str, str]) -> bool:
    style = attributes.get("style", "").replace(" ", "").lower()
    return tag not in ("html", "body") and ("hidden" in attributes or "display:none" in style)


def _escaped(line: str) -> str:
    """The line, with a backslash before it if Markdown would read it as a heading or code."""
    return "\\" + line if _MARKUP.match(line.lstrip()) else line
