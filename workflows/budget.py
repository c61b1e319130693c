"""What a task may spend, and the account of it: reserved before a call is scheduled, settled after."""

from pydantic import BaseModel, ConfigDict, Field

from workflows import routing
from workflows.catalogue import ToolSpec

MAX_DEADLINE = 366 * 24 * 3600.0
"""Seconds: a year; a date beyond the calendar's end would hold up the workflow."""


class Limits(BaseModel):
    """What a task may spend; None means no limit."""

    model_config = ConfigDict(frozen=True)

    tool_calls: int = Field(default=100, ge=1)
    """Attempts of tools, observations included."""
    replans: int = Field(default=2, ge=0)
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of models, as the providers count them."""
    usd: float | None = Field(default=None, gt=0)
    """US dollars that models may cost."""
    deadline: float | None = Field(default=None, gt=0, le=MAX_DEADLINE)
    """Seconds from the task's start."""


class Spent(BaseModel):
    """What a task has spent."""

    tool_calls: int = 0
    model_calls: int = 0
    tokens: int = 0
    usd: float | None = None
    """US dollars; None while no priced model was called, and as soon as one without a known price was."""
    unpriced: int = 0
    """Calls of models whose price is not known."""
    seconds: float = 0.0


class Budget(BaseModel):
    """The account of one task."""

    limits: Limits = Limits()
    spent: Spent = Field(default_factory=Spent)
    reserved: int = 0
    """Attempts that are scheduled and not settled yet."""
    retries: dict[str, int] = Field(default_factory=dict)
    """Retries used, by kind."""
    promised: dict[str, int] = Field(default_factory=dict)
    """Retries that are scheduled and not settled yet, by kind."""

    @property
    def free(self) -> int:
        """Tool calls that nobody has spent or reserved."""
        return self.limits.tool_calls - self.spent.tool_calls - self.reserved

    def attempts(self, spec: ToolSpec, used: int = 0) -> int:
        """Attempts that a step of `spec` may still have after `used` ones, as soon as its siblings settle."""
        return routing.attempts(spec, routing.RETRIES_PER_KIND - self.retries.get(spec.kind, 0), used)

    def is_open(self, spec: ToolSpec, used: int = 0) -> bool:
        """Whether a reservation would get something now, or nobody is left who could give something back."""
        calls = self.free > 0 or self.reserved == 0
        return calls and (self._unpromised(spec, used) > 0 or not self.promised.get(spec.kind))

    def reserve(self, spec: ToolSpec, used: int = 0) -> int:
        """Set aside the attempts of one scheduling, at least one; 0 means that the tool calls are used up."""
        granted = min(max(1, self._unpromised(spec, used)), max(0, self.free))
        self.reserved += granted
        _add(self.promised, spec.kind, _retries(granted, used))
        return granted

    def settle(self, spec: ToolSpec, granted: int, taken: int, used: int = 0) -> None:
        """Give back what a scheduling was granted and did not take; `taken` attempts stay spent."""
        self.reserved -= granted
        self.spent.tool_calls += taken
        _add(self.promised, spec.kind, -_retries(granted, used))
        _add(self.retries, spec.kind, _retries(taken, used))

    def allow(self, calls: int) -> None:
        """Let so many tool calls more be made, whatever was left."""
        more = self.spent.tool_calls + self.reserved + calls
        self.limits = self.limits.model_copy(update={"tool_calls": max(self.limits.tool_calls, more)})

    def _unpromised(self, spec: ToolSpec, used: int) -> int:
        gone = self.retries.get(spec.kind, 0) + self.promised.get(spec.kind, 0)
        return routing.attempts(spec, routing.RETRIES_PER_KIND - gone, used)


def _add(account: dict[str, int], kind: str, number: int) -> None:
    account[kind] = account.get(kind, 0) + number


def _retries(attempts: int, used: int) -> int:
    """Of `attempts` after `used` earlier ones, those that are retries: all but a step's very first attempt."""
    return attempts if used else max(0, attempts - 1)
