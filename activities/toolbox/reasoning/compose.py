"""The kind `compose` of a worker without a model: it lists the results one below the other."""

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, Field, JsonValue

from activities.errors import Refused
from activities.toolbox.declare.tool import tool
from workflows.json_values import canonical

MAX_WHAT = 2_000
MAX_RESULTS = 100_000  # characters of all results as JSON
INDENT = "  "


class Materials(BaseModel):
    """Which text to write, and the results to write it from."""

    what: str = Field(
        description="Which text is wanted: subject, reader, language, form, length", min_length=1, max_length=MAX_WHAT
    )
    results: JsonValue = Field(description="What the text is made of: references to results of other steps, or values")


class Composition(BaseModel):
    """The text."""

    text: str
    method: Literal["model", "list"]
    """`model`: a model wrote the text; `list`: the results are listed one below the other."""


@tool.pure
def compose(args: Materials) -> Composition:
    """Put the results of other steps one below the other as a text; a worker with a model writes what is asked for."""
    return Composition(text="\n".join(_lines(checked(args.results))), method="list")


def checked(results: JsonValue) -> JsonValue:
    """Return `results`. Raises Refused if there are no results, or if they are too long."""
    if results in (None, "", [], {}):
        raise Refused("There are no results to write from: refer to those of other steps.", code="invalid_input")
    size = len(canonical(results))
    if size > MAX_RESULTS:
        reason = f"The results have {size} characters, more than {MAX_RESULTS}: refer to the parts that matter."
        raise Refused(reason, code="invalid_input")
    return results


def _lines(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _entry(f"{name}:", item)
    elif isinstance(value, list):
        for item in value:
            yield from _entry("-", item)
    else:
        yield from (value if isinstance(value, str) else canonical(value)).splitlines()


def _entry(label: str, value: JsonValue) -> Iterator[str]:
    """Yield the lines of one item of a list or object; `label` is a dash, or the item's name and a colon."""
    inner = list(_lines(value))
    if isinstance(value, dict | list) or len(inner) > 1:
        yield label
        yield from (f"{INDENT}{line}" for line in inner)
    else:
        yield " ".join([label, *inner])
