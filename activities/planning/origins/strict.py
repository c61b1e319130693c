"""The strict comparison: it decides whether a text shows a value. It may miss a place, but finds no other value."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from activities.providers.untrusted import HIDDEN
from workflows.plans.addresses import FILE_ENDINGS as FILE_ENDINGS
from workflows.text import FILLERS, normalized

MAX_HITS, MIN_HITS = 2_000, 10
"""How many places of a short and of a very long value are examined, in all sources together. If the value is only a
part of longer words there, it counts as not shown."""
MAX_CONNECTORS = 8
"""How many connectors in a row are examined beside a value; more are taken as a part of a longer word."""
CONNECTORS = frozenset("@.-_/\\:+#&=%~'?\u2010\u2011\u2012\u2013\u2019\u2212")
"""Characters that join two words to one identity if a letter or a digit follows."""
URL_CONNECTORS = CONNECTORS | frozenset(";!*$,|^()[]{}")
"""The connectors after a URL, which may contain more characters."""
_BEFORE_DIGIT = frozenset("-\u2212.")
_FILLER = re.compile(f"[{FILLERS}]")
_URL = re.compile(r"://[^\s\0]+")
PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2})+")
PUNYCODE = re.compile(r"(?<![\w-])xn--[a-z0-9-]{1,59}(?![\w-])", re.ASCII)
HOST_URL = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[\w-]+(?:\.[\w-]+)*\.(?P<top>xn--[\w-]+|[^\W\d_]{2,})))/?"
)


def joined(texts: Iterable[str]) -> str:
    """Join the texts with NUL, which stands nowhere else in the joined text."""
    # NUL is in no value, so no value is found across two texts.
    return "\0".join([text.replace("\0", "\1") if "\0" in text else text for text in texts])


def normal_form(text: str) -> str:
    """The form in which values are compared: without differences of case, blanks and encoding."""
    if "://" in text and "%" in text:
        text = _URL.sub(lambda url: PERCENT.sub(_unescaped, url[0]), text)
    # No casefold: it makes strasse.de, another host, of straße.de.
    text = text.lower() if text.isascii() else normalized("NFC", normalized("NFC", text).lower())
    if "xn--" in text:
        text = PUNYCODE.sub(decoded_label, text)
    return " ".join(text.split())


def _unescaped(escapes: re.Match[str]) -> str:
    # An escaped delimiter is not a delimiter: decoding one would change where the host of a URL ends.
    try:
        text = bytes.fromhex(escapes[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return escapes[0]
    return "".join(
        char if _is_word(char) or char in "-._~" else "".join(f"%{byte:02x}" for byte in char.encode()) for char in text
    )


def decoded_label(label: re.Match[str]) -> str:
    """Decode a label `xn--...` of an international host name to its own script; an invalid label stays unchanged."""
    encoded = label[0].removeprefix("xn--")
    try:
        text = encoded.encode().decode("punycode")
        is_valid = text.encode("punycode").decode() == encoded and text == normalized("NFC", text.lower())
    except ValueError:
        return label[0]
    is_valid = is_valid and not text.isascii() and all(_is_word(char) or char == "-" for char in text)
    return text if is_valid else label[0]


_BRACKETED = re.compile(r" ?[(\[{] ?(?P<word>at|dot) ?[)\]}] ?")
_SPELT = re.compile(r" at (?P<host>(?:[\w-]+ dot )+[\w-]+)")


def with_addresses(text: str) -> str:
    """Rewrite addresses such as `bob (at) shop (dot) example`, in a text in lower case, to `bob@shop.example`."""
    # "at" alone is not enough: "the inbox at mail.example" names no address.
    text = _BRACKETED.sub(lambda found: "@" if found["word"] == "at" else ".", text)
    return _SPELT.sub(lambda found: "@" + found["host"].replace(" dot ", "."), text)


def occurs(text: str, value: str, connectors: frozenset[str], before: str = "") -> bool:
    """Whether `text` contains `value` as a whole word, or as the beginning of a word before a character of `before`.

    If a letter or digit follows the value, directly or after `connectors`, the value is only a part of a word.
    """
    return any(
        starts_at(text, at) and (text[end : end + 1] in before or ends_at(text, end, connectors))
        for at, end in places(text, value)
    )


def places(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield where a value begins and ends in a text: at most MAX_HITS places, for a very long value only MIN_HITS."""
    at = text.find(value)
    for _ in range(max(MIN_HITS, MAX_HITS * 100 // max(100, len(value)))):  # each search prepares the whole value first
        if at < 0:
            return
        yield at, at + len(value)
        at = text.find(value, at + 1)


def starts_at(text: str, at: int) -> bool:
    """Whether a word or number starts at the index `at` of a text, and not before it."""
    if at and text[at].isdigit():
        previous = text[at - 1]
        if previous in _BEFORE_DIGIT or (previous == "," and text[max(at - 2, 0)].isdigit()):
            return False  # a sign, or digits of the same number
    return not joins(text, at - 1, -1, CONNECTORS)


def ends_at(text: str, end: int, connectors: frozenset[str]) -> bool:
    """Whether a word or number ends before the index `end` of a text, and does not continue after `connectors`."""
    if text[end - 1].isdigit() and text[end : end + 1] == "," and text[end + 1 : end + 2].isdigit():
        return False
    if text[end : end + 2] in ("'s", "\u2019s") and text[end - 1].isalnum():
        end += 2
    return not joins(text, end, 1, connectors)


def joins(text: str, index: int, step: int, connectors: frozenset[str]) -> bool:
    """Whether the text from `index` on continues a word; `step` is 1 to read forwards, and -1 to read backwards.

    Between the parts of a word may be `connectors` and hidden characters.
    """
    for _ in range(MAX_CONNECTORS):
        if not 0 <= index < len(text):
            return False
        char = text[index]
        if _is_word(char):
            return True
        if char not in connectors and (char.isascii() or not is_hidden(char)):
            return False
        index += step
    return True


def _is_word(char: str) -> bool:
    return char.isalnum() or (char > "\x7f" and unicodedata.category(char)[0] == "M")


def is_hidden(char: str) -> bool:
    """Whether a character is invisible, or reverses or hides what follows."""
    return unicodedata.category(char) in (*HIDDEN, "Zl", "Zp") or _FILLER.match(char) is not None


def has_hidden(value: str) -> bool:
    """Whether a text has hidden characters other than line breaks and tabs."""
    return not (value.isascii() and value.isprintable()) and any(
        char not in "\n\r\t" and is_hidden(char) for char in value
    )


# Accounts (IBAN): ISO 13616 gives their groups of four and their checksum.

_ACCOUNT = re.compile(r"[a-z]{2}[0-9]{2}[a-z0-9]{11,30}")
ACCOUNT_IN_TEXT = re.compile(r"\b[a-z]{2}[0-9]{2}(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?\b", re.ASCII)


def account_spellings(normal: str) -> Iterator[str]:
    """Yield the two spellings of an IBAN, compact and in groups of four; nothing if `normal` is neither of them."""
    compact = normal.replace(" ", "")
    if is_account(compact):
        grouped = " ".join(compact[index : index + 4] for index in range(0, len(compact), 4))
        yield from {compact, grouped} if normal in (compact, grouped) else ()


def is_account(compact: str) -> bool:
    """Whether a text in lower case without blanks is an IBAN with a correct checksum."""
    if not _ACCOUNT.fullmatch(compact):
        return False
    return int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4])) % 97 == 1
