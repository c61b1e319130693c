"""Durations as people write them: `90s`, `5m`, `1h30m`.

Read where an option or a file names a time.
"""

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> float:
    """The seconds of a duration: `text` is a number of seconds, or has units, as in `90s`, `5m`, `1h30m` and `2d`.

    Raises:
        ValueError: the text is no duration; the message says what to write.
    """
    amount = r"(?:(\d+(?:\.\d+)?){})?"
    found = re.fullmatch("".join(amount.format(unit) for unit in UNITS), text.strip().lower())
    if found and any(found.groups()):
        return sum(float(count) * size for count, size in zip(found.groups(), UNITS.values(), strict=True) if count)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no duration: write seconds, or as in 90s, 5m, 1h30m or 2d") from None
