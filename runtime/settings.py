"""What a worker was told: command line first, then the environment, then defaults."""

import fcntl
from collections.abc import Sequence
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
    """The root of the folders that tasks may search."""
    queue: str
    dev: bool = False
    """Whether to run a server and a demo world here."""
    fresh: bool = False
    """Whether the demo world begins empty."""
    breaks: Sequence[str] = ()
    """What to break on purpose."""
    allow_hosts: Sequence[str] = ()
    """Private hosts and networks that pages may be fetched from."""
    workspace: Path | None = None
    """The root below which each task has a folder to write in."""
    payloads: str | None = None
    """Where large payloads lie, as s3://BUCKET; None for the store."""
    allow_requests: Sequence[str] = ()
    """Hosts to which requests may be sent."""
    http_headers: Sequence[str] = ()
    """What is said to them besides, as HOST=NAME:VARIABLE."""

    @property
    def demo(self) -> bool:
        """Whether there is a demo world: always in the embedded store, never in one that somebody named."""
        return self.store is None

    def prepare(self) -> None:
        """Make the state folder, emptied of store and server database when `fresh`.

        Raises:
            BadSetting: a folder does not exist or cannot be made, or an option needs `--dev`.
        """
        if (self.fresh or self.breaks) and not self.dev:
            raise BadSetting("--fresh and --break are for a demo world, so they need --dev.")
        if self.documents is not None and not self.documents.is_dir():
            raise BadSetting(f"There is no folder {str(self.documents)!r}: give --documents one that exists.")
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            if self.workspace is not None:
                self.workspace.mkdir(parents=True, exist_ok=True)
            if self.fresh:
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
