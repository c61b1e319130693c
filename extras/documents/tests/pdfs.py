"""PDF files made for tests, honest and hostile, written by hand."""

import zlib
from collections.abc import Callable, Mapping, Sequence

MEGABYTE = 1_000_000
FLATE = "/Filter /FlateDecode"
PAGE = b"<< /Type /Page /Parent 2 0 R >>"


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF with these pages of Latin text, whose lines stay lines."""
    return raw(*(_show(page) for page in pages), title=title)


def raw(*contents: bytes, title: str = "", filters: str = "", resources: str = "", more: Sequence[bytes] = ()) -> bytes:
    """A PDF whose pages have these content streams; `more` are objects from number 4 on."""
    first = 4 + len(more)
    kids = " ".join(f"{first + 2 * number} 0 R" for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(contents)} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        *more,
    ]
    for number, content in enumerate(contents):
        place = f"/Contents {first + 2 * number + 1} 0 R /Resources << /Font << /F1 3 0 R >> {resources} >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {place} >>".encode())
        objects.append(stream(content, filters))
    return assembled(objects, f"/Info << /Title ({title}) >>")


def stream(content: bytes, entries: str = "") -> bytes:
    """A stream object."""
    return f"<< /Length {len(content)} {entries} >>\nstream\n".encode() + content + b"\nendstream"


def assembled(objects: Sequence[bytes], trailer: str = "") -> bytes:
    """A file of these objects, the first of which is the catalogue."""
    written, places = bytearray(b"%PDF-1.7\n"), list[int]()
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(written)
    written += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(written)


def _show(page: str) -> bytes:
    lines = page.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)").split(b"\n")
    return b"BT /F1 12 Tf 14 TL 72 770 Td " + b" ".join(b"(" + line + b") Tj T*" for line in lines) + b" ET"


def zeros(megabytes: int) -> bytes:
    """Very many spaces, deflated."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(b" " * MEGABYTE) for _ in range(megabytes)) + packer.flush()


def packed(content: bytes) -> bytes:
    """A page of this content, deflated."""
    return raw(zlib.compress(content), filters=FLATE)


def _laughs() -> bytes:
    """Forms that each show the next one ten times."""
    form = "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X%d %d 0 R >> >>"
    calls = [b" ".join([b"/X%d Do" % (number + 1)] * 10) for number in range(12)]
    forms = [stream(call, form % (number + 1, number + 5)) for number, call in enumerate(calls)]
    return raw(b"/X0 Do", resources="/XObject << /X0 4 0 R >>", more=[*forms, stream(b"BT (ha) Tj ET")])


def _encrypted() -> bytes:
    secret = b"<" + b"5a" * 32 + b">"
    entry = b"/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O %b /U %b >>" % (secret, secret)
    return pdf("swordfish").replace(b"/Root 1 0 R", b"/Root 1 0 R " + entry)


def _tree(*objects: bytes) -> bytes:
    """A file whose page tree begins with the first of these objects."""
    return assembled([b"<< /Type /Catalog /Pages 2 0 R >>", *objects])


def _doubling() -> bytes:
    nodes = [b"<< /Type /Pages /Count 9 /Kids [%d 0 R %d 0 R] >>" % (number, number) for number in range(3, 60)]
    return _tree(*nodes, b"<< /Type /Page >>")


def _flood() -> bytes:
    objects = b"".join(b"%d 0 obj\n<<>>\nendobj\n" % number for number in range(200_000))
    return b"%PDF-1.7\n" + objects + b"trailer\n<< /Root 1 0 R /Size 200000 >>\nstartxref\n0\n%%EOF"


BOMBS: Mapping[str, Callable[[], bytes]] = {
    "a stream of half a gigabyte": lambda: raw(zeros(500), filters=FLATE),
    "a stream packed twice": lambda: raw(zlib.compress(zeros(500), 9), filters="/Filter [/FlateDecode /FlateDecode]"),
    "two hundred large pages": lambda: raw(*([zeros(20)] * 200), filters=FLATE),
    "a million operators": lambda: packed(b"BT " + b"0 0 Td " * 1_000_000),
    "a million words": lambda: packed(b"BT /F1 9 Tf " + b"(x) Tj " * 1_000_000),
    "a string of nine megabytes": lambda: packed(b"BT /F1 9 Tf (" + b"x" * 9_000_000 + b") Tj ET"),
    "forms within forms": _laughs,
    "brackets within brackets": lambda: raw(b"[" * 500_000),
    "dictionaries within dictionaries": lambda: raw(b"/A " + b"<</A " * 200_000 + b" BDC"),
    "a page tree that bites its tail": lambda: _tree(b"<< /Type /Pages /Count 9 /Kids [2 0 R 2 0 R] >>"),
    "a page tree that doubles": _doubling,
    "a million pages that are one": lambda: _tree(b"<< /Type /Pages /Kids [" + b"3 0 R " * 1_000_000 + b"] >>", PAGE),
    "a table that precedes itself": lambda: pdf("x").replace(b"/Root", b"/Prev %d /Root" % pdf("x").rindex(b"xref\n0")),
    "a table of a thousand million": lambda: pdf("x").replace(b"xref\n0 6", b"xref\n0 999999999"),
    "a reference to itself": lambda: _tree(b"2 0 R"),
    "a flood before the header": lambda: b"%PDF-1.7\n" + b"startxref\n" * 500_000,
    "a flood of objects": _flood,
}
"""Files that are made to hang their reader or to eat its memory."""

BROKEN: Mapping[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "only a header": lambda: b"%PDF-1.7\n",
    "something else": lambda: b"MZ" + bytes(range(256)) * 400,
    "half a file": lambda: pdf("x" * 5000)[:2500],
    "encrypted": _encrypted,
}
"""Files that cannot be read."""
