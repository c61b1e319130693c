"""Finds the values of a proposal that have no trusted source, and where untrusted content shows them.

Two comparisons are made. The strict one (`strict.py`, `numbers.py`) decides whether a trusted source shows a value. The
lenient one (`lenient.py`) only finds text for the person who is asked: it permits no call.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from pydantic import JsonValue

from activities.planning.origins import strict
from activities.planning.origins.lenient import Occurrence, Texts, lenient_form, look_form, shown_text, spellings
from activities.planning.origins.numbers import numbers_in, plain_number
from activities.planning.origins.sources import (
    MAX_KEY,
    Scalar,
    Sources,
    UntrustedText,
    computation,
    literals,
    may_compute,
    references_in,
)
from activities.planning.planner import RecordedTurn
from activities.toolbox.declare.kind import Kind
from workflows.planning.situation import Situation
from workflows.plans.contract import Origin
from workflows.plans.proposal import Step

MAX_VALUES = 1_000
"""How many different values are looked up; further values count as without a trusted source, and get no `source`."""
MAX_QUOTES = 100
"""How many origins of a proposal have a quote, or the arguments of a computation."""
MIN_LOOKALIKE = 4
"""The fewest characters of a value that is compared with trusted words that look like it."""


def trace(
    steps: Sequence[Step], past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]
) -> tuple[Origin, ...]:
    """The values in the arguments of `steps` that have no trusted source: for each step its literals, then references.

    `past` are the earlier turns of the conversation. A key of an object is a literal, too, unless the tool's schema
    names it; the path of a key is the path of its value. A reference counts if it leads to a computation that the
    planner may have chosen for untrusted content; those that lead to untrusted results are left to the workflow.
    """
    sources = Sources(past, situation, kinds)
    search = _Search(sources)
    computed = sources.computations | {
        step.id: computation(step.kind, {}) for step in steps if may_compute(step.kind, kinds)
    }
    names = dict[str, frozenset[str]]()
    found = list[Origin]()
    for step in steps:
        if step.kind not in names:
            names[step.kind] = _property_names(kinds[step.kind].args_schema) if step.kind in kinds else frozenset()
        for at, value, is_key in literals(step.args, names[step.kind]):
            if not search.has_trusted_source(value):
                origin = search.origin(step.id, at, value, is_quoted=len(found) < MAX_QUOTES)
                found.append(origin.model_copy(update={"is_key": is_key}))
        for at, id in references_in(step.args):
            if id in computed:
                shown = _computation(computed[id], is_quoted=len(found) < MAX_QUOTES)
                found.append(Origin(step=step.id, at=at, source=id, computed=shown))
    return tuple(found)


def _computation(computed: str, *, is_quoted: bool) -> str:
    """The words of a computation; only the kind of the tool unless `is_quoted`."""
    return computed if is_quoted else computed.partition(" ")[0]


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


_MARKS = ".,;:!?()[]{}<>\"'`*"
_USER_IN_URL = re.compile(r"\s*[a-z][a-z0-9+.-]*:[/\\]{2}[^/?#\\]*@(?P<host>[^/?#\\@:]*)", re.IGNORECASE)


class _Search:
    """Looks values up in the sources; each source is prepared once, and only if it is needed."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._known = dict[tuple[bool, Scalar], bool]()
        self._places = dict[tuple[bool, Scalar], Occurrence | None]()

    def has_trusted_source(self, value: Scalar) -> bool:
        """Whether a trusted source shows the value; False without a search after MAX_VALUES different values."""
        key = (isinstance(value, str), value)
        if key not in self._known and len(self._known) < MAX_VALUES:
            self._known[key] = self._shows_text(value) if isinstance(value, str) else self._shows_number(value)
        return self._known.get(key, False)

    def origin(self, step: str, at: str, value: Scalar, *, is_quoted: bool) -> Origin:
        """The Origin of a value without a trusted source; if `is_quoted`, with a quote and what is unusual in it."""
        key = (isinstance(value, str), value)
        if key not in self._known:
            return Origin(step=step, at=at)
        if key not in self._places:
            self._places[key] = self._untrusted.find(spellings(value))
        occurrence = self._places[key]
        unusual = self._describe_unusual(value) if isinstance(value, str) and is_quoted else ""
        if occurrence is None:
            return Origin(step=step, at=at, unusual=unusual)
        if computed := self._passages[occurrence.field].computed:
            computed = _computation(computed, is_quoted=is_quoted)
            return Origin(step=step, at=at, source=occurrence.source, computed=computed, unusual=unusual)
        quote = self._untrusted.quote(occurrence) if is_quoted else ""
        return Origin(step=step, at=at, source=occurrence.source, line=occurrence.line, quote=quote, unusual=unusual)

    @cached_property
    def _trusted(self) -> str:
        normal = strict.normal_form(strict.joined(self._sources.trusted))
        spelt = strict.with_addresses(normal)
        return normal if spelt == normal else f"{normal}\0{spelt}"

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(numbers_in(strict.joined(self._sources.trusted)))

    @cached_property
    def _passages(self) -> list[UntrustedText]:
        return self._sources.untrusted

    @cached_property
    def _untrusted(self) -> Texts:
        texts, sources = [each.text for each in self._passages], [each.source for each in self._passages]
        return Texts(texts, sources, lenient_form)

    @cached_property
    def _trusted_looks(self) -> Texts:
        return Texts(self._sources.trusted, (), look_form)

    def _shows_number(self, value: float) -> bool:
        number = plain_number(value)
        return bool(number) and (number in self._sources.numbers or number in self._numbers)

    def _shows_text(self, value: str) -> bool:
        if strict.has_hidden(value):
            return False
        normal = strict.normal_form(value)
        ends = strict.URL_CONNECTORS if "://" in normal else strict.CONNECTORS
        if not normal:
            return False
        return (
            strict.occurs(self._trusted, normal, ends)
            or any(strict.occurs(self._trusted, other, ends) for other in strict.account_spellings(normal))
            or self._shows_host(normal)
        )

    def _shows_host(self, normal: str) -> bool:
        """Whether a trusted source shows a URL without a path: as the beginning of a URL, or as the name of its host.

        The name of the host is enough only for https, and if it does not look like the name of a file.
        """
        if not (found := strict.HOST_URL.fullmatch(normal)):
            return False
        if strict.occurs(self._trusted, found["origin"], strict.URL_CONNECTORS, before="/?#"):
            return True
        # Without TLS, whoever controls the network is the host.
        is_host = found["scheme"] == "https" and found["top"] not in strict.FILE_ENDINGS
        return is_host and strict.occurs(self._trusted, found["host"], strict.CONNECTORS)

    def _describe_unusual(self, value: str) -> str:
        if strict.has_hidden(value):
            return "has hidden characters"
        if found := _USER_IN_URL.match(value):
            return f"what stands before @ is the name of a user; the host is {shown_text(found['host'])[:MAX_KEY]}"
        if strict.is_account(compact := value.replace(" ", "").lower()):
            accounts = [account for account in self._user_accounts if account != compact]
            return f"the user wrote {accounts[0].upper()}; this is another account" if accounts else ""
        alike = self._lookalike(value.strip())
        return f"looks like {alike}, but is written with other letters" if alike else ""

    @cached_property
    def _user_accounts(self) -> list[str]:
        found = (
            match[0].replace(" ", "")
            for match in strict.ACCOUNT_IN_TEXT.finditer(strict.normal_form(strict.joined(self._sources.user)))
        )
        return [account for account in found if strict.is_account(account)]

    def _lookalike(self, value: str) -> str:
        """A trusted word that looks like `value` but is written with other letters; empty if there is none."""
        if not MIN_LOOKALIKE <= len(value) <= MAX_KEY or len(value.split()) > 1 or not any(map(str.isalpha, value)):
            return ""
        if strict.normal_form(value) in self._trusted or (occurrence := self._trusted_looks.find([value])) is None:
            return ""
        look = look_form(value)
        around = (word.strip(_MARKS) for word in self._trusted_looks.around(occurrence, len(value)).split())
        return next((shown_text(word)[:MAX_KEY] for word in around if look_form(word) == look), "")
