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
    usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
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
    seconds: float = 0.0
    unpriced: int = 0
    """Calls of models whose price is not known."""


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
    held_tokens: int = 0
    """Tokens that are reserved and not settled yet."""
    held_usd: float = 0.0

    @property
    def free(self) -> int:
        """Tool calls that nobody has spent or reserved."""
        return self.limits.tool_calls - self.spent.tool_calls - self.reserved

    @property
    def free_tokens(self) -> int | None:
        """Tokens that nobody has spent or reserved; None without a limit."""
        limit = self.limits.tokens
        return None if limit is None else limit - self.spent.tokens - self.held_tokens

    @property
    def free_usd(self) -> float | None:
        """US dollars that nobody has spent or reserved; None without a limit, 0 once a price was unknown."""
        limit, spent = self.limits.usd, self.spent.usd or 0.0
        if limit is None:
            return None
        return 0.0 if self.spent.unpriced else _money(limit - spent - self.held_usd)

    def attempts(self, spec: ToolSpec, used: int = 0) -> int:
        """Attempts that a step of `spec` may still have after `used` ones, as soon as its siblings settle."""
        return routing.attempts(spec, routing.RETRIES_PER_KIND - self.retries.get(spec.kind, 0), used)

    def is_open(self, spec: ToolSpec, used: int = 0) -> bool:
        """Whether a reservation would get something now, or nobody is left who could give something back."""
        calls = self.free > 0 or self.reserved == 0
        return calls and (self._unpromised(spec, used) > 0 or not self.promised.get(spec.kind))

    def reserve(self, spec: ToolSpec, used: int = 0, at_most: int | None = None) -> int:
        """Set aside the attempts of one scheduling, at least one; 0 means that the tool calls are used up.

        With `at_most` never more than that, which may be none.
        """
        granted = min(max(1, self._unpromised(spec, used)), max(0, self.free))
        granted = granted if at_most is None else min(granted, at_most)
        self.reserved += granted
        _add(self.promised, spec.kind, _retries(granted, used))
        return granted

    def settle(self, spec: ToolSpec, granted: int, taken: int, used: int = 0) -> None:
        """Give back what a scheduling was granted and did not take; `taken` attempts stay spent."""
        self.reserved -= granted
        self.spent.tool_calls += taken
        _add(self.promised, spec.kind, -_retries(granted, used))
        _add(self.retries, spec.kind, _retries(taken, used))

    def hold(self, tokens: int, usd: float) -> None:
        """Set aside what models may use; less than nothing gives it back."""
        self.held_tokens += tokens
        self.held_usd = _money(self.held_usd + usd)

    def pay(self, calls: int, tokens: int, usd: float | None) -> None:
        """Count what so many calls of models used; without a known price nobody knows any more what all cost."""
        spent = self.spent
        spent.model_calls += calls
        spent.tokens += tokens
        if calls and usd is None:
            spent.unpriced += calls
        if spent.unpriced:
            spent.usd = None
        elif usd is not None and calls:
            spent.usd = _money((spent.usd or 0.0) + usd)

    def allow(self, calls: int) -> None:
        """Let so many tool calls more be made, whatever was left."""
        more = self.spent.tool_calls + self.reserved + calls
        self.limits = self.limits.model_copy(update={"tool_calls": max(self.limits.tool_calls, more)})

    def _unpromised(self, spec: ToolSpec, used: int) -> int:
        gone = self.retries.get(spec.kind, 0) + self.promised.get(spec.kind, 0)
        return routing.attempts(spec, routing.RETRIES_PER_KIND - gone, used)


def _money(usd: float) -> float:
    """Without what adding and taking away leaves behind the last digit that any price has."""
    return round(usd, 9)


def _add(account: dict[str, int], kind: str, number: int) -> None:
    account[kind] = account.get(kind, 0) + number


def _retries(attempts: int, used: int) -> int:
    """Of `attempts` after `used` earlier ones, those that are retries: all but a step's very first attempt."""
    return attempts if used else max(0, attempts - 1)
