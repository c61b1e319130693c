"""Forms for what can be read and written: documents, pages, files."""

import re
from datetime import date

from activities.llm.clause import unquoted
from activities.llm.forms.form import FILE, IT, NAME, QUOTED, THEM, It, Own, Value, Wanted, form, it, name_or_it
from activities.llm.forms.noun import CONTENT, DOCUMENT, PAGE, SUMMARY, TEXT

_DOCUMENTS = r"(?:(?:the|my|our|all|these)\s+)*(?:documents?|docs|files)"
_DOCUMENT = r"(?:the\s+)?(?:document|file)\s+"
_URL = r"https?://\S+"
_SAVED = {"the summary": SUMMARY, "the page": PAGE, "the text": TEXT}


def _search(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    query = found["query"] or found["named"]
    query = unquoted(re.sub(r"^(?:the|our|your|a|an)\s+", "", query.strip(), flags=re.IGNORECASE))
    return (Wanted("search", "search", {"query": query}, query),) if query else None


def _fetch(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    return (Wanted("fetch_page", "fetch", {"url": found["url"]}, found["url"]),)


def _read(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    name = name_or_it(found["name"], DOCUMENT)
    return (Wanted("read_document", "read", {"name": name}, "read {it}" if isinstance(name, It) else f"read {name}"),)


def _summarise(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    """Summarise what is there already, or read it first."""
    said, count = found["what"], found["count"]
    sentences: dict[str, Value] = {"sentences": int(count)} if count else {}
    text = it(said, TEXT)
    if text is not None:
        return (Wanted("summarise", "summarise", {"text": text, **sentences}, "summary of {it}"),)
    name = unquoted(said)
    if re.fullmatch(_URL, name, re.IGNORECASE):
        first = Wanted("fetch_page", "fetch", {"url": name}, name)
    else:
        first = Wanted("read_document", "read", {"name": name}, f"read {name}")
    return (first, Wanted("summarise", "summarise", {"text": Own(0, TEXT), **sentences}, f"summary of {name}"))


def _save(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    """One thing in one file: a second would replace the first."""
    said, name = found["what"], unquoted(found["name"])
    noun = _SAVED.get(" ".join(said.lower().split()), CONTENT)
    content = unquoted(said) if re.fullmatch(QUOTED, said) else It(noun)
    return (Wanted("write_file", "save", {"name": name, "content": content}, f"save {name}"),)


def _list(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    query = unquoted(found["query"]) if found["query"] else ""
    title = f"documents about {query}" if query else "documents"
    return (Wanted("list_documents", "documents", {"query": query} if query else {}, title),)


def _delete(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    name = unquoted(found["name"])
    return (Wanted("delete_document", "delete", {"document": name}, f"delete {name}"),)


FORMS = (
    form(
        "search",
        "search the documents for WORDS",
        "search the documents for the refund policy",
        rf"(?:search|look)(?:\s+(?:in|through))?(?:\s+{_DOCUMENTS})?\s+for\s+(?P<query>.+)"
        rf"|find\s+(?P<named>.+?)\s+in\s+{_DOCUMENTS}",
        _search,
    ),
    form(
        "fetch_page",
        "fetch URL",
        "fetch https://example.org/prices",
        rf"(?:fetch|get|open|load|download|read)\s+(?:(?:the\s+)?(?:web\s*)?(?:page|url|site)\s+)?(?P<url>{_URL})",
        _fetch,
    ),
    form(
        "read_document",
        "read document NAME",
        "search the documents for refunds then read it",
        rf"(?:read|open)\s+(?:{_DOCUMENT}|(?={IT}\b|{THEM}\b|{FILE}))(?P<name>{IT}|{NAME})",
        _read,
    ),
    form(
        "read_document summarise",
        "summarise document NAME [in 3 sentences]",
        "read refund-policy.md, summarise it in 2 sentences and save it to summary.md",
        rf"summari[sz]e\s+(?:{_DOCUMENT}|(?:the\s+page\s+)?(?={_URL}|{IT}\b|{THEM}\b|{FILE}))"
        rf"(?P<what>{_URL}|{IT}|{THEM}|{NAME})"
        r"(?:\s+in\s+(?P<count>[1-9]|1[0-9]|20)\s+sentences?)?",
        _summarise,
    ),
    form(
        "write_file",
        "save it to FILE",
        "fetch https://example.org/prices then save it to prices.md",
        rf"(?:save|write|store)\s+(?P<what>{IT}|the\s+(?:summary|page|text)|{QUOTED})"
        rf"\s+(?:to|in|into|as)\s+(?:(?:the\s+|a\s+)?file\s+)?(?P<name>{NAME})",
        _save,
    ),
    form(
        "list_documents",
        "list the documents [about WORD]",
        "list the documents about returns",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+documents"
        r"(?:\s+(?:about|on|named|called)\s+(?P<query>.+))?",
        _list,
    ),
    form(
        "delete_document",
        "delete document NAME",
        "delete document returns-checklist",
        rf"(?:delete|remove)\s+(?:the\s+)?document\s+(?P<name>{NAME})",
        _delete,
    ),
)
