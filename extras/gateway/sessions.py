"""Sessions: only two calls of the same session can be a call and its repetition."""

import re
from dataclasses import dataclass
from enum import StrEnum

MAX_SESSION = 64
SESSION_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_SESSION - 1}}}")
PATIENCE = 30.0
"""Seconds that a call waits for a person before the agent gets an answer. Agents often wait a minute."""

LIST_WAIT = 25.0
"""Seconds that a list waits for tools that are still being started. Agents often wait 30 s or a minute."""


class DoubtPolicy(StrEnum):
    """What to do if nobody can know whether a call is a repetition: ask a person, make it, or repeat the answer."""

    ASK = "ask"
    REPEAT = "repeat"
    REPLAY = "replay"


@dataclass(frozen=True)
class Session:
    """A session: no call counts as a repetition of a call of another session."""

    name: str
    doubt: DoubtPolicy = DoubtPolicy.ASK
    patience: float = PATIENCE

    @property
    def prefix(self) -> str:
        """What the ids of the session's tasks begin with."""
        from client.sessions import prefix_of  # not at the top: it imports the client of Temporal

        return prefix_of(self.name)
