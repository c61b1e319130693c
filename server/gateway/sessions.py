"""A session: the calls among which equal ones may be the same."""

import re
from dataclasses import dataclass
from enum import StrEnum

from client.sessions import prefix_of

MAX_SESSION = 64
SESSION_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_SESSION - 1}}}")
PATIENCE = 30.0
"""Seconds for which a call waits for a person before the agent is told so. Agents often wait a minute."""


class Doubt(StrEnum):
    """What is done with a call that may be a repetition, and nobody can know."""

    ASK = "ask"
    REPEAT = "repeat"
    REPLAY = "replay"


@dataclass(frozen=True)
class Session:
    """Beyond it no call is ever taken for another."""

    name: str
    doubt: Doubt = Doubt.ASK
    patience: float = PATIENCE

    @property
    def prefix(self) -> str:
        """What the ids of its tasks begin with."""
        return prefix_of(self.name)
