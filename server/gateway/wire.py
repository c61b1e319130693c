"""What an agent's thin process and the daemon send each other: JSON, one object a line, over a Unix socket."""

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from server.gateway.bridge import FORMAT, MAX_SOCKET
from server.gateway.sessions import LIST_WAIT, PATIENCE, SESSION_NAME, Doubt

JOURNAL, LOG = "gateway.db", "gateway.log"


class Hello(BaseModel):
    """The first line of an agent's process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    """The version of Replan: a daemon serves only agents of its own version."""
    process: str
    """Unique for the agent's process, which keeps this id when it connects again."""
    session: str = Field(pattern=f"^{SESSION_NAME.pattern}$")
    doubt: Doubt = Doubt.ASK
    patience: float = Field(default=PATIENCE, ge=0)
    list_wait: float = Field(default=LIST_WAIT, ge=0)
    timeout: float | None = Field(default=None, gt=0)
    """Seconds that a call of the command's server may take; None for the default."""
    durable_reads: bool = False
    attended: bool = False
    """Whether the client may ask its person what the gateway would ask on the page."""
    tools: tuple[str, ...] = ()
    """Tools files and Python files with tools, as absolute paths, or modules."""
    command: tuple[str, ...] = ()
    """The command of a server, in place of a tools file."""
    cwd: str = "."
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    """For a daemon: a holder has the agent's environment itself."""
    format: int = FORMAT
    """The number of the format of the lines that follow."""
    is_again: bool = False
    """Whether the process was connected to another holder before."""


class FromAgent(BaseModel):
    """A later line of an agent's process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: dict[str, Any] | None = None
    """A message of JSON-RPC as the agent wrote it."""
    resent: bool = False
    """Whether the message is sent again, after the daemon ended without an answer to it."""
    is_replayed: bool = False
    """Whether the message only restores the state of the old daemon in a new daemon, so that nobody gets the answer."""
    is_leaving: bool = False
    """Whether the agent has closed its end: nobody waits for the answers that are still to come."""
    failed: int | None = None
    """The number of a message that could not be written to the agent whole."""


class ToAgent(BaseModel):
    """A line of the daemon."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: dict[str, Any] | None = None
    number: int | None = None
    """The number of the message, if the agent's process must report (`failed`) that the message cannot be written."""
    refused: str | None = None
    """Why the daemon does not serve this process."""


def socket_path(state: Path, tools: str = "") -> Path:
    """The socket of a state folder's daemon, or of the worker of the tool set `tools`.

    It is in the state folder, or in a private folder if the path is too long.

    Raises:
        OSError: others can use the private folder.
    """
    path = state.resolve() / (f"gateway-{tools}.sock" if tools else "gateway.sock")
    if len(os.fsencode(path)) <= MAX_SOCKET:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or Path(tempfile.gettempdir()) / f"replan-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise OSError(f"{folder} can be used by others: set XDG_RUNTIME_DIR, or choose a shorter --state")
    return folder / f"replan-{name}.sock"


async def read_line(reader: asyncio.StreamReader) -> Any:
    """The next line as JSON; None at the end. Raises ValueError if the line is no JSON, or too long."""
    line = await reader.readline()
    return from_json(line) if line.endswith(b"\n") else None


def line_of(model: BaseModel) -> bytes:
    return to_json(model.model_dump(mode="json", exclude_defaults=True)) + b"\n"
