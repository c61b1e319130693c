"""The limits of a task, and its budget.

Made when a task begins; a part of the budget is reserved before each call of a tool or of the planner, and settled
after it.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from workflows.commands import Option
from workflows.faults import retries
from workflows.plans.catalogue import ToolSpec
from workflows.text import capitalised

# A date beyond the end of the calendar would fail the workflow task.
MAX_DEADLINE = 366 * 24 * 3600.0
"""The longest deadline of a task in seconds: a year."""
MAX_TASK_TEXT = 16_000
"""The most characters of the text that says what a task is to do."""
BYTES_PER_TOKEN = 3
"""Estimate for JSON and text in Latin letters, where models count three to four bytes per token."""


class Limits(BaseModel, frozen=True):
    """What a task may spend; None means no limit."""

    tool_calls: int = Field(default=100, ge=1)
    """How many attempts of tools the task may make. The reads of the current state before a replan count, too."""
    replans: int = Field(default=2, ge=0)
    """How many new plans may follow a rejection; `Task` says what a task without this number may do."""
    fruitless: int | None = Field(default=2, ge=1)
    """After this many consecutive replans that complete no step, the task is escalated; None for no such limit."""
    tokens: int | None = Field(default=500_000, ge=1)
    """Tokens of models, as their providers count them: input, output, cache reads and cache writes."""
    usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    deadline: float | None = Field(default=None, gt=0, le=MAX_DEADLINE)
    """Seconds from the start of the task after which it is ended; None without a deadline."""


class LimitRow(NamedTuple):
    """The words for a limit, the same on every screen."""

    unit: str
    """What is counted, in the singular."""
    example: str = ""
    """How much a person may add, as an example; empty if the limit cannot be extended."""
    used_up: str = "All {value} {unit}s are used up"
    """A clause for a limit of which nothing is left."""
    last_used: str = ""
    """The clause in place of `used_up` for a limit of 1; empty if `used_up` fits, too."""
    why: str = ""
    """Why a task ends at this limit; empty if the plan or the faults of the task show why."""
    remedy: str = "Give more with `{option}`."

    @property
    def option(self) -> Option:
        return Option(f"how many {self.unit}s more", self.example, "number")

    @property
    def title(self) -> str:
        return capitalised(f"{self.unit}s")

    def reached(self, value: float | None) -> str:
        """A clause which says that nothing is left of a limit of `value`; None counts as 0."""
        template = self.last_used if value == 1 and self.last_used else self.used_up
        return template.format(value=value or 0, unit=self.unit)


LAST_USED = "The one {unit} is used up"
TOO_LITTLE = "What is left of the {value} {unit}s is too little for the next request to a model"
RESERVED = "The budget of a call is reserved before it, and too little was left for the next one."
LIMITS: Mapping[str, LimitRow] = {
    "tool_calls": LimitRow(
        "tool call", "10", last_used=LAST_USED, why="The limit is {count}, and the next step needed another one."
    ),
    "replans": LimitRow("replan", "1", last_used=LAST_USED),
    "tokens": LimitRow("token", "20000", used_up=TOO_LITTLE, why=RESERVED),
    "usd": LimitRow("US dollar", "1.50", used_up=TOO_LITTLE, why=RESERVED),
    "deadline": LimitRow(
        "second",
        used_up="The deadline of {value:g} s passed before the task was done",
        why="A task ends at its deadline, whatever is running; finished steps stay.",
        remedy="Give more time with `{option}`.",
    ),
}
"""By the name of a limit: its field in Limits, which is also the code of a request or an ending about it, and gives the
name of its option."""


class Amounts(BaseModel, frozen=True):
    """How much is added to each limit that can be extended."""

    tool_calls: Annotated[int, LIMITS["tool_calls"].option] = Field(default=0, ge=0, le=1_000_000)
    replans: Annotated[int, LIMITS["replans"].option] = Field(default=0, ge=0, le=1_000_000)
    tokens: Annotated[int, LIMITS["tokens"].option] = Field(default=0, ge=0, le=10**12)
    usd: Annotated[float, LIMITS["usd"].option] = Field(default=0.0, ge=0, le=10**9, allow_inf_nan=False)

    @property
    def amounts(self) -> dict[str, int | float]:
        """The amounts that are not zero."""
        return {name: amount for name in Amounts.model_fields if (amount := getattr(self, name))}


class Spent(BaseModel):
    tool_calls: int = 0
    model_calls: int = 0
    tokens: int = 0
    usd: float | None = Field(default=None, allow_inf_nan=False)
    """US dollars; None while no model was called, and after a call whose price is unknown."""
    seconds: float = 0.0
    estimated: int = 0
    """Calls of models whose tokens are estimated: the server counted none, or the reply was lost."""
    unpriced: int = 0
    """How many calls of models had an unknown price."""

    def pay(self, calls: int, tokens: int, usd: float | None, estimated: int = 0) -> None:
        """Add what `calls` model calls used; after a call with an unknown price (None), the sum of `usd` is unknown."""
        unpriced = calls if usd is None else 0
        usd = usd if calls else None
        self.add(Spent(model_calls=calls, tokens=tokens, usd=usd, estimated=estimated, unpriced=unpriced))

    def add(self, more: "Spent") -> None:
        """Add what was spent in addition, except for its seconds."""
        self.tool_calls += more.tool_calls
        self.model_calls += more.model_calls
        self.tokens += more.tokens
        self.estimated += more.estimated
        self.unpriced += more.unpriced
        if self.unpriced:
            self.usd = None
        elif more.usd is not None:
            self.usd = _rounded_usd((self.usd or 0.0) + more.usd)


class TaskBudget(BaseModel):
    """What a task has spent and reserved."""

    limits: Limits = Limits()
    spent: Spent = Field(default_factory=Spent)
    retries: dict[str, int] = Field(default_factory=dict)
    """How many retries the task has used for each kind of tool."""
    reserved: int = Field(default=0, exclude=True)
    """Attempts reserved for running activities. What is reserved is no entry of the journal, and in no snapshot."""
    promised: dict[str, int] = Field(default_factory=dict, exclude=True)
    """How many retries are reserved for running activities, for each kind of tool."""
    held_tokens: int = Field(default=0, exclude=True)
    """Tokens reserved for running activities."""
    held_usd: float = Field(default=0.0, allow_inf_nan=False, exclude=True)

    @property
    def free(self) -> int:
        """Tool calls that are neither spent nor reserved."""
        return self.limits.tool_calls - self.spent.tool_calls - self.reserved

    @property
    def free_tokens(self) -> int | None:
        """Tokens that are neither spent nor reserved; None without a limit."""
        limit = self.limits.tokens
        return None if limit is None else limit - self.spent.tokens - self.held_tokens

    @property
    def free_usd(self) -> float | None:
        """US dollars that are neither spent nor reserved; None without a limit, 0 once a call had an unknown price."""
        limit, spent = self.limits.usd, self.spent.usd or 0.0
        if limit is None:
            return None
        return 0.0 if self.spent.unpriced else _rounded_usd(limit - spent - self.held_usd)

    def attempts(self, spec: ToolSpec, used: int = 0) -> int:
        """How many more attempts a step may make after `used` attempts, as if running steps had reserved no retries."""
        return retries.attempts(spec, retries.RETRIES_PER_KIND - self.retries.get(spec.kind, 0), used)

    def is_open(self, spec: ToolSpec, used: int = 0) -> bool:
        """Whether a step after `used` attempts need not wait: an attempt is free, or no running step can free one."""
        calls = self.free > 0 or self.reserved == 0
        return calls and (self._unreserved_attempts(spec, used) > 0 or not self.promised.get(spec.kind))

    def reserve(self, spec: ToolSpec, used: int = 0, at_most: int | None = None) -> int:
        """Reserve at most `at_most` attempts (None for no bound) for a step after `used` attempts; return how many."""
        # At least one: after a lost attempt `decide` repeats a call even if no retry is left.
        granted = min(max(1, self._unreserved_attempts(spec, used)), max(0, self.free))
        granted = granted if at_most is None else min(granted, at_most)
        self.reserved += granted
        _add(self.promised, spec.kind, retries_of(granted, used))
        return granted

    def release(self, spec: ToolSpec, granted: int, used: int = 0) -> None:
        """Give back the `granted` attempts of an execution. Its step had `used` attempts before."""
        self.reserved -= granted
        _add(self.promised, spec.kind, -retries_of(granted, used))

    def spend(self, kind: str, used: Spent, retries: int | None) -> None:
        """Add what an execution of `kind` used to what is spent; of a tool, `retries` of its attempts were retries."""
        self.spent.add(used)
        if retries is not None:
            _add(self.retries, kind, retries)

    def hold(self, tokens: int, usd: float) -> None:
        """Reserve tokens and US dollars for models; negative amounts give them back."""
        self.held_tokens += tokens
        self.held_usd = _rounded_usd(self.held_usd + usd)

    def allow(self, calls: int) -> None:
        """Raise the limit of tool calls, if necessary, so that `calls` more can be made."""
        more = self.spent.tool_calls + self.reserved + calls
        self.limits = self.limits.model_copy(update={"tool_calls": max(self.limits.tool_calls, more)})

    def _unreserved_attempts(self, spec: ToolSpec, used: int) -> int:
        gone = self.retries.get(spec.kind, 0) + self.promised.get(spec.kind, 0)
        return retries.attempts(spec, retries.RETRIES_PER_KIND - gone, used)


def _rounded_usd(usd: float) -> float:
    # No price is so exact, and sums of floats have small errors.
    return round(usd, 9)


def _add(account: dict[str, int], kind: str, number: int) -> None:
    account[kind] = account.get(kind, 0) + number


def retries_of(attempts: int, used: int) -> int:
    """How many of these attempts are retries, after `used` attempts: the first attempt of a step is none."""
    return attempts if used else max(0, attempts - 1)
