"""The kind `fetch_page`: the text of one web page, from public addresses unless the worker allows others."""

import re

import httpx2
from pydantic import BaseModel, Field

from activities.borders.http import STATUS
from activities.errors import Refused
from activities.toolbox.declare.tool import tool
from activities.toolbox.http.network import MAX_URL, Web, read_body
from activities.toolbox.texts import HtmlText, encoding_of, reader
from workflows.faults.fault import QUADRANT, Quadrant

MAX_BODY = 5_000_000  # bytes of a decompressed page that are read
MAX_TEXT, MAX_TITLE = 30_000, 300  # characters of the text and of the title that are returned
MAX_READ = 4 * MAX_TEXT  # characters of the page that are read for that text, with spaces that are left out

RESTRICTED = frozenset(
    status for status, (code, _) in STATUS.items() if QUADRANT[code] is Quadrant.PERSISTENT_INFRASTRUCTURAL
)
"""HTTP statuses of pages that are not public. A call for such a page is rejected (the planner may choose another page),
and is no mistake in the configuration: the worker has no login."""

_HTML = re.compile(r"text/html|application/xhtml\+xml")
_TEXT = re.compile(
    r"text/[\w.+-]{1,80}|application/(?:[\w.-]{1,80}\+)?(?:json|xml)"
    r"|application/(?:x-)?(?:ndjson|yaml|toml|javascript)|"
)
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class PageAddress(BaseModel):
    """Which page to fetch."""

    url: str = Field(description="The whole address, e.g. https://example.org/prices", max_length=MAX_URL)


class WebPage(BaseModel):
    """The text of a page."""

    url: str
    """The address of the page after redirects."""
    status: int
    content_type: str
    """The page's media type, e.g. text/html; empty if the server sent none."""
    title: str
    text: str
    """The text of the page: HTML is written as lines of Markdown, any other text is unchanged."""
    cut: str = ""
    """Why `text` is not the whole page, e.g. because the page is too long; empty if `text` is the whole page."""
    fetched: int
    """How many bytes of the decompressed page were read."""


@tool.read(untrusted=True, breaker=None)  # its arguments name the server: one that is down says nothing of others
async def fetch_page(args: PageAddress, web: Web) -> WebPage:
    """Fetch one web page or text file by its http(s) address; returns its title and its text, cut when it is long."""
    async with web.get(args.url) as answer:
        media = _media_type(answer)
        body = await read_body(answer, MAX_BODY, web.patience.reading)
    encoding = encoding_of(body.content, answer.charset_encoding)
    if b"\x00" in body.content[:1024] and not encoding.startswith("utf-16"):
        raise Refused("The page is declared as text but is binary: use another one.", code="unexpected_result")
    if _HTML.fullmatch(media) or (not media and body.content.lstrip().startswith(b"<")):
        text_of = reader("The text of HTML").text_of
        page = await web.parse(lambda: text_of(body.content, charset=encoding, max_text=MAX_READ))
        if page.cut and not page.text:
            raise Refused(f"The page cannot be read, as {page.cut}: use another one.", code="unexpected_result")
    else:
        # No encoding needs more than four bytes for a character.
        text = body.content[: 4 * (MAX_TEXT + 1)].decode(encoding, errors="replace")
        page = HtmlText("", _CONTROL.sub(" ", "\n".join(text.splitlines())), cut="")
    cut = body.cut or (f"cut where {page.cut}" if page.cut else "")
    if len(page.text) > MAX_TEXT:
        cut = f"cut after {MAX_TEXT:,} characters"
    return WebPage(
        url=str(answer.url),
        status=answer.status_code,
        content_type=media,
        title=page.title[:MAX_TITLE],
        text=page.text[:MAX_TEXT],
        cut=cut,
        fetched=len(body.content),
    )


def _media_type(answer: httpx2.Response) -> str:
    """The media type of a page. Raises Refused or httpx2.HTTPStatusError if the answer is no public page with text."""
    if answer.status_code in RESTRICTED:
        reason = f"{answer.url.host} returned {answer.status_code}, so the page is not public: use another one."
        raise Refused(reason)
    answer.raise_for_status()
    media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not _TEXT.fullmatch(media):
        what = media if _MEDIA_TYPE.fullmatch(media) else "of a type that cannot be read"
        raise Refused(f"The page is {what}, not text: use another one.", code="unexpected_result")
    packed = answer.headers.get("content-encoding", "identity").lower()
    if not {part.strip() for part in packed.split(",")} <= {"identity", "gzip", "deflate"}:
        raise Refused("The page has an unsupported content encoding: use another page.", code="unexpected_result")
    return media
