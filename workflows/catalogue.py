"""The spec of a kind: what the workflow knows of a tool, keeps in history and decides by."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field


class Effect(StrEnum):
    """What a call may change, and so whether it may be repeated."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    """A second call changes nothing more (PUT, DELETE, an atomic file write)."""
    KEYED = "keyed"
    """The called system gets the idempotency key, and applies the effect once."""
    TRANSACTIONAL = "transactional"
    """The tool's writes commit in one transaction of its own datasource, or not at all."""
    UNKEYED = "unkeyed"
    """May not be repeated."""


SAFE = (Effect.IDEMPOTENT, Effect.KEYED, Effect.TRANSACTIONAL)
"""Effects that may be repeated when the outcome is unknown: a second call changes nothing, or the key prevents it."""
REFUSAL_MAY_FOLLOW_SUCCESS = (Effect.IDEMPOTENT, Effect.KEYED)
"""Effects whose rejection may follow an earlier attempt that was applied: "already cancelled", "no such file"."""


class Companion(BaseModel, frozen=True):
    """A kind that serves another one, with its arguments: `{field: path}` over a call's `args`, `result` and `key`."""

    kind: str
    args: dict[str, str] = Field(default_factory=dict)


class ToolSpec(BaseModel, frozen=True, serialize_by_alias=True, validate_by_name=True):
    """What a kind promises, as data; its schemas and description stay with the worker, `digest` covers them."""

    kind: str
    effect: Effect
    retry: Literal["standard", "patient", "once"] = "standard"
    timeout: float = Field(default=30.0, gt=0)
    """Seconds of one attempt."""
    observe: Companion | None = None
    reconcile: Companion | None = None
    """The read that finds out whether a call was applied; what it returns is the result of the call."""
    settle: float = Field(default=10.0, ge=0)
    """Seconds after the last attempt from which on a "not found" of `reconcile` is trusted."""
    undo: Companion | None = None
    fallback: str | None = None
    """The kind that replaces this one, with the same arguments, when its retries are used up."""
    ensure: str | None = None
    """A condition over `args` and `result`; a result that violates it is rejected."""
    untrusted: bool = False
    tokens: int = 0
    """Tokens of a model that one call may use; 0 for a kind that uses no model."""
    tokens_overhead: int | None = Field(default=None, alias="tokens_beside")
    """Tokens of `tokens` for everything except the arguments; None if the model also reads other content."""
    is_threaded: bool = False
    """Whether the tool is a plain function: neither a timeout nor a cancel can stop its thread."""
    digest: str = ""
    """Digest of the spec, with schemas and description."""

    @property
    def paths(self) -> frozenset[str]:
        """The paths of a call and its result that the companions use."""
        companions = filter(None, (self.observe, self.reconcile, self.undo))
        return frozenset(path for one in companions for path in one.args.values() if path != "key")


class Price(BaseModel, frozen=True):
    """What a model's tokens cost, in US dollars per million."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_from: int | None = None
    """Input tokens above which the whole request costs more; None where the price does not change."""
    long_input: float = 1.0
    """The factor on the prices of input, cache reads and cache writes above `long_from`."""
    long_output: float = 1.0


class Catalogue(BaseModel, frozen=True):
    """The kinds that a task may use, and its worker's settings; read once, by an activity, and so part of history."""

    specs: dict[str, ToolSpec]
    planner: str
    searchable: bool = True
    """Whether the namespace has our search attributes; to set an unknown one would fail the workflow task."""
    patience: float = Field(ge=0)
    """Seconds that a step waits for a worker that knows its kind."""
    store: str | None = None
    """The worker's store; workers with another store apply no effect of the task."""
    refused: str | None = None
    """Why this worker cannot run the task; None where it can."""
    converses: bool = False
    """Whether the planner keeps its conversation in the store, so that each request contains only what is new."""
    is_clean: bool = False
    """Whether the conversation that the task continues is known, and has no untrusted content."""
    price: Price | None = None
    """The highest price of the planner's tokens; None where that is unknown, or the planner is no model."""
    preamble: int = 0
    """Estimated tokens of the instructions and kinds that a model is told before the task."""
