"""What an agent's process says of itself to the holder of its tools."""

from pydantic import BaseModel, ConfigDict, Field

from extras.gateway.bridge import FORMAT
from extras.gateway.sessions import LIST_WAIT, PATIENCE, SESSION_NAME, DoubtPolicy


class TaskServer(BaseModel):
    """The Temporal server, and the task queue, whose workers make the calls; None chooses as for every command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = None
    namespace: str | None = None
    profile: str | None = None
    queue: str
    page: str | None = None
    """The address of the page on which people answer."""


class Hello(BaseModel):
    """The first line of an agent's process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    """The version of Replan: a holder serves only agents of its own version."""
    process: str
    """Unique for the agent's process, which keeps this id when it connects again."""
    session: str = Field(pattern=f"^{SESSION_NAME.pattern}$")
    doubt: DoubtPolicy = DoubtPolicy.ASK
    patience: float = Field(default=PATIENCE, ge=0)
    list_wait: float = Field(default=LIST_WAIT, ge=0)
    timeout: float | None = Field(default=None, gt=0)
    """Seconds that a call of the command's server may take; None for the default."""
    attended: bool = False
    """Whether the client may ask its person what the gateway would ask on the page."""
    tools: tuple[str, ...] = ()
    """Tools files and Python files with tools, as absolute paths, or modules."""
    command: tuple[str, ...] = ()
    """The command of a server, in place of a tools file."""
    cwd: str = "."
    tasks: TaskServer | None = None
    """Where calls with an effect are tasks; None if the holder makes them."""
    format: int = FORMAT
    """The number of the format of the lines that follow."""
    is_again: bool = False
    """Whether the process was connected to another holder before."""
