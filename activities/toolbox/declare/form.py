"""The forms of a tool: how people write a request for it where no model plans, e.g. `cancel booking 12`."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from workflows.text import nearest


@dataclass(frozen=True, eq=False)
class Referent:
    """A thing that a pronoun such as `it` may stand for, e.g. a booking."""

    description: str
    """The end of the sentence: `it` must be ..."""
    remedy: str
    """What to write if no earlier clause has such a thing."""


@dataclass(frozen=True)
class Pronoun:
    """An argument that stands for a field of the newest thing `referent` in the results of earlier clauses.

    If it is plural, the call is made once for each earlier result that contains such a thing.
    """

    referent: Referent
    field: str = ""
    """The path of the field in the thing; empty for the thing itself."""
    is_plural: bool = False


@dataclass(frozen=True)
class CallResult:
    """An argument that stands for a part of the result of an earlier call of the same clause."""

    call: int
    """The position of that call in the clause, from 0."""
    path: str


Value = JsonValue | Pronoun | CallResult
Things = Mapping[Referent, str]
"""The things in a result for which a pronoun of a later clause may stand, each with its path in the result; empty for
the whole result."""


class PlannedCall(NamedTuple):
    """A call that a clause of a task requests; the planner makes a step of the call."""

    kind: str
    id: str
    """The id of the step; it gets a number if the id is already used."""
    args: Mapping[str, Value]
    title: str
    """`{it}` is replaced by the title of the step that the pronoun stands for."""
    things: Things = MappingProxyType({})
    """The things in the result of the call."""
    is_last: bool = False
    """Whether the step of this call needs the steps of all earlier calls of the clause."""


Calls = tuple[PlannedCall, ...]
Read = Callable[[re.Match[str], date], Calls | None]
"""Makes the calls of a clause from the match of its pattern and today's date; None if a part of it is ambiguous."""


@dataclass(frozen=True)
class Form:
    """A way to write a request that the offline planner understands.

    A clause of a task that matches the whole `pattern`, in small or capital letters, is a call of the tool. The named
    groups of the pattern are the arguments of the call, read by their types: a number, a day such as `Friday`, a time
    such as `2 pm`, or a text; `it` is the number or text of an earlier clause. With `read` a function makes the calls
    instead.
    """

    spelling: str
    """How people write the request, e.g. `cancel booking NUMBER`."""
    pattern: str
    """A regular expression."""
    read: Read | None = None
    things: Things = field(default_factory=dict)
    """The things in the result of the call that is made of the groups; calls of a `read` function have their own."""
    example: str = ""
    """A whole task that uses this form, with the clauses that must come before it."""
    kinds: tuple[str, ...] = ()
    """The kinds of the calls; the request is about the last kind. Empty for only the tool that has the form."""

    @cached_property
    def whole(self) -> re.Pattern[str]:
        """The compiled pattern; a text that it matches completely is a clause of this form."""
        return re.compile(self.pattern, re.IGNORECASE | re.DOTALL)

    @cached_property
    def beginning(self) -> re.Pattern[str]:
        """The compiled pattern for a text that begins with a clause of this form; other clauses may follow."""
        return re.compile(rf"(?:{self.pattern})(?=\s*(?:[,;.?!\n]|$)|\s+(?:and|then)\b)", self.whole.flags)


def mistakes(name: str, forms: object, args: type[BaseModel]) -> Iterator[str]:
    """Yield a sentence for each mistake in `forms=` of the tool `name`; `args` is the model of the tool's arguments."""
    if not isinstance(forms, list | tuple):
        yield f"{name}: forms= is of type {type(forms).__name__}, not a list: write forms=[Form(...)]."
        return
    for form in forms:
        if isinstance(form, Form):
            yield from (f"{name}: forms= {wrong}" for wrong in _form_mistakes(form, args))
        else:
            shown = repr(form)[:80]
            yield f"{name}: forms= has {shown}, which is no Form: write Form(SPELLING, PATTERN), from replan.forms."


def _form_mistakes(form: Form, args: type[BaseModel]) -> Iterator[str]:
    """Yield the mistakes in one form, each as the end of a sentence that begins with the tool's name and `forms=`."""
    try:
        groups = set(form.whole.groupindex)
    except (re.error, TypeError) as error:
        yield f"has the pattern {form.pattern!r}, which is no regular expression ({error}): correct it."
        return
    if form.read is not None:
        if form.things:
            yield f"says things= of {form.spelling!r}, which has a function: give them to its PlannedCall."
        return
    schema = args.model_json_schema()
    names = schema.get("properties", {})
    for group in sorted(groups - names.keys()):
        remedy = "name the groups like the arguments, or give it a function"
        yield f"has {form.spelling!r} with a group {group!r}, which is no argument{nearest(group, names)}: {remedy}."
    for missing in [argument for argument in schema.get("required", ()) if argument not in groups]:
        yield f"has {form.spelling!r} without a group for the argument {missing!r}: add (?P<{missing}>...)."
