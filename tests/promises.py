"""Promises to users as data: how they are saved, and what of a change to them is incompatible.

A surface is `{owner: {member: promise}}`: an owner is a function, a class, a request or a command, a member one of its
parameters, fields or values. A promise may have these keys; all are JSON:

    takes     the types and values that a user may give
    gives     the types and values that a user may get
    default   in words, if a user may leave it out
    place     the position of a parameter that may be given without its name
    is        what is fixed: another value is another promise
    limits    of a value that a user gives, e.g. {"maximum": 100}

Types are names, and values stand in quotation marks (`'wait'`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Promise = Mapping[str, Any]
Surface = Mapping[str, Mapping[str, Promise]]

ANY = "Any"
_RETURNED = "str | DeclaredFault"
WIDER = {
    "int": "float",
    "integer": "number",
    f"Mapping[type[BaseException], {_RETURNED} | Callable[[Any], {_RETURNED}]]": f"Mapping[Any, {_RETURNED} |"
    f" Callable[[Any], {_RETURNED} | None]]",
}
"""A type that also takes the values of another one."""
LOWER, UPPER = ("minimum", "exclusiveMinimum", "minLength", "minItems"), ("maximum", "exclusiveMaximum")
LONGEST = ("maxLength", "maxItems")


def text(surface: Surface) -> str:
    """A surface as it is saved: one line for each member, so that a diff shows what changed."""
    owners = (
        f"{json.dumps(owner, ensure_ascii=False)}: {_members_text(surface[owner])}"
        for owner in sorted(surface, key=lambda owner: (owner.lower(), owner))
    )
    return "{\n" + ",\n".join(owners) + "\n}\n"


def _members_text(members: Mapping[str, Promise]) -> str:
    lines = (f"  {json.dumps(name)}: {json.dumps(members[name], ensure_ascii=False)}" for name in members)
    return "{\n" + ",\n".join(lines) + "\n}" if members else "{}"


def read(file: Path) -> Surface:
    """A surface that was saved; empty if none was."""
    found: Surface = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def save(file: Path, now: Surface, *, breaking: bool = False) -> list[str]:
    """Write a surface, unless that breaks a promise of the saved one; returns what is broken. `breaking` writes it."""
    found = list(broken(read(file), now))
    written = text(now)
    if (breaking or not found) and not (file.exists() and file.read_text(encoding="utf-8") == written):
        file.parent.mkdir(exist_ok=True)
        file.write_text(written, encoding="utf-8")
    return found


def broken(saved: Surface, now: Surface) -> Iterator[str]:
    """A sentence for each change that breaks what users have written for the saved surface."""
    for owner, members in saved.items():
        if owner not in now:
            yield f"`{owner}` was removed"
            continue
        for name, promise in members.items():
            if name not in now[owner]:
                yield f"`{name}` of `{owner}` was removed"
            else:
                yield from (f"`{name}` of `{owner}` {what}" for what in _broken(promise, now[owner][name]))
        for name in now[owner].keys() - members.keys():
            if "takes" in now[owner][name] and "default" not in now[owner][name]:
                yield f"`{name}` of `{owner}` is new and required: give it a default"


def added(saved: Surface, now: Surface) -> list[str]:
    owners = [f"`{owner}`" for owner in now if owner not in saved]
    return owners + [
        f"`{name}` of `{owner}`"
        for owner, members in now.items()
        if owner in saved
        for name in members
        if name not in saved[owner]
    ]


def _broken(saved: Promise, now: Promise) -> Iterator[str]:
    if "takes" in saved:
        takes = now.get("takes", [])
        lost = [kind for kind in saved["takes"] if not _is_covered(kind, takes)]
        if lost:
            yield f"no longer takes {', '.join(lost)}"
        if "default" in saved and "default" not in now:
            yield "is required, and could be left out"
    if "gives" in saved:
        yield from _unexpected(saved["gives"], now.get("gives", []))
    if "place" in saved and now.get("place") != saved["place"]:
        yield f"is no longer parameter number {saved['place']}"
    if now.get("is") != saved.get("is"):
        yield f"is {now.get('is')}, and was {saved.get('is')}"
    yield from _narrowed(saved.get("limits", {}), now.get("limits", {}))


def _unexpected(saved: list[str], now: list[str]) -> Iterator[str]:
    """Where a user who reads a value meets another one; a further value of a list of values is announced, no more."""
    more = [kind for kind in now if not (_is_value(kind) or _is_covered(kind, saved))]
    values = [kind for kind in saved if _is_value(kind) and not _is_covered(kind, now)]
    if not now:
        yield "no longer gives anything"
    elif more:
        yield f"may be {', '.join(more)}, which it never was"
    elif values:
        yield f"is never {', '.join(values)} any more"


def _is_value(kind: str) -> bool:
    return kind.startswith("'") or kind.lstrip("-").isdigit()


def _is_covered(kind: str, by: list[str]) -> bool:
    of_text = {"str", "string"} if _is_value(kind) else set[str]()
    return bool({kind, ANY, WIDER.get(kind, ANY), *of_text} & set(by))


def _narrowed(saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Where a value that a user could give is refused now."""
    for name, limit in now.items():
        was = saved.get(name)
        if name in LOWER:
            is_tighter = limit > (was if was is not None else float("-inf"))
        elif name in (*UPPER, *LONGEST):
            is_tighter = limit < (was if was is not None else float("inf"))
        else:
            is_tighter = limit != was
        if is_tighter:
            yield f"has {name} {limit}, and had {'none' if was is None else was}"
