"""`text_of`: what a person would read of a page, from any bytes, in bounded time."""

import codecs
import time

import pytest
from hypothesis import given, strategies as st

from activities.toolbox.texts import encoding_of
from extras.documents.html import CHUNK, MAX_DEPTH, MAX_ELEMENTS, text_of

SIZE = 2_000_000


LINES = {
    "<h1>Big <i>news</i></h1><p>Some\n text": "# Big news\n\nSome text",
    "<h2>Two</h2>after": "## Two\n\nafter",
    "<h2></h2><p>no heading": "no heading",
    "one<br>two<div>three<div>four</div></div>five": "one\ntwo\nthree\nfour\nfive",
    "<ul><li>one<li><p>two</p></ul>": "- one\n- two",
    "<ol><li></li></ol>after": "after",
    "<table><tr><th>a<th>b<tr><td>1<td>2</table>": "a | b\n1 | 2",
    "<pre>\n  x = 1\n    y</pre>z": "```\n  x = 1\n    y\n```\n\nz",
    "fish &amp; chips &lt;3 &#x1F600;": "fish & chips <3 \U0001f600",
    "a<b>bold</b>c": "aboldc",
    "plain words": "plain words",
    "<p>unclosed <b>tags <i>everywhere": "unclosed tags everywhere",
    "</p></div>only ends": "only ends",
    "": "",
    "<": "<",
    # A line of text that looks like a heading or code is not one
    "<p># no heading</p>": "\\# no heading",
    "<p>```</p>": "\\```",
    "<p>~~~ python</p>": "\\~~~ python",
    "<p>###### six</p>": "\\###### six",
}
UNSEEN = [
    "<script>swordfish</script>",
    "<style>p { swordfish }</style>",
    "<template><p>swordfish</template>",
    "<noscript>swordfish</noscript>",
    "<svg><text>swordfish</text></svg>",
    "<iframe>swordfish</iframe>",
    "<select><option>swordfish</select>",
    "<!-- swordfish -->",
    "<p hidden>swordfish</p>",
    "<div style='color: red; DISPLAY : none'><p>swordfish</p></div>",
    "<script><p>swordfish",
    "<img alt=swordfish><input value=swordfish>",
]
TITLES = {
    "<title> The\n shop </title><h1>News</h1>": "The shop",
    "<h1>News</h1><h1>More</h1>": "News",
    "<title></title><p>x": "",
    "<title>a &amp; b<b></title>": "a & b<b>",
}


def test_a_page_becomes_lines() -> None:
    """Headings, paragraphs, lists, tables and code keep their lines; what is only looks, code or hidden does not."""
    assert {html: text_of(html).text for html in LINES} == LINES

    assert {hidden: text_of(f"<p>before</p>{hidden}").text for hidden in UNSEEN} == dict.fromkeys(UNSEEN, "before")

    assert {html: text_of(html).title for html in TITLES} == TITLES


ENCODED: list[tuple[bytes, str | None]] = [
    ("Café €".encode(), None),
    ("Café €".encode("utf-8-sig"), None),
    ("Café €".encode("utf-16"), None),
    (b"<meta charset=windows-1252>" + "Café €".encode("cp1252"), None),
    (b"<meta http-equiv=x content='text/html; charset=iso-8859-1'>" + "Café €".encode("cp1252"), None),
    (b"<meta charset=utf-16>" + "Café €".encode(), None),
    ("Café €".encode("cp1252"), "ISO-8859-1"),
    ("Café €".encode("cp1252"), "us-ascii"),
    ("Café €".encode("iso8859-15"), "iso-8859-15"),
    (b"<meta charset=koi8-r>" + "Café €".encode(), "utf-8"),
    ("Café €".encode(), "punycode"),
    ("Café €".encode(), "windows-125\u0663"),
]


def test_bytes_are_read_in_their_encoding() -> None:
    """As browsers do: byte order mark, header, the page's own word, UTF-8; an unknown name is none."""
    assert [text_of(content, charset=charset).text for content, charset in ENCODED] == ["Café €"] * len(ENCODED)


@given(
    name=st.text(max_size=20) | st.sampled_from(["hex", "zlib", "idna", "raw_unicode_escape", "mbcs", "utf-7", "..."])
)
def test_every_name_of_an_encoding_leads_to_one(name: str) -> None:
    assert codecs.lookup(encoding_of(b"", name)).name in text_encodings()


def text_encodings() -> set[str]:
    """The encodings of text on the web that Python has."""
    names = "utf-8 utf-8-sig utf-16 utf-16-le utf-16-be cp1252 koi8-r koi8-u mac-roman mac-cyrillic gb2312 gbk gb18030"
    more = "big5 big5hkscs shift_jis euc_jp euc_kr iso2022_jp"
    parts = [f"iso8859-{part}" for part in range(2, 17)] + [f"cp125{part}" for part in range(9)]
    return {*names.split(), *more.split(), *parts}


@given(content=st.binary(max_size=300) | st.text(max_size=300))
def test_anything_is_a_page(content: bytes | str) -> None:
    """Whatever comes, there is a text without control characters, which JSON can carry."""
    text = text_of(content).text.encode().decode()

    assert all(sign.isprintable() or sign in "\n\t" or ord(sign) > 0x9F for sign in text)


def test_a_text_ends_where_it_was_asked_to() -> None:
    """What is cut says so; each element takes time, also an empty or a hidden one."""
    page = text_of("<p>" + "x" * 100 + "</p>" * 3, max_text=10)

    assert (page.text, page.cut) == ("x" * 10, "its text is longer than 10 characters")
    assert text_of("<p>" + "x" * 10, max_text=10) == ("", "x" * 10, "")

    deep = text_of("<p>first</p>" + "<div>" * 20 * MAX_DEPTH + "deep")
    elements = ("<br>", "<svg><g/></svg>", "<b hidden></b>")
    long = [text_of("<p>first</p>" + one * (MAX_ELEMENTS + CHUNK) + "<p>last</p>") for one in elements]

    assert (deep.text, deep.cut) == ("first", "its elements are nested too deep")
    assert [(page.text, page.cut) for page in long] == [("first", f"it has more than {MAX_ELEMENTS:,} elements")] * 3


@pytest.mark.full
@pytest.mark.parametrize(
    "html",
    [
        "<div>" * (SIZE // 5),
        "<a><b>" * (SIZE // 6),
        "<b></p>" * (SIZE // 7),
        "".join(f"<b id={number}>" for number in range(60_000)) + "<p>x" * 60_000,
        "".join(f"<nobr id={number}><div>" for number in range(60_000)),
        "<a " + " ".join(f"a{number}=1" for number in range(150_000)) + ">",
        "<table><font>" * (SIZE // 13),
        "<td>" * (SIZE // 4),
        "<p>x" * (SIZE // 4),
        "<pre>" * (SIZE // 5),
        "<li>" * (SIZE // 4),
        "<h1>" * (SIZE // 4),
        "<svg>" * (SIZE // 5),
        "<!--" * (SIZE // 4),
        "<![CDATA[" * (SIZE // 9),
        "<a href='" * (SIZE // 9),
        "<meta charset" * (SIZE // 13),
        "<title>a</title>" * (SIZE // 16),
        "<" * SIZE,
        "&" * SIZE,
        " " * SIZE,
        "&#x1F600;" * (SIZE // 9),
    ],
    ids=lambda html: html[:20],
)
def test_no_page_takes_long(html: str) -> None:
    """A page of two megabytes is read in seconds, however it is made."""
    began = time.process_time()
    text_of(html.encode())

    assert time.process_time() - began < 20
