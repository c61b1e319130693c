"""What a worker was told: command line first, then the environment, then defaults."""

import fcntl
from dataclasses import dataclass
from pathlib import Path

DEFAULT_QUEUE = "replan"
DEFAULT_STATE = Path(".replan")
LOCK = "temporal.lock"
"""Held by a development server on the database beside it."""


class BadSetting(ValueError):
    """A setting cannot be used; the message names the remedy."""


@dataclass(frozen=True)
class Settings:
    """Where a worker keeps and finds things."""

    state: Path
    """The folder that holds the embedded store and the development server's database."""
    store: str | None
    """The URL of the store; None for SQLite in the state folder."""
    documents: Path | None
    queue: str

    def prepare(self, *, fresh: bool) -> None:
        """Make the state folder, emptied of store and server database when `fresh`.

        Raises:
            BadSetting: a folder does not exist or cannot be made.
        """
        if self.documents is not None and not self.documents.is_dir():
            raise BadSetting(f"There is no folder {str(self.documents)!r}: give --documents one that exists.")
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            if fresh:
                self._empty()
        except OSError as error:
            raise BadSetting(
                f"The state folder {str(self.state)!r} cannot be used ({error.strerror}): choose another with --state."
            ) from error

    def _empty(self) -> None:
        """Delete store and server database, unless a server still holds the lock on them."""
        with (self.state / LOCK).open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadSetting(
                    f"A server still runs on {str(self.state)!r}: stop its worker before --fresh."
                ) from None
            for old in [*self.state.glob("store.db*"), *self.state.glob("temporal.db*")]:
                old.unlink()
