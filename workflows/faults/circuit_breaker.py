"""When a tool is left alone because its service is down, as the tool declares it; the worker keeps the states.

Read before each call of a tool, and after it.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class CircuitBreaker:
    """When a tool is left alone because its service is down, and when it is called again.

    The breaker opens after `failures` consecutive failures of at least `calls` different calls, and no call is made for
    `recovery` seconds. Then one trial call is made, by all workers together: after a failure it is open again, after a
    success the calls that wait follow, two at once, then four, then eight. It closes after `trials` successes, when no
    call waits any more.
    """

    failures: int = 3
    calls: int = 2
    recovery: float = 5.0
    trials: int = 2

    def __str__(self) -> str:
        """The fields that differ from their default values, such as `recovery=60`; empty if none does."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(
            f"{name}={value:g}" for name, value in values.items() if value != getattr(CircuitBreaker, name)
        )


STANDARD_BREAKER = CircuitBreaker()
