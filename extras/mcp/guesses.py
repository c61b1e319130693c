"""Guesses by the names of a server's tools which of them read: for a person to check, nothing follows from them."""

import glob
import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

READS = re.compile(
    "check|count|describe|explain|fetch|find|get|head|inspect|list|look|lookup|preview|query|read|retrieve|search|show|stat"
    "|status|validate|view"
)
"""The first word of a name that looks like a read."""
EFFECTS = re.compile(
    "add|append|apply|approve|archive|assign|book|buy|cancel|charge|clear|click|close|commit|copy|create|delete|deploy"
    "|disable|drop|edit|enable|execute|insert|install|invite|kill|merge|modify|move|open|pay|post|publish|push|put|refund"
    "|reject|remove|rename|replace|reset|restart|revoke|run|save|schedule|send|set|start|stop|submit|transfer|trigger"
    "|update|upload|upsert|write"
)
"""The first word of a name that looks like an effect."""
_WORD = re.compile(r"[A-Z]*[a-z0-9]+|[A-Z]+")


class Guess(StrEnum):
    """What a tool's name looks like."""

    READ = "read"
    EFFECT = "effect"
    NEITHER = "neither"


def guessed(names: Sequence[str]) -> dict[str, Guess]:
    """What the name of each tool of a server looks like."""
    common = _common_parts(names)
    return {name: _guess(_parts(name)[common:]) for name in names}


def _guess(parts: Sequence[str]) -> Guess:
    if not parts or {"or", "and"} & {*parts}:  # get_or_create
        return Guess.NEITHER
    if READS.fullmatch(parts[0]):
        return Guess.READ
    return Guess.EFFECT if EFFECTS.fullmatch(parts[0]) else Guess.NEITHER


def patterns(chosen: Sequence[str], others: Collection[str]) -> list[str]:
    """Patterns of a tools file's `reads` that fit all names in `chosen`, and none of the `others` of the server."""
    common = _common_parts([*chosen, *others])
    wide = {name: _pattern(name, common) for name in chosen}
    right = {
        pattern
        for pattern in wide.values()
        if sum(fnmatchcase(name, pattern) for name in chosen) > 1
        and not any(fnmatchcase(name, pattern) for name in others)
    }
    return [*dict.fromkeys(wide[name] if wide[name] in right else glob.escape(name) for name in chosen)]


def _pattern(name: str, common: int) -> str:
    """The pattern of the names that begin as this one does, up to the word that says what it does."""
    found = [*_WORD.finditer(name)][common : common + 1]
    end = found[0].end() if found else len(name)
    between = re.match(r"[^A-Za-z0-9]+", name[end:])
    return glob.escape(name[: end + between.end()]) + "*" if between else f"{glob.escape(name[:end])}[A-Z]*"


def _parts(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _common_parts(names: Sequence[str]) -> int:
    """How many words begin each name and say nothing, such as `git` of `git_log` and `git_add`."""
    if len(names) < 2:
        return 0
    firsts = [*zip(*map(_parts, names), strict=False)]
    is_common = [len({*parts}) == 1 and _guess(parts[:1]) is Guess.NEITHER for parts in firsts]
    return [*is_common, False].index(False)
