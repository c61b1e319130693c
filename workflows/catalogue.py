"""What a kind promises: the part of a tool that the workflow keeps in history and decides by."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Effect(StrEnum):
    """What a call may change in the world, and so what a second call would do."""

    READ = "read"
    """Nothing to protect."""
    IDEMPOTENT = "idempotent"
    """Repeating is harmless (PUT, DELETE, an atomic file write)."""
    KEYED = "keyed"
    """The idempotency key is passed downstream, so a retry is safe."""
    TRANSACTIONAL = "transactional"
    """The tool's writes commit in one transaction of its own datasource, or not at all."""
    UNKEYED = "unkeyed"
    """May not be repeated."""


SAFE = (Effect.IDEMPOTENT, Effect.KEYED, Effect.TRANSACTIONAL)
"""Effects that may be repeated although they may have happened: they are harmless twice, or a key makes them one."""
ECHOES = (Effect.IDEMPOTENT, Effect.KEYED)
"""Effects whose refusal may be the echo of an earlier attempt that happened: "already cancelled", "no such file"."""


class Companion(BaseModel):
    """Another kind and how its arguments follow from a call: `{field: path}` over `args`, `result` and `key`."""

    model_config = ConfigDict(frozen=True)

    kind: str
    args: dict[str, str] = Field(default_factory=dict)


class ToolSpec(BaseModel):
    """A kind's promise as plain data; its schemas and description stay with the worker, known here by `digest`."""

    model_config = ConfigDict(frozen=True)

    kind: str
    effect: Effect
    retry: Literal["standard", "patient", "once"] = "standard"
    timeout: float = Field(default=30.0, gt=0)
    """Seconds of one attempt."""
    observe: Companion | None = None
    """The read that looks at the world again when this kind is refused."""
    reconcile: Companion | None = None
    """The read that finds out whether an effect happened that may have: what it finds is the result of the call."""
    settle: float = Field(default=10.0, ge=0)
    """Seconds after the end of the last attempt from which on `reconcile` is believed when it finds nothing."""
    undo: Companion | None = None
    """The kind that takes the effect of this one back."""
    fallback: str | None = None
    """The kind that takes over, with the same arguments, when the retries of this one are used up."""
    ensure: str | None = None
    """The condition over `args` and `result` that every result keeps."""
    untrusted: bool = False
    """Whether its results are text that anybody may have written."""
    tokens: int = 0
    """Tokens of a model that one call may use; 0 for a kind that asks none."""
    tokens_beside: int | None = None
    """Of these, all but those of the arguments; None where the model reads more than what the arguments hold."""
    is_threaded: bool = False
    """Whether the tool is a plain function: nothing can stop its thread, neither a timeout nor a cancel."""
    digest: str = ""
    """Digest of everything that the tool promises, schemas included."""

    @property
    def paths(self) -> frozenset[str]:
        """What the companions name of a call and its result."""
        companions = filter(None, (self.observe, self.reconcile, self.undo))
        return frozenset(path for one in companions for path in one.args.values() if path != "key")


class Price(BaseModel):
    """What a model's tokens cost, in US dollars for a million."""

    model_config = ConfigDict(frozen=True)

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_from: int | None = None
    """Tokens that a request may have at these prices; with more, all of it costs more."""
    long_input: float = 1.0
    """How many times as much input, cache reads and cache writes then cost."""
    long_output: float = 1.0


class Catalogue(BaseModel):
    """The kinds that a task may use, and what its worker said of itself; read once, by an activity, then history."""

    model_config = ConfigDict(frozen=True)

    specs: dict[str, ToolSpec]
    planner: str
    searchable: bool = True
    """Whether the namespace has our search attributes; setting an unknown one would hold up the workflow."""
    patience: float = Field(ge=0)
    """Seconds that a kind which no worker knows is waited for before a person is asked."""
    store: str | None = None
    """Which store the worker works with; a worker with another one carries out no effect of the task."""
    refused: str | None = None
    """Why this worker cannot take the task at all."""
    converses: bool = False
    """Whether the planner keeps the conversation in the store, so that it is told only what is new."""
    is_clean: bool = False
    """Whether the conversation that the task carries on is known, and nothing was read in it that anybody may have
    written."""
    price: Price | None = None
    """What the planner's tokens cost, at the most; None where that is not known, or they cost nothing."""
    preamble: int = 0
    """Tokens of what a model is told before the task, instructions and kinds; an estimate."""
