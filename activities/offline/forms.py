"""The offline planner's forms of the built-in kinds; a clause of a task is read by the first form that it matches.

For example `calculate 18% of 2450` matches the pattern of `calculate`, whose function reads the rest as the argument
`expression`. The function returns None if a part of the clause is ambiguous; then the next form is tried. Other tools
bring forms of their own, with `forms=`.
"""

import json
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from activities.offline.grammar import format_time, parse_day, parse_time, read_name, read_words, unquote
from activities.toolbox.declare.form import CallResult, Calls, Form, PlannedCall, Pronoun, Referent, Value
from activities.toolbox.expressions.expression import unknown_words

NUMBER = Referent("a number that an earlier clause brings", "Write the number instead")
TEXT = Referent("a text that was found, read or fetched before", "Name the document or the URL instead")
CONTENT = Referent("a text or a number that an earlier clause brings", "Write the text in quotation marks instead")
SUMMARY = Referent("the summary that an earlier clause makes", "Ask for it first: summarise document NAME")
PAGE = Referent("the page that an earlier clause fetches", "Ask for it first: fetch URL")
DOCUMENT = Referent("a document that was searched for before", "Name the document instead")

IT = r"(?:it|that|the\s+result)"
THEM = r"(?:them|these|those|the\s+results)"
QUOTED = r"\"[^\"]+\"|\u201c[^\u201d]+\u201d|'[^']+'"
_WORD = r"[^\s\"'\u201c\u201d,;]+"
NAME = rf"(?:{QUOTED}|{_WORD})"  # one word, or several in quotation marks
FILE = rf"(?:{QUOTED}|(?=\S*[^\s.,;][.\-_/][^\s.,;]){_WORD})"
"""A file name that cannot be an ordinary word: it has `.`, `-`, `_` or `/` inside, or is in quotation marks."""


def pronoun(text: str, referent: Referent, field: str = "") -> Pronoun | None:
    """Read `it`, `them` and the like as a Pronoun for `field` of a `referent`; None if the text is no pronoun."""
    if re.fullmatch(IT, text, re.IGNORECASE):
        return Pronoun(referent, field)
    return Pronoun(referent, field, is_plural=True) if re.fullmatch(THEM, text, re.IGNORECASE) else None


def read_groups(form: Form, schema: Mapping[str, Any], found: re.Match[str], today: date) -> Calls | None:
    """Make the call of a form without a function; None if an argument is ambiguous or does not fit its schema.

    The named groups of the match `found` are the arguments; `schema` is the JSON schema of all arguments of the kind.
    """
    texts = {name: text for name, text in found.groupdict().items() if text is not None}
    args = {name: _argument(text, schema.get("properties", {}).get(name, {}), today) for name, text in texts.items()}
    if None in args.values():
        return None
    kind, title = form.kinds[-1], " ".join("{it}" if isinstance(args[name], Pronoun) else texts[name] for name in texts)
    return (PlannedCall(kind, kind, args, f"{kind} {title}".strip(), form.things),)


def _argument(text: str, schema: Mapping[str, Any], today: date) -> Value:
    """Read a text as a value of the JSON `schema` of an argument; None if the text is ambiguous or does not fit."""
    types = {option.get("format") or option.get("type") for option in schema.get("anyOf", [schema])}
    is_number = not types.isdisjoint({"integer", "number"})
    if found := pronoun(text, NUMBER if is_number else CONTENT):
        return found
    if is_number:
        return json.loads(text) if re.fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", text) else None
    if "date" in types:
        day = parse_day(text, today)
        return day.isoformat() if day else None
    if "time" in types:
        at = parse_time(text)
        return format_time(at) if at else None
    return read_name(text)


_DOCUMENTS = r"(?:(?:the|my|our|all|these)\s+)*(?:documents?|docs|files)"
_DOCUMENT = r"(?:the\s+)?(?:document|file)\s+"
_URL = r"https?://\S+"
_SAVED = {"the summary": SUMMARY, "the page": PAGE, "the text": TEXT}


def _search(found: re.Match[str], _today: date) -> Calls | None:
    text = found["query"] or found["named"]
    query = read_words(re.sub(r"^(?:the|our|your|a|an)\s+", "", text.strip(), flags=re.IGNORECASE))
    things = {TEXT: "hits.0.text", CONTENT: "hits.0.text", DOCUMENT: "hits.0.path"}
    return (PlannedCall("search", "search", {"query": query}, query, things),) if query else None


def _read_document_call(name: str | Pronoun) -> PlannedCall:
    title = "read {it}" if isinstance(name, Pronoun) else f"read {name}"
    return PlannedCall("read_document", "read", {"name": name}, title, {TEXT: "text", CONTENT: "text"})


def _fetch_call(url: str) -> PlannedCall:
    return PlannedCall("fetch_page", "fetch", {"url": url}, url, {TEXT: "text", CONTENT: "text", PAGE: "text"})


def _summarise(found: re.Match[str], _today: date) -> Calls | None:
    what, count = found["what"], found["count"]
    sentences: dict[str, Value] = {"sentences": int(count)} if count else {}
    things = {SUMMARY: "summary", CONTENT: "summary"}
    text = pronoun(what, TEXT)
    if text is not None:
        return (PlannedCall("summarise", "summarise", {"text": text, **sentences}, "summary of {it}", things),)
    name = unquote(what)
    first = _fetch_call(name) if re.fullmatch(_URL, name, re.IGNORECASE) else _read_document_call(name)
    args = {"text": CallResult(0, "text"), **sentences}
    return (first, PlannedCall("summarise", "summarise", args, f"summary of {name}", things))


def _save(found: re.Match[str], _today: date) -> Calls | None:
    what, name = found["what"], unquote(found["name"])
    referent = _SAVED.get(" ".join(what.lower().split()), CONTENT)
    # No plural here: a second text in the same file would replace the first.
    content = unquote(what) if re.fullmatch(QUOTED, what) else Pronoun(referent)
    return (PlannedCall("write_file", "save", {"name": name, "content": content}, f"save {name}"),)


def _calculation(found: re.Match[str], _today: date) -> Calls | None:
    expression = re.sub(r"\b(?:the result|that)\b", "it", found["expression"], flags=re.IGNORECASE).strip(" =\n")
    has_it = re.search(r"\bit\b", expression) is not None
    if not (has_it or re.search(r"[0-9]", expression)) or unknown_words(expression):
        return None
    args: dict[str, Value] = {"expression": expression, **({"it": Pronoun(NUMBER)} if has_it else {})}
    return (PlannedCall("calculate", "calculate", args, expression, {NUMBER: "value", CONTENT: "value"}),)


FORMS = (
    Form(
        "search the documents for WORDS",
        rf"(?:search|look)(?:\s+(?:in|through))?(?:\s+{_DOCUMENTS})?\s+for\s+(?P<query>.+)"
        rf"|find\s+(?P<named>.+?)\s+in\s+{_DOCUMENTS}",
        _search,
        example="search the documents for the refund policy",
        kinds=("search",),
    ),
    Form(
        "fetch URL",
        rf"(?:fetch|get|open|load|download|read)\s+(?:(?:the\s+)?(?:web\s*)?(?:page|url|site)\s+)?(?P<url>{_URL})",
        lambda found, _today: (_fetch_call(found["url"]),),
        example="fetch https://example.org/prices",
        kinds=("fetch_page",),
    ),
    Form(
        "read document NAME",
        rf"(?:read|open)\s+(?:{_DOCUMENT}|(?={IT}\b|{THEM}\b|{FILE}))(?P<name>{IT}|{NAME})",
        lambda found, _today: (_read_document_call(pronoun(found["name"], DOCUMENT) or unquote(found["name"])),),
        example="search the documents for refunds then read it",
        kinds=("read_document",),
    ),
    Form(
        "summarise document NAME [in 3 sentences]",
        rf"summari[sz]e\s+(?:{_DOCUMENT}|(?:the\s+page\s+)?(?={_URL}|{IT}\b|{THEM}\b|{FILE}))"
        rf"(?P<what>{_URL}|{IT}|{THEM}|{NAME})"
        r"(?:\s+in\s+(?P<count>[1-9]|1[0-9]|20)\s+sentences?)?",
        _summarise,
        example="read refund-policy.md, summarise it in 2 sentences and save it to summary.md",
        kinds=("read_document", "summarise"),
    ),
    Form(
        "save it to FILE",
        rf"(?:save|write|store)\s+(?P<what>{IT}|the\s+(?:summary|page|text)|{QUOTED})"
        rf"\s+(?:to|in|into|as)\s+(?:(?:the\s+|a\s+)?file\s+)?(?P<name>{NAME})",
        _save,
        example="fetch https://example.org/prices then save it to prices.md",
        kinds=("write_file",),
    ),
    Form(
        "calculate 18% of 2450",
        r"(?:calculate|compute|work\s+out)\s+(?P<expression>.+)",
        _calculation,
        example="calculate 18% of 2450 then calculate 10% of it",
        kinds=("calculate",),
    ),
    Form(
        "what is 18% of 2450 (for other questions: search the documents for WORDS)",
        r"(?:what(?:['\u2019]s|\s+is)|how\s+much\s+is)\s+(?P<expression>.+)",
        _calculation,
        example="what is 18% of 2450",
        kinds=("calculate",),
    ),
)
