"""How the planner without a model reads a clause: a verb names a kind, and the words after it are the arguments.

A kind that is not in the table is called by its name, e.g. `to feet 100` or `charge ann 12.00 for order 17`: values in
the order of the arguments, or each after the name of its argument. A clause that can be read in two ways is not read.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import JsonValue

from activities.offline.grammar import (
    ADDING,
    DAY,
    LEADING_ON,
    QUOTED,
    TIME,
    format_time,
    parse_day,
    parse_time,
    read_words,
    unquote,
)
from activities.toolbox.declare.kind import Kind
from activities.toolbox.expressions.expression import unknown_words

IT = r"(?:it|that|the\s+result)"
THEM = r"(?:them|these|those|the\s+results)"
_FILE = r"(?=\S*[^\s.,;][.\-_/][^\s.,;])"  # with `.`, `-`, `_` or `/` inside, so it is no ordinary word
_ALL = r"(?:(?:the|my|our|all|any|a|an|one|free|open|available|latest)\s+)*"
_SMALL = re.compile(
    rf"(?!{IT}\b)(?:for|of|to|on|into|in|by|at|from|about|with|as|named|the|my|our|a|an|no\.|each|EUR|euros?)(?=\s|$)",
    re.IGNORECASE,
)
_STOP = re.compile(rf"(?:and|{ADDING}|{LEADING_ON})$", re.IGNORECASE)
_TOKEN = re.compile(
    rf"(?P<quoted>{QUOTED})|(?P<it>{IT}|{THEM})(?=[\s,]|$)|(?P<day>{DAY})(?=[\s,]|$)|(?P<time>{TIME})(?=[\s,]|$)"
    r"|(?:EUR\s*|\u20ac\s*|\#)?(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?=[\s,]|$)"
    r"|(?P<word>[^\s,]+)",
    re.IGNORECASE,
)


class Pronoun(NamedTuple):
    """A value that stands for what an earlier clause brings for this argument; a plural one for each such result."""

    argument: str
    is_plural: bool = False


Value = JsonValue | Pronoun


def _one(text: str) -> str | None:
    """A name of one word, or of several in quotation marks."""
    name = unquote(text)
    return None if " " in name and name == text.strip(" ,") else name


def _expression(text: str) -> str | None:
    expression = re.sub(r"\b(?:the result|that)\b", "it", text, flags=re.IGNORECASE).strip(" =\n")
    return None if unknown_words(expression) or not re.search(r"\bit\b|[0-9]", expression) else expression


class Verb(NamedTuple):
    """How people write a call of a kind."""

    spelling: str
    words: str
    """A regular expression for the beginning of the clause."""
    kind: str
    id: str
    order: tuple[str, ...] = ()
    """The arguments for which values without a name are; empty for those of the kind."""
    whole: Callable[[str], str | None] | None = None
    """Reads all words after the verb as the first argument; None for a text that may hold more than that."""
    usual: Mapping[str, str] = MappingProxyType({})
    """The arguments that may be left out."""

    @property
    def pattern(self) -> re.Pattern[str]:
        return _beginning(self.words)


@lru_cache(10_000)  # a worker may have thousands of kinds, and each clause is held against all of them
def _beginning(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{words})(?=[\s,:]|$)\s*", re.IGNORECASE | re.DOTALL)


_DOCUMENTS = rf"{_ALL}(?:documents?|docs|files)"
_SEARCH = rf"(?:search|look)(?:\s+(?:in|through))?(?:\s+{_DOCUMENTS})?\s+for(?:\s+(?:the|our|your|a|an))?"
_FETCH = r"(?:fetch|get|open|load|download|read)(?:\s+(?:the\s+)?(?:page|url|site))?(?=\s+https?://)"
_READ = rf"(?:read|open)(?:\s+(?:the\s+)?(?:document|file)|(?=\s+(?:(?:{IT}|{THEM})$|{QUOTED}|{_FILE})))"
_CALCULATE = r"calculate|compute|work\s+out|what(?:['\u2019]s|\s+is)|how\s+much\s+is"
_BOOK = rf"(?:book|reserve)(?:\s+(?:me|us))?\s+{_ALL}(?:time\s+)?slot"
VERBS = (
    Verb("search the documents for WORDS", _SEARCH, "search", "search", whole=read_words),
    Verb("fetch URL", _FETCH, "fetch_page", "fetch", whole=_one),
    Verb("read document NAME", _READ, "read_document", "read", whole=_one),
    Verb("summarise it [in 3 sentences]", "summari[sz]e", "summarise", "summarise"),
    Verb("save it to FILE", "save|write|store", "write_file", "save", order=("content", "name")),
    Verb("calculate 18% of 2450", _CALCULATE, "calculate", "calculate", whole=_expression),
    Verb(
        "book a slot [for NAME] [on DATE] at 14:00",
        _BOOK,
        "book_slot",
        "book",
        ("name", "day", "at"),
        usual={"name": "me"},
    ),
    Verb("cancel booking 12", "cancel", "cancel_booking", "cancel"),
    Verb("buy 2 of A-17 for at most 24.50", "buy|purchase|order", "purchase", "buy"),
)
"""Kinds that have words of their own; a verb counts if the task may call its kind."""
BRINGS: Mapping[str, Mapping[str, str]] = {
    "search": {"text": "hits.0.text", "content": "hits.0.text", "name": "hits.0.path"},
    "read_document": {"text": "text", "content": "text"},
    "fetch_page": {"text": "text", "content": "text"},
    "summarise": {"content": "summary"},
    "calculate": {"it": "value", "content": "value"},
    "book_slot": {"booking": "id"},
    "get_price": {"it": "price"},
    "purchase": {"it": "total", "order": "id"},
}
"""By kind, what its result brings for an argument of a later call: the path in the result."""


def brings(kind: Kind) -> Mapping[str, str]:
    """As BRINGS; each other kind brings the fields of its result, and for a calculation the first number of them."""
    if kind.spec.kind in BRINGS:
        return BRINGS[kind.spec.kind]
    fields = kind.result.json_schema().get("properties", {})
    number = next((name for name, field in fields.items() if _types(field) & {"integer", "number"}), None)
    return {**({"it": number} if number else {}), **{name: name for name in fields}}


def verbs_of(kinds: Mapping[str, Kind]) -> Iterator[Verb]:
    """The verbs of the table whose kinds there are, then one for each other kind: the words of its name."""
    yield from (verb for verb in VERBS if verb.kind in kinds)
    others = kinds.keys() - {verb.kind for verb in VERBS}
    for name in sorted(others, key=lambda name: (-len(name), name)):  # `get item` before `get`
        words = rf"[\s_]+{_ALL}".join(map(re.escape, name.split("_")))
        fields = " ".join(field.upper() for field in kinds[name].args_schema.get("required", ()))
        yield Verb(f"{name.replace('_', ' ')} {fields}".strip(), words, name, name)


class ClauseCall(NamedTuple):
    """The call that a clause asks for; in its title, `{it}` is what the pronoun stands for."""

    verb: Verb
    args: Mapping[str, Value]
    title: str


def read_call(verb: Verb, clause: str, kind: Kind, today: date) -> ClauseCall | None:
    """Read a clause that may begin with this verb; None for another one, or if its words are not the arguments.

    A day that is not named is today.
    """
    found = verb.pattern.match(clause)
    if found is None:
        return None
    fields, required = kind.args_schema.get("properties", {}), kind.args_schema.get("required", ())
    reader = _ValueReader(verb.order or fields, fields, today)
    rest = clause[found.end() :].removeprefix(":").strip()
    if not (reader.read_whole(rest, verb.whole) if verb.whole else reader.read(rest)):
        return None
    missing = [name for name in required if name not in reader.args]
    usual = {**{name: today.isoformat() for name in missing if "date" in _types(fields[name])}, **verb.usual}
    args = {**reader.args, **{name: usual[name] for name in missing if name in usual}}
    return ClauseCall(verb, args, " ".join(reader.texts.values())) if args.keys() >= set(required) else None


class _ValueReader:
    """Reads the words after a verb as arguments."""

    def __init__(self, order: Iterable[str], fields: Mapping[str, Any], today: date) -> None:
        self.args: dict[str, Value] = {}
        self.texts: dict[str, str] = {}
        """Each argument as it is written; `{it}` for a pronoun."""
        self._fields = fields
        self._order = [name for name in order if name in fields]  # another tool may have the name of the kind
        self._today = today

    def read_whole(self, rest: str, read: Callable[[str], str | None]) -> bool:
        name = next(iter(self._order), None)
        if not (rest and name) or self._put_pronoun(name, rest):
            return bool(rest and name)
        value = read(rest)
        if value:
            self.args[name], self.texts[name] = value, value
        if value and "it" in self._fields and re.search(r"\bit\b", value):
            self.args["it"] = Pronoun("it")
        return bool(value)

    def read(self, rest: str) -> bool:
        """Read value after value; False if one of them is for no argument."""
        at, named, run = 0, "", ""  # `named` is the argument whose name was read, `run` the text that may go on
        while at < len(rest):
            if rest[at] in " ,\n":
                at += 1
            elif label := self._label(rest, at):
                named, run, at = "" if label[0] in self.args else label[0], "", label[1]
            elif small := _SMALL.match(rest, at):
                run, at = "", small.end()
            else:
                token = _TOKEN.match(rest, at)
                if token is None or not (name := self._put(token, named, run)):
                    return False
                named, run, at = "", name if token.lastgroup == "word" else "", token.end()
        return not named

    def _label(self, rest: str, at: int) -> tuple[str, int] | None:
        """The argument whose name stands here, and where the name ends."""
        for name in sorted(self._fields, key=len, reverse=True):
            words = re.escape(name).replace("_", "[ _-]")
            if found := re.compile(rf"{words}s?(?:\s*[:=]|(?=[\s,]|$))", re.IGNORECASE).match(rest, at):
                return name, found.end()
        return None

    def _put(self, token: re.Match[str], named: str, run: str) -> str:
        """Take a value for the argument that was `named`, or for the next that it fits; return which; empty: none."""
        text, what = token[token.lastgroup or 0], token.lastgroup
        if what == "word" and _STOP.match(text):
            return ""
        free = [named] if named else [name for name in self._order if name not in self.args]
        if what == "it":
            return next((name for name in free if self._put_pronoun(name, text)), "")
        if what in ("word", "number") and run and not named:
            free = [name for name in free if what == "number" and self._is_typed(name)]
        is_moment = re.match("[0-9]", text) and any(_types(self._fields[name]) & {"date", "time"} for name in free)
        for name in sorted(free, key=lambda name: what != "word" and not self._is_typed(name)):
            value = self._value(name, text) if self._is_typed(name) or not is_moment else None
            if value is not None:
                self.args[name], self.texts[name] = value, unquote(text) if what == "quoted" else str(value)
                return name
        if run:
            self.args[run] = self.texts[run] = f"{self.texts[run]} {text}"
        return run

    def _put_pronoun(self, name: str, text: str) -> bool:
        for words, is_plural in ((IT, False), (THEM, True)):
            if re.fullmatch(words, text, re.IGNORECASE):
                self.args[name], self.texts[name] = Pronoun(name, is_plural), "{it}"
                return True
        return False

    def _is_typed(self, name: str) -> bool:
        return not _types(self._fields[name]).issubset({"string", "null"})

    def _value(self, name: str, text: str) -> JsonValue:
        """The value that a text is for an argument; None if it is of another type."""
        types = _types(self._fields[name])
        if "date" in types:
            day = parse_day(text, self._today)
            return day.isoformat() if day else None
        if "time" in types:
            at = parse_time(text)
            return format_time(at) if at else None
        if types & {"integer", "number"}:
            is_number = re.fullmatch(r"-?(?:0|[1-9][0-9]*)" + (r"(?:\.[0-9]+)?" if "number" in types else ""), text)
            return (text if "string" in types else json.loads(text)) if is_number else None
        if "boolean" in types:
            return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower())
        return unquote(text) if "string" in types else None


def _types(schema: Mapping[str, Any]) -> set[str]:
    options = schema.get("anyOf", [schema])
    return {str(option.get("format") or option.get("type")) for option in options if isinstance(option, dict)}
