"""Finds names that are spelled similarly to an unknown name."""

import difflib
import unicodedata
from collections import defaultdict
from typing import Any

from sqlalchemy import Select

from replan import Transaction

MAX_NEAR, MAX_COMPARED = 3, 1000  # maximum number of suggestions, and of rows to compare
CUTOFF = 0.6  # two spellings are similar from this ratio of difflib on (0 to 1)


def folded(text: str) -> str:
    # Each character alone: Python needs quadratic time to normalise many marks in a row.
    letters = (letter for char in text.casefold() for letter in unicodedata.normalize("NFKD", char))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


async def near(text: str, known: Select[Any, Any], tx: Transaction) -> dict[str, str]:
    """Find the rows of `known` that are spelled most like `text`; returns the words of each row by its key.

    The key of a row, all its words, and each single word are compared with `text`.
    """
    named = {row[0]: row[1] for row in await tx.execute(known.limit(MAX_COMPARED))}
    keys = defaultdict[str, list[str]](list)
    for key, words in named.items():
        for spelling in dict.fromkeys((folded(key), folded(words), *folded(words).split())):
            keys[spelling].append(key)
    spellings = difflib.get_close_matches(folded(text), keys, n=MAX_NEAR, cutoff=CUTOFF)
    found = dict.fromkeys(key for spelling in spellings for key in keys[spelling])
    return {key: named[key] for key in list(found)[:MAX_NEAR]}
