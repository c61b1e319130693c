"""Finds addresses in the arguments of a read: with one, the read can carry data to somebody outside.

Runs whenever a task that has read untrusted content plans a read, and when a step starts whose arguments refer to such
content. The same text gives the same answer on each version of Python, so no table of Unicode is used: a character that
is not ASCII may stand for any letter of a host.
"""

import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from ipaddress import ip_address

from pydantic import JsonValue

from workflows.plans.catalogue import ADDRESSES
from workflows.plans.references import is_reference
from workflows.text import FILLERS, visible

MAX_PATH = 500
"""The most characters of the path of a literal."""
MAX_KEY = 80
"""The most characters of one part of such a path, or of a text in `Origin.unusual`."""
MAX_HOST = 253
FILE_ENDINGS = frozenset(
    re.findall(
        r"\S+",
        # Top-level domains, too: somebody may own the host `notes.md`, but most who write this mean a file.
        " cc md mk mov pl ps pub py rs sh so tf zip"
        # Data and documents.
        " adoc avro bak bib bson cfg conf csv dat db dbf doc docm docx dotx eml epub gpg hdf ics ini ipynb json"
        " jsonc jsonl kml kmz ldif lock log mbox mdx msg ndjson numbers odp ods odt ott parquet pcap pdf pem pfx"
        " potx ppsx ppt pptx properties proto pst rst rtf sig sqlite sqlite3 srt sub svg tex tmp toml tsv ttl txt"
        " vcf vtt xls xlsb xlsm xlsx xml xsd xsl xslt yaml yml"
        # Programs.
        " asm astro awk bash bat bin c class clj cmake cmd cpp cs cshtml css csx cxx dart dll dockerfile egg elf"
        " env erl ex exe exs fs fsx gemspec go gradle groovy h hbs hcl hpp hs htm html iml inc jar java jl js jsp"
        " jsx kt kts less lhs lisp lua m mjs nim nix node patch phar php podspec prisma ps1 psm1 pyc pyi pyx r rb"
        " rkt sass sbt scala scm scss sln sol sql svelte swift tcl tfstate tfvars ts tsx twig vb vim vue war wasm"
        " whl wsdl xhtml xib zsh"
        # Pictures, sounds, archives.
        " aac avi bmp bz2 deb dmg eps flac gif gz heic icns ico img iso jpeg jpg m4a m4v mkv mp3 mp4 mpeg mpg msi"
        " oga ogg ogv otf pkg png psd rar raw rpm tar tgz tif tiff ttf wav webm webp wma wmv woff woff2 xz zst",
    )
)
"""Endings of files: a bare name that ends with one is no host."""

_SCHEMES = "https?|wss?|ftps?|sftp|tftp|ssh|telnet|gopher|ldaps?|smb|rsync|mailto|sips?|xmpp"
"""Schemes that lead to somebody else even if no slashes follow. `data:` leads to nobody."""
_HIDDEN = re.compile(
    "[\u00ad\u0300-\u036f\u0600-\u0605\u061c\u06dd\u070f\u08e2\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    f"{FILLERS}]"
)
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_ALIKE = {full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F)} | {
    ord(char): shown
    for chars, shown in (("\u2024\ufe52", "."), ("\uff61", "\u3002"), ("\ufe13\ufe55", ":"), ("\ufe68", "\\"))
    for char in chars
}
_ALIKE |= {0xFE6A: "%", 0xFE6B: "@"}
"""Characters that a program may take for a letter or sign of an address (NFKC): full width and small forms."""
_ESCAPED = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_PERCENT = re.compile(r"(?:%(?:25)*[0-9a-fA-F]{2})+")
_NESTED_PERCENT = re.compile(r"%(?:25)+(?=[0-9a-fA-F]{2})")

_LETTER = r"a-z\x80-\U0010ffff"
_LABEL = rf"[{_LETTER}0-9_](?:[{_LETTER}0-9_-]{{0,62}})"
_DOTTED = rf"(?:{_LABEL}\.){{1,60}}(?P<top>xn--[a-z0-9-]{{1,59}}|[{_LETTER}]{{2,63}})"
_ANYWHERE = re.compile(
    rf"""
    [/\\]{{2}}                                                            # a URL, with or without its scheme; UNC
    | (?<![a-z0-9])(?:{_SCHEMES}):(?=\S)
    | [{_LETTER}0-9."'_%+}}~-]@[{_LETTER}0-9\[]                           # mail, and a user of a host
    | (?<![0-9.])(?:0*[0-9]{{1,3}}\.){{3}}0*[0-9]{{1,3}}(?![0-9]|\.[0-9]) # IPv4
    | (?<![0-9a-z.])0x[0-9a-f]{{1,8}}(?:\.(?:0x)?[0-9a-f]{{1,8}}){{1,3}}
    | (?<![{_LETTER}0-9.-])localhost:[0-9]
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IPV6 = re.compile(r"(?<![0-9a-z:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?![0-9a-z:])", re.IGNORECASE | re.ASCII)
_PORT = re.compile(rf"(?<![{_LETTER}0-9._-]){_DOTTED}\.?:[0-9]{{1,5}}(?![0-9])", re.IGNORECASE)
_HOST = re.compile(
    rf"(?:[a-z][a-z0-9+.-]{{0,30}}:)?(?:{_DOTTED}|localhost)\.?(?::[0-9]{{0,5}})?(?:[/?#\\].*)?",
    re.IGNORECASE | re.DOTALL,
)
_MARKS = " \t\r\n.,;:!?()[]{}<>\"'`*|"
_BETWEEN = re.compile(r"[\s,;|]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_address_name(argument: str) -> bool:
    """Whether an argument with this name, such as `page_url` or `pageUrl`, is an address whatever its value is."""
    return _CAMEL.sub("_", argument).lower().rpartition("_")[2] in ADDRESSES


def path_of(at: str, part: str) -> str:
    """The path of the entry `part` of the object or list with the path `at`, as an Origin names it."""
    shown = visible(part[:MAX_KEY])
    return (f"{at}.{shown}" if at else shown)[:MAX_PATH]


def addresses_in(value: JsonValue, at: str = "", *, is_named: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the path of each text that contains an address, or has the name of one, and whether it is a key.

    `at` is the path of `value`; the path of a key is the path of its value. References count as no text. `is_named`: an
    object around the value has the name of an address. Numbers with such a name count as texts.
    """
    waiting: list[tuple[str, JsonValue, bool]] = [(at, value, is_named)]
    while waiting:  # a result may be nested deeper than Python's stack
        path, item, named = waiting.pop()
        if is_reference(item):
            continue
        if isinstance(item, dict):
            yield from ((path_of(path, key), True) for key in item if holds_address(key))
            waiting.extend((path_of(path, key), inner, named or is_address_name(key)) for key, inner in item.items())
        elif isinstance(item, list):
            waiting.extend((path_of(path, str(index)), inner, named) for index, inner in enumerate(item))
        elif (isinstance(item, str) and (named or holds_address(item))) or (named and isinstance(item, int | float)):
            yield path, False


def holds_address(text: str) -> bool:
    """Whether a text contains a URL or another address, in any spelling, or is as a whole the name of a host.

    A part of the text that is only the name of a host (`evil.org`) does not count, nor a name with a file's ending.
    """
    if not _MAY_HOLD.search(text):
        return False
    plain = _plain(text)
    # Programs drop controls in an address, or end it there.
    forms = dict.fromkeys([_CONTROLS.sub(" ", plain), _CONTROLS.sub("", plain), _CONTROLS.split(plain.lstrip())[0]])
    return any(map(_holds_address, forms)) or _is_json_with_address(text)


_MAY_HOLD = re.compile(r"[^a-zA-Z0-9 _,-]|localhost", re.IGNORECASE)
"""A text without any other character is no address; most values are such texts."""


def _holds_address(text: str) -> bool:
    # Programs take the ideographic full stop for a dot; in a text it ends a sentence.
    dotted = text.replace("\u3002", ".")
    if _ANYWHERE.search(dotted) or any(map(_is_ipv6, _IPV6.finditer(dotted))):
        return True
    if any(not _is_file(found) for found in _PORT.finditer(dotted)):
        return True
    parts = [part for part in (part.strip(_MARKS) for part in _BETWEEN.split(text)) if part]
    return _is_host(text.strip(_MARKS)) or (bool(parts) and all(map(_is_host, parts)))


def _is_host(text: str) -> bool:
    """Whether a text is the name of a host, with or without a scheme, a port and a path."""
    begin = text[: 2 * MAX_HOST]  # a path may follow
    found = _HOST.fullmatch(begin.replace("\u3002", "."))
    if found is None or _is_file(found):
        return False
    top = found["top"] or ""
    return top.isascii() or "\u3002" not in begin


def _is_file(found: re.Match[str]) -> bool:
    return (found["top"] or "").lower() in FILE_ENDINGS


def _is_ipv6(found: re.Match[str]) -> bool:
    if not found[0].strip(":"):
        return False
    try:
        return ip_address(found[0]).version == 6
    except ValueError:
        return False


def _plain(text: str) -> str:
    """The text without hidden characters, escapes and other forms of the signs of an address."""
    if "&" in text:
        text = unescape(text)
    if "\\" in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
    if not text.isascii():
        text = _HIDDEN.sub("", text).translate(_ALIKE)
    if "%" in text:
        text = _HIDDEN.sub("", _PERCENT.sub(_decoded, text)).translate(_ALIKE)
    return text


def _decoded(escapes: re.Match[str]) -> str:
    """What percent escapes stand for, also if they are escaped again and again."""
    once = _NESTED_PERCENT.sub("%", escapes[0])
    return bytes.fromhex(once.replace("%", "")).decode(errors="replace")


def _is_json_with_address(text: str) -> bool:
    """Whether a text is JSON, and a value in it is an address, such as the host in `{"at": "evil.org"}`."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return False
    except RecursionError:
        return True  # nobody writes this but to hide something
    if isinstance(value, Mapping | list):
        return any(True for _ in addresses_in(value))
    return False
