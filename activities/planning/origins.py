"""Finds the literals of a proposal that have no trusted source, and where untrusted content shows them.

Two comparisons are made. A strict one decides whether a trusted source shows a value: it may only miss a source, and
never take a different value for the same. A lenient one only finds text for the person who is asked: it permits
nothing.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, chain
from math import isfinite
from typing import NamedTuple

from pydantic import JsonValue

from activities.planning.planner import RecordedTurn
from activities.providers.untrusted import HIDDEN, remove_hidden
from activities.toolbox.declare.kind import Kind
from workflows.account.records import StepRecord
from workflows.planning.situation import Situation
from workflows.plans.contract import Origin
from workflows.plans.proposal import Step
from workflows.plans.references import is_reference
from workflows.text import FILLERS, visible

MAX_VALUES = 1_000
"""How many different values are looked up; all others have no trusted source, and nothing says where they are shown."""
MAX_QUOTES = 100
"""How many origins of a proposal have a quote."""
MAX_QUOTE = 200
"""The most characters of a quote."""
MAX_PATH = 500
"""The most characters of the path of a literal."""
MAX_KEY = 80
"""The most characters of one part of such a path, or of a text in `Origin.unusual`."""
MAX_HITS, MIN_HITS = 2_000, 10
"""How many places of a short and of a very long value are examined, in all sources together. A value that stands only
in longer words there is then taken as not shown."""
MAX_CONNECTORS = 8
"""How many connectors in a row are examined beside a value; more are taken as a part of a longer word."""
MIN_WITHOUT_BOUNDS = 8
"""A value of so many characters is also found inside longer words, in the lenient comparison."""
MIN_LOOKALIKE = 4
"""The fewest characters of a value that is said to look like another."""
INPUT, CONVERSATION = "input", "conversation"
"""The sources of untrusted content that no step returned: the input of the task, and what the planner wrote in its
questions."""

Scalar = str | int | float


def trace(
    steps: Iterable[Step], past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]
) -> tuple[Origin, ...]:
    """The literals in the arguments of `steps` that have no trusted source, in the order of the arguments.

    `past` are the earlier turns of the conversation. A key of an object is a literal, too, unless the tool's schema
    names it; the path of a key is the path of its value.
    """
    situations = [*(turn.situation for turn in past if not turn.is_summary), situation]
    search = _Search(_Sources(situations, kinds))
    names = dict[str, frozenset[str]]()
    found = list[Origin]()
    for step in steps:
        if step.kind not in names:
            names[step.kind] = _property_names(kinds[step.kind].args_schema) if step.kind in kinds else frozenset()
        for at, value in _literals(step.args, names[step.kind]):
            if not search.has_trusted_source(value):
                found.append(search.origin(step.id, at, value, is_quoted=len(found) < MAX_QUOTES))
    return tuple(found)


# Nothing below recurses: a result may be nested deeper than Python's stack.


def _literals(args: dict[str, JsonValue], names: frozenset[str]) -> Iterator[tuple[str, Scalar]]:
    waiting: list[tuple[str, JsonValue]] = [("", args)]
    while waiting:
        at, value = waiting.pop()
        if is_reference(value):
            continue
        if isinstance(value, dict):
            yield from ((_path(at, key), key) for key in value if key not in names and _needs_source(key))
            waiting.extend((_path(at, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((_path(at, str(index)), value[index]) for index in reversed(range(len(value))))
        elif isinstance(value, Scalar) and _needs_source(value):
            yield at, value


def _needs_source(value: Scalar) -> bool:
    return bool(value.strip(" \t\r\n")) if isinstance(value, str) else not isinstance(value, bool)


def _path(at: str, part: str) -> str:
    shown = visible(part[:MAX_KEY])
    return (f"{at}.{shown}" if at else shown)[:MAX_PATH]


def _property_names(schema: JsonValue) -> frozenset[str]:
    found, waiting = set[str](), [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            properties = value.get("properties")
            found.update(properties if isinstance(properties, dict) else ())
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return frozenset(found)


def _scalars(value: JsonValue) -> Iterator[Scalar]:
    """The texts and numbers in a value, and the keys of its objects."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                waiting += (inner, key)
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, Scalar) and not isinstance(item, bool):
            yield item


class _Sources:
    """The texts and numbers that a planner was told, by whether they are trusted."""

    def __init__(self, situations: Sequence[Situation], kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._steps = set[str]()
        self._tainted = {
            record.step.id for situation in situations for record in situation.records if record.is_tainted
        }
        self.user = list[str]()
        """What people wrote; these texts are among the trusted ones, too."""
        self.trusted = list[str]()
        self.numbers = set[str]()
        """The numbers in JSON of trusted sources, as `_plain_number` writes them."""
        self._untrusted = list[tuple[str, str]]()  # each text with its source, as Origin names it
        self._planner = list[tuple[str, str]]()
        for situation in situations:
            self._add(situation)

    def _add(self, situation: Situation) -> None:
        self._add_user(situation.text)
        self._distrust(INPUT, situation.untrusted_input)
        # The user wrote these plans.
        for step in chain(situation.plan or (), *situation.later_plans):
            for _, value in _literals(step.args, frozenset()):
                self._take(step.id, value, is_trusted=True)
        for word in situation.words:
            if word.is_option:  # the planner may have copied it from untrusted content
                self._planner.append((CONVERSATION, word.text))
            else:
                self._add_user(word.text)
            self._planner.append((CONVERSATION, word.question))
        for record in situation.records:
            self._add_record(record)
        for fault in situation.faults:
            self._distrust(fault.step_id, fault.reason)
            self._take(fault.step_id, fault.observed, is_trusted=self._is_trusted(fault.step_id, fault.source))
        for observation in situation.observations:
            is_trusted = self._is_trusted(observation.step_id, observation.kind)
            self._take(observation.step_id, observation.value, is_trusted=is_trusted)

    def _add_user(self, text: str) -> None:
        self.user.append(text)
        self._trust(text)

    @property
    def untrusted(self) -> list[tuple[str, str]]:
        """The untrusted texts with their sources, those of the planner last."""
        return [*self._untrusted, *self._planner]

    def _add_record(self, record: StepRecord) -> None:
        id = record.step.id
        self._steps.add(id)
        is_trusted = not record.is_tainted and self._is_trusted_kind(record.kind)
        parts = [value for path, value in record.named.items() if path.partition(".")[0] == "result"]
        for value in (record.result, *parts):
            self._take(id, value, is_trusted=is_trusted)
        if is_trusted:
            self._trust(list(record.edited.values()))

    def _is_trusted(self, step: str, kind: str) -> bool:
        """Whether what `kind` returned for a step is trusted: an unknown step may have had untrusted arguments."""
        return step in self._steps and step not in self._tainted and self._is_trusted_kind(kind)

    def _is_trusted_kind(self, kind: str) -> bool:
        return kind in self._kinds and not self._kinds[kind].spec.untrusted

    def _take(self, step: str, value: JsonValue, *, is_trusted: bool) -> None:
        if is_trusted:
            self._trust(value)
        else:
            self._distrust(step, value)

    def _trust(self, value: JsonValue) -> None:
        for scalar in _scalars(value):
            if isinstance(scalar, str):
                self.trusted.append(scalar)
            elif number := _plain_number(scalar):
                self.numbers.add(number)
                self.trusted.append(number)
                if (text := str(scalar)) != number:
                    self.trusted.append(text)

    def _distrust(self, source: str, value: JsonValue) -> None:
        for scalar in _scalars(value):
            text = scalar if isinstance(scalar, str) else _plain_number(scalar)
            if text:
                self._untrusted.append((source, text))


_MARKS = ".,;:!?()[]{}<>\"'`*"
"""Punctuation around a word."""
_USER_IN_URL = re.compile(r"\s*[a-z][a-z0-9+.-]*:[/\\]{2}[^/?#\\]*@(?P<host>[^/?#\\@:]*)", re.IGNORECASE)


class _Search:
    """Looks values up in the sources; each source is prepared once, and only if it is needed."""

    def __init__(self, sources: _Sources) -> None:
        self._sources = sources
        self._known = dict[tuple[bool, Scalar], bool]()
        self._places = dict[tuple[bool, Scalar], "_Place | None"]()

    def has_trusted_source(self, value: Scalar) -> bool:
        key = (isinstance(value, str), value)
        if key not in self._known and len(self._known) < MAX_VALUES:
            self._known[key] = self._shows(value) if isinstance(value, str) else self._shows_number(value)
        return self._known.get(key, False)

    def origin(self, step: str, at: str, value: Scalar, *, is_quoted: bool) -> Origin:
        """The origin of a value that has no trusted source."""
        key = (isinstance(value, str), value)
        if key not in self._known:
            return Origin(step=step, at=at)
        if key not in self._places:
            self._places[key] = self._untrusted.find(_written(value))
        place = self._places[key]
        unusual = self._unusual(value) if isinstance(value, str) and is_quoted else ""
        if place is None:
            return Origin(step=step, at=at, unusual=unusual)
        quote = self._untrusted.quote(place) if is_quoted else ""
        return Origin(step=step, at=at, source=place.source, line=place.line, quote=quote, unusual=unusual)

    @cached_property
    def _trusted(self) -> str:
        joined = _joined(self._sources.trusted)
        normal = _normal(joined)
        spelt = _addresses(normal)
        return normal if spelt == normal else f"{normal}\0{spelt}"

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(_numbers_in(_joined(self._sources.trusted)))

    @cached_property
    def _untrusted(self) -> "_Texts":
        sources = self._sources.untrusted
        return _Texts([text for _, text in sources], [source for source, _ in sources], _lenient)

    @cached_property
    def _look(self) -> "_Texts":
        return _Texts(self._sources.trusted, (), _look)

    def _shows_number(self, value: float) -> bool:
        number = _plain_number(value)
        return bool(number) and (number in self._sources.numbers or number in self._numbers)

    def _shows(self, value: str) -> bool:
        if _has_hidden(value):
            return False
        normal = _normal(value)
        ends = _URL_CONNECTORS if "://" in normal else _CONNECTORS
        if not normal:
            return False
        return (
            _occurs(self._trusted, normal, ends)
            or any(_occurs(self._trusted, other, ends) for other in _account_spellings(normal))
            or self._shows_host(normal)
        )

    def _shows_host(self, normal: str) -> bool:
        """Whether a URL of a host alone is shown: as the beginning of a URL, or the host as a word alone."""
        if not (found := _HOST_URL.fullmatch(normal)):
            return False
        if _occurs(self._trusted, found["origin"], _URL_CONNECTORS, before="/?#"):
            return True
        # Without TLS, whoever controls the network is the host.
        is_host = found["scheme"] == "https" and found["top"] not in _FILE_ENDINGS
        return is_host and _occurs(self._trusted, found["host"], _CONNECTORS)

    def _unusual(self, value: str) -> str:
        if _has_hidden(value):
            return "has hidden characters"
        if found := _USER_IN_URL.match(value):
            return f"what stands before @ is the name of a user; the host is {_shown(found['host'])[:MAX_KEY]}"
        if _is_account(compact := value.replace(" ", "").lower()):
            accounts = [account for account in self._accounts if account != compact]
            return f"the user wrote {accounts[0].upper()}; this is another account" if accounts else ""
        alike = self._lookalike(value.strip())
        return f"looks like {alike}, but is written with other letters" if alike else ""

    @cached_property
    def _accounts(self) -> list[str]:
        """The account numbers (IBAN) that people wrote."""
        found = (match[0].replace(" ", "") for match in _ACCOUNT_IN_TEXT.finditer(_normal(_joined(self._sources.user))))
        return [account for account in found if _is_account(account)]

    def _lookalike(self, value: str) -> str:
        """A trusted word that looks like `value` and is another; empty if there is none."""
        if not MIN_LOOKALIKE <= len(value) <= MAX_KEY or len(value.split()) > 1 or not any(map(str.isalpha, value)):
            return ""
        if _normal(value) in self._trusted or (place := self._look.find([value])) is None:
            return ""
        look = _look(value)
        words = (word.strip(_MARKS) for word in self._look.around(place, len(value)).split())
        return next((_shown(word)[:MAX_KEY] for word in words if _look(word) == look), "")


# The strict comparison

_CONNECTORS = frozenset("@.-_/\\:+#&=%~'?\u2010\u2011\u2012\u2013\u2019\u2212")
"""Characters that join two words to one identity if a letter or a digit follows."""
_URL_CONNECTORS = _CONNECTORS | frozenset(";!*$,|^()[]{}")
"""The same behind a URL, which may contain more characters."""
_BEFORE_DIGIT = frozenset("-\u2212.")
_FILLER = re.compile(f"[{FILLERS}]")
_URL = re.compile(r"://[^\s\0]+")
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_PUNYCODE = re.compile(r"(?<![\w-])xn--[a-z0-9-]{1,59}(?![\w-])", re.ASCII)
_HOST_URL = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[\w-]+(?:\.[\w-]+)*\.(?P<top>xn--[\w-]+|[^\W\d_]{2,})))/?"
)
_FILE_ENDINGS = frozenset(["cc", "md", "mk", "mov", "pl", "ps", "py", "rs", "sh", "so", "zip"])
"""Top-level domains that are endings of files, too: somebody else may own the host `notes.md`."""


def _joined(texts: Iterable[str]) -> str:
    # NUL is in no value, so no value is found across two texts.
    return "\0".join([text.replace("\0", "\1") if "\0" in text else text for text in texts])


def _normal(text: str) -> str:
    """The form in which values are compared: without differences of case, blanks and encoding."""
    if "://" in text and "%" in text:
        text = _URL.sub(lambda url: _PERCENT.sub(_unescaped, url[0]), text)
    # No casefold: it makes strasse.de, another host, of straße.de.
    text = text.lower() if text.isascii() else unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    if "xn--" in text:
        text = _PUNYCODE.sub(_decoded_label, text)
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


def _decoded_label(label: re.Match[str]) -> str:
    """A label of an international host name in its own script; as it is if it is no valid one."""
    encoded = label[0].removeprefix("xn--")
    try:
        text = encoded.encode().decode("punycode")
        is_valid = text.encode("punycode").decode() == encoded and text == unicodedata.normalize("NFC", text.lower())
    except ValueError:
        return label[0]
    is_valid = is_valid and not text.isascii() and all(_is_word(char) or char == "-" for char in text)
    return text if is_valid else label[0]


_BRACKETED = re.compile(r" ?[(\[{] ?(?P<word>at|dot) ?[)\]}] ?")
_SPELT = re.compile(r" at (?P<host>(?:[\w-]+ dot )+[\w-]+)")


def _addresses(text: str) -> str:
    """A text in lower case with addresses such as `bob (at) shop (dot) example` as they are meant."""
    # "at" alone is not enough: "the inbox at mail.example" names no address.
    text = _BRACKETED.sub(lambda found: "@" if found["word"] == "at" else ".", text)
    return _SPELT.sub(lambda found: "@" + found["host"].replace(" dot ", "."), text)


def _occurs(text: str, value: str, connectors: frozenset[str], before: str = "") -> bool:
    """Whether `value` stands in `text` as a whole, or before one of the characters `before`.

    If a letter follows after `connectors`, the value is only a part.
    """
    at = text.find(value)
    for _ in range(_most_hits(value)):
        if at < 0:
            return False
        end = at + len(value)
        if _starts_at(text, at) and (text[end : end + 1] in before or _ends_at(text, end, connectors)):
            return True
        at = text.find(value, at + 1)
    return False


def _most_hits(value: str) -> int:
    # Each search prepares the whole value first.
    return max(MIN_HITS, MAX_HITS * 100 // max(100, len(value)))


def _starts_at(text: str, at: int) -> bool:
    if at and text[at].isdigit():
        previous = text[at - 1]
        if previous in _BEFORE_DIGIT or (previous == "," and text[max(at - 2, 0)].isdigit()):
            return False  # a sign, or digits of the same number
    return not _joins(text, at - 1, -1, _CONNECTORS)


def _ends_at(text: str, end: int, connectors: frozenset[str]) -> bool:
    if text[end - 1].isdigit() and text[end : end + 1] == "," and text[end + 1 : end + 2].isdigit():
        return False
    if text[end : end + 2] in ("'s", "\u2019s") and text[end - 1].isalnum():
        end += 2
    return not _joins(text, end, 1, connectors)


def _joins(text: str, index: int, step: int, connectors: frozenset[str]) -> bool:
    """Whether the text from `index` on, in the direction of `step`, continues the word before it."""
    for _ in range(MAX_CONNECTORS):
        if not 0 <= index < len(text):
            return False
        char = text[index]
        if _is_word(char):
            return True
        if char not in connectors and (char.isascii() or not _is_hidden(char)):
            return False
        index += step
    return True


def _is_word(char: str) -> bool:
    return char.isalnum() or (char > "\x7f" and unicodedata.category(char)[0] == "M")


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in (*HIDDEN, "Zl", "Zp") or _FILLER.match(char) is not None


def _has_hidden(value: str) -> bool:
    return not (value.isascii() and value.isprintable()) and any(
        char not in "\n\r\t" and _is_hidden(char) for char in value
    )


# Accounts (IBAN): ISO 13616 gives their groups of four and their checksum.

_ACCOUNT = re.compile(r"[a-z]{2}[0-9]{2}[a-z0-9]{11,30}")
_ACCOUNT_IN_TEXT = re.compile(r"\b[a-z]{2}[0-9]{2}(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?\b", re.ASCII)


def _account_spellings(normal: str) -> Iterator[str]:
    compact = normal.replace(" ", "")
    if _is_account(compact):
        grouped = " ".join(compact[index : index + 4] for index in range(0, len(compact), 4))
        yield from {compact, grouped} if normal in (compact, grouped) else ()


def _is_account(compact: str) -> bool:
    if not _ACCOUNT.fullmatch(compact):
        return False
    return int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4])) % 97 == 1


# Numbers

_MAX_BITS = 2_000
_DIGITS = re.compile(r"[0-9]+(?:[.,'\u2019][0-9]+)*")
_READINGS = (  # how a number is written, and which of its characters only group digits
    (re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"), " "),
    (re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?"), ","),
    (re.compile(r"[1-9][0-9]{0,2}(?:'[0-9]{3})+(?:\.[0-9]+)?"), "'"),
    (re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}(?:,[0-9]+)?"), "."),
    (re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]{1,2}"), "."),
    (re.compile(r"(?:0|[1-9][0-9]*),[0-9]{1,2}"), "."),
)
_GROUP = re.compile(r"[0-9]{3}(?:[.,][0-9]{1,2})?")
_SIGNS, _CURRENCIES = frozenset("-\u2212"), frozenset("$€£¥₹")
_GROUPING_BLANKS = frozenset(" \u00a0\u202f")


def _plain_number(value: float) -> str:
    """A number without exponent, grouping and needless zeros; empty if it has no such form."""
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MAX_BITS else ""
    return _trimmed(format(Decimal(repr(value)), "f")) if isfinite(value) else ""


def _trimmed(text: str) -> str:
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _numbers_in(text: str) -> Iterator[str]:
    """The numbers in a text, as `_plain_number` writes them. `1.000` is one, and `1.000.000` is a million."""
    group, group_end = list[str](), -2  # numbers that may be groups of digits of one number, and where they end
    for found in _DIGITS.finditer(text):
        start, end = found.span()
        has_sign = _has_sign(text, start)
        if end - start > _MAX_BITS or not _ends_at(text, end, _CONNECTORS) or not (has_sign or _starts_at(text, start)):
            continue
        yield from _readings(found[0], has_sign)
        follows = start == group_end + 1 and text[group_end] in _GROUPING_BLANKS and group[-1].isdigit()
        if not (follows and _GROUP.fullmatch(found[0])):
            yield from _grouped(group)
            group = ["-" * has_sign]
        group.append(found[0])
        group_end = end
    yield from _grouped(group)


def _grouped(group: Sequence[str]) -> Iterator[str]:
    """The number whose sign and digits, in groups of three, are `group`, such as 1 000; none if there is one group."""
    if len(group) > 2 and len(group[1]) <= 3:
        yield from _readings("".join(group[1:]), bool(group[0]))


def _has_sign(text: str, start: int) -> bool:
    """Whether a minus sign stands before a number, as in `-5`, `-$5` and `$-5`."""
    at = start - 1
    if at > 0 and text[at] in _CURRENCIES and text[at - 1] in _SIGNS:
        at -= 1
    return at >= 0 and text[at] in _SIGNS and not _joins(text, at - 1, -1, _CONNECTORS)


def _readings(digits: str, has_sign: bool) -> Iterator[str]:
    if digits.isdecimal():  # most are; a number with leading zeros is an id
        if digits[0] != "0" or digits == "0":
            yield _trimmed("-" * has_sign + digits)
        return
    plain = digits.replace("\u2019", "'")
    for form, grouping in _READINGS:
        if form.fullmatch(plain):
            yield _trimmed("-" * has_sign + plain.replace(grouping, "").replace(",", "."))


# The lenient comparison


class _Place(NamedTuple):
    """Where a text shows a value."""

    source: str
    field: int
    """The index of the text."""
    line: int
    """The number of the line, from 1; 0 if the text has only one."""
    column: int
    """How many characters of the line, in the lenient form, stand before it."""
    is_squeezed: bool


class _Texts:
    """Texts in which values are found although they are written in another way."""

    def __init__(self, texts: Sequence[str], sources: Sequence[str], form: Callable[[str], str]) -> None:
        """`sources` are the sources of the texts in the same order; empty if they do not matter."""
        self._texts, self._sources, self._form = texts, sources, form
        self._lines = form(_with_one_newline(_joined(texts)))
        self._split = dict[int, list[str]]()
        self._ends = dict[tuple[int, int, bool], list[int]]()

    @cached_property
    def _flat(self) -> str:
        return self._lines.replace("\n", " ")

    @cached_property
    def _squeezed(self) -> str:
        return _squeeze(self._lines)

    def find(self, spellings: Sequence[str]) -> _Place | None:
        """The first place that shows one of the spellings of a value: as a word, else inside longer words."""
        values = [value for text in spellings if (value := self._form(text).replace("\n", " ").strip())]
        for value in values:
            if (at := _find_word(self._flat, value)) >= 0:
                return self._place(self._lines, at, is_squeezed=False)
        for value in values:
            short = _squeeze(value)
            if len(short) >= MIN_WITHOUT_BOUNDS and (at := self._squeezed.find(short)) >= 0:
                return self._place(self._squeezed, at, is_squeezed=True)
        return None

    def quote(self, place: _Place) -> str:
        """The line or sentence of a place, without hidden characters, cut to MAX_QUOTE characters."""
        line = self._line(place)
        if len(line) <= MAX_QUOTE:
            return _shown(line)
        at = self._offset(place)
        before, after = line[max(0, at - 3 * MAX_QUOTE) : at], line[at : at + 6 * MAX_QUOTE]
        begin = max(before.rfind(mark) for mark in _SENTENCE_ENDS)
        ends = [end for mark in _SENTENCE_ENDS if (end := after.find(mark)) >= 0]
        left = _BLANKS.sub(" ", remove_hidden(before[begin + 2 if begin >= 0 else 0 :]))
        right = _shown(after[: min(ends) + 1] if ends else after)
        kept = max(MAX_QUOTE - len(right), MAX_QUOTE // 3)
        return (left[-kept:] + right)[:MAX_QUOTE].strip()

    def around(self, place: _Place, length: int) -> str:
        """A piece of the original text around a place."""
        at = self._offset(place)
        return self._line(place)[max(0, at - MAX_QUOTE) : at + length + MAX_QUOTE]

    def _place(self, text: str, at: int, *, is_squeezed: bool) -> _Place:
        field, start = text.count("\0", 0, at), text.rfind("\0", 0, at) + 1
        end = text.find("\0", at)
        is_long = text.find("\n", start, end if end >= 0 else len(text)) >= 0
        line = text.count("\n", start, at) + 1 if is_long else 0
        column = at - max(start, text.rfind("\n", start, at) + 1)
        return _Place(self._sources[field] if self._sources else "", field, line, column, is_squeezed)

    def _line(self, place: _Place) -> str:
        if place.field not in self._split:
            self._split[place.field] = _with_one_newline(self._texts[place.field]).split("\n")
        return self._split[place.field][max(place.line - 1, 0)]

    def _offset(self, place: _Place) -> int:
        """About where the place is in the original line, whose lenient form may have another length."""
        line, form = self._line(place), self._form

        def length(text: str) -> int:
            return len(_squeeze(form(text)) if place.is_squeezed else form(text))

        key = (place.field, place.line, place.is_squeezed)
        if key not in self._ends:
            pieces = (line[begin : begin + _PIECE] for begin in range(0, len(line), _PIECE))
            self._ends[key] = list(accumulate(map(length, pieces)))
        ends = self._ends[key]
        index = min(bisect_right(ends, place.column), len(ends) - 1)
        piece = line[index * _PIECE : (index + 1) * _PIECE]
        rest = place.column - (ends[index - 1] if index else 0)
        sizes = range(len(piece) + 1)
        return index * _PIECE + bisect_right(sizes, rest, key=lambda size: length(piece[:size])) - 1


_PIECE = 1_000
_SENTENCE_ENDS = (". ", "! ", "? ")
_BLANKS = re.compile(r"\s+")
_INNER_BLANKS = re.compile(r"[^\S\n]+")


def _written(value: Scalar) -> list[str]:
    """How a text may write a value."""
    if isinstance(value, str):
        return list(dict.fromkeys((value, value.partition("://")[2], value.partition("://")[2].rstrip("/"))))
    number = _plain_number(value)
    if not number:
        return []
    whole, point, rest = number.partition(".")
    grouped = [f"{int(whole):,}".replace(",", sign) + point + rest for sign in ",. '"]
    return list(dict.fromkeys((number, repr(value), *grouped)))


def _with_one_newline(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _find_word(text: str, value: str) -> int:
    at = text.find(value)
    for _ in range(_most_hits(value)):
        end = at + len(value)
        if at < 0 or not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return at
        at = text.find(value, at + 1)
    return -1


def _squeeze(text: str) -> str:
    return text.replace(" ", "").replace("-", "")


def _shown(text: str) -> str:
    return " ".join(remove_hidden(text).split())[:MAX_QUOTE]


# Each of these steps keeps the number of lines and of NULs, which tell the place.


def _lenient(text: str) -> str:
    """A text in which letters that look alike are the same, and nothing is hidden or escaped."""
    if "%" in text:
        text = _PERCENT.sub(_unescaped_wholly, text)
    text = text.lower()
    if "xn--" in text:
        text = _PUNYCODE.sub(_decoded_label, text)
    if not text.isascii():
        text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    if changed := {ord(char): shown for char in set(text) if (shown := _likeness(char)) != char}:
        text = text.translate(changed)
    text = _INNER_BLANKS.sub(" ", text).replace(" \n", "\n").replace("\n ", "\n")
    return _addresses(text)


def _unescaped_wholly(escapes: re.Match[str]) -> str:
    text = bytes.fromhex(escapes[0].replace("%", "")).decode(errors="replace")
    return text.replace("\n", " ").replace("\r", " ").replace("\0", " ")


def _likeness(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() or char in "\0\n\t\r\v\f" else ""
    category = unicodedata.category(char)
    if category in ("Zl", "Zp") or char == "\x85":
        return " "
    if category == "Pd" or char == "\u2212":
        return "-"
    if category[0] == "M" or _is_hidden(char):
        return ""
    return _LIKENESSES.get(char, char)


def _look(text: str) -> str:
    """A text in which digits that look like letters are the same as these, too."""
    text = _lenient(text)
    for shown, letter in (("0", "o"), ("1", "l"), ("|", "l"), ("rn", "m"), ("vv", "w")):
        text = text.replace(shown, letter)
    return text


_LIKENESSES = dict(
    zip(
        "авсԁегһіјкӏмнорԛѕтуѵԝхүъ" + "αβεηικνορτυχωγζ" + "ıɑɡɩøłđħŧɛ" + "օոսհցք",  # noqa: RUF001
        "abcderhijklmhopqstyvwxyb" + "abenikvoptuxwyz" + "iagioldhte" + "onuhgf",
        strict=True,
    )
)
"""Small letters that look like a Latin letter, or whose capitals do: Cyrillic, Greek, Latin, Armenian."""
