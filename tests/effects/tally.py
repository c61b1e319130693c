"""What came of drawn sequences, of the floor and of the gateway."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Played(NamedTuple):
    """What came of a sequence."""

    seed: int
    violations: list[tuple[str, str, str]]
    excused: list[tuple[str, str, str]]
    """What would be a violation if nothing were excused."""
    counts: dict[str, int]
    seconds: float = 0.0


class Tally:
    """Counts what was played, and shows how far it is."""

    def __init__(self, total: int) -> None:
        """`total` sequences are expected."""
        self.total, self.done, self.seconds = total, 0, 0.0
        self.counts, self.violations, self.excused = Counter[str](), Counter[str](), Counter[str]()
        self.broken = list[Played]()
        self._turn = threading.Lock()

    def add(self, played: Played) -> None:
        """Count a sequence."""
        with self._turn:
            self.done += 1
            self.seconds += played.seconds
            self.counts.update(played.counts)
            self.excused.update(kind for kind, _, _ in played.excused)
            if played.violations:
                self.broken.append(played)
            self.violations.update(kind for kind, _, _ in played.violations)
            for violation in played.violations:
                print(f"\r\x1b[Kseed {played.seed}: {' '.join(violation)}", flush=True)
            if sys.stderr.isatty() or self.done % 500 == 0:
                print(f"\r{self.done}/{self.total}", end="", file=sys.stderr, flush=True)

    def lines(self) -> Iterator[str]:
        """What was found."""
        yield f"\n{self.done} sequences, {1000 * self.seconds / max(1, self.done):.0f} ms each"
        yield f"happened:   {_listed(self.counts)}"
        yield f"excused:    {_listed(self.excused) or 'nothing'}"
        yield f"violations: {_listed(self.violations) or 'none'}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
