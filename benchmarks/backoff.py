"""The backoff that the bare side uses: Replan's own, drawn so that the benchmark can say afterwards what it was."""

import random
from collections.abc import Iterable

from workflows import routing


def seconds(task: str, attempt: int) -> float:
    """Seconds before the attempt after `attempt` of a task: full jitter, always the same for the same task."""
    drawn = random.Random(f"{task}/{attempt}").random()  # noqa: S311 - jitter, no secret
    return routing.backoff("standard", attempt, drawn)


def total(task: str, attempts: Iterable[int]) -> float:
    """Seconds that a task waited after these attempts."""
    return sum(seconds(task, attempt) for attempt in attempts)
