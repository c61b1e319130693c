"""How long something was to be done, and no worker took it."""

from console.history import History

SHORTEST = 2.0
"""Seconds; a worker that is there takes what it is given sooner."""


def seconds(history: History) -> float:
    """The seconds of all longer gaps; those that overlap count once."""
    total, until = 0.0, None
    for begin, end in sorted(history.gaps):
        if (end - begin).total_seconds() < SHORTEST:
            continue
        begin = max(begin, until) if until else begin
        total += max(0.0, (end - begin).total_seconds())
        until = max(until, end) if until else end
    return total
