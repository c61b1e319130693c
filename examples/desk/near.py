"""Names that are spelled like an unknown one."""

import difflib
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select

from replan import Transaction

MAX_NEAR, MAX_COMPARED = 3, 1000  # maximum number of suggestions, and of rows to compare
CUTOFF = 0.6  # the ratio of difflib, from 0 to 1, from which two spellings count as similar


def folded(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def nearest(asked: str, named: Mapping[str, str]) -> dict[str, str]:
    """The entries of `named` (key to words) whose key, words, or one word is spelled most like `asked`."""
    keys = defaultdict[str, list[str]](list)
    for key, words in named.items():
        for spelling in dict.fromkeys((folded(key), folded(words), *folded(words).split())):
            keys[spelling].append(key)
    spellings = difflib.get_close_matches(folded(asked), keys, n=MAX_NEAR, cutoff=CUTOFF)
    found = dict.fromkeys(key for spelling in spellings for key in keys[spelling])
    return {key: named[key] for key in list(found)[:MAX_NEAR]}


async def near(asked: str, known: Select[Any, Any], tx: Transaction) -> dict[str, str]:
    """The `nearest` of the rows that `known` selects; each row is a key and its words."""
    rows = (await tx.execute(known.limit(MAX_COMPARED))).all()
    return nearest(asked, {row[0]: row[1] for row in rows})
