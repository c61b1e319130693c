"""The contract of a task: which effects it may have once it has read untrusted content, and with which arguments.

Made when a task begins, from what the user wrote; plans add to it until the task reads untrusted content. Such content
may contain instructions, so a call that is planned later may follow them. `workflows/planning/trust.py` compares such a
call with the contract.
"""

from collections.abc import Sequence
from operator import not_

from pydantic import BaseModel, Field, JsonValue, model_validator

from workflows.marks import Kept, Named, Paths, Refers
from workflows.plans.references import label
from workflows.sparse import Sparse
from workflows.text import few

MAX_EFFECTS = 200
"""How many effects a contract keeps; the oldest are dropped, and then calls with these effects are outside of it."""
MAX_SHOWN = 10
"""How many effects a sentence about a contract names."""
MAX_VALUES, MAX_ARGUMENTS, MAX_COUNT = 100, 50, 1_000
"""The most values of one argument, the most arguments of one effect, and the most calls that may have it."""


OF_TOOL = "tool:"
"""The beginning of `Origin.source` for a description that no person has read; the kind of the tool follows."""


class Origin(Sparse, frozen=True):
    """A value in the arguments of a proposed step that has no trusted source: a literal, or a computed result.

    Trusted sources are what the user wrote, and results of tools that return no untrusted content. What a pure tool
    computed is none if the planner chose the computation after the task had read untrusted content.
    """

    step: Kept[str]
    at: Paths[str]
    """The path of the value in the step's arguments, such as `receiver` or `items.0.sku`."""
    is_key: bool = False
    """Whether the literal is the key of an object, and not the value with this path."""
    source: Kept[str] = ""
    """The step whose untrusted result shows the value, or `input` or `conversation`, or OF_TOOL with the kind of a tool
    whose description shows it; empty if nothing shows it."""
    computed: str = ""
    """If `source` is the call of a pure tool, that call in words, such as `add from a 100, b 200`; else empty."""
    line: int = 0
    """The line of the untrusted text, from 1; 0 if unknown."""
    quote: str = ""
    """The sentence of the untrusted text that contains the value."""
    unusual: str = ""
    """What is unusual about the value, such as "looks like shop.example, but is written with other letters"."""


def description_text(kind: str) -> str:
    """The description of a foreign server's tool, as people name it."""
    server, _, tool = kind.partition(".")
    return f"the description of {tool} of server {server}" if tool else f"the description of {kind}"


class Term(Sparse, frozen=True, extra="forbid"):
    """What one argument of an effect may be; without any field, each value that has a trusted source."""

    values: Refers[tuple[JsonValue, ...]] = Field(default=(), max_length=MAX_VALUES)
    """The values to choose from; a value may be a reference to a result."""
    at_least: float | None = Field(default=None, allow_inf_nan=False)
    at_most: float | None = Field(default=None, allow_inf_nan=False)
    """Bounds for a number. Without `at_least` the lower bound is 0, or `at_most` if that is below 0; so a negative
    `at_most` alone allows only that value."""
    slot: Kept[str] = Field(default="", pattern=r"^([A-Za-z][\w-]*(\..+)?)?$", max_length=200)
    """A kind of tool and a path into its result, such as `read_invoice.iban`: this value may be the argument although
    the result is untrusted content."""

    @model_validator(mode="after")
    def _one_form(self) -> "Term":
        forms = [bool(self.values), self.at_least is not None or self.at_most is not None, bool(self.slot)]
        if sum(forms) > 1:
            raise ValueError("values, bounds and a slot exclude each other: give one of them")
        return self

    def bounds(self, value: JsonValue) -> bool:
        """Whether `value` is a number within the bounds."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        lowest = min(0.0, self.at_most or 0.0) if self.at_least is None else self.at_least
        return lowest <= value and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        if self.slot:
            return f"the {self.slot.partition('.')[2] or 'result'} of {self.slot.partition('.')[0]}"
        if self.values:
            return " or ".join(map(label, self.values))
        bounds = [("at least", self.at_least), ("at most", self.at_most)]
        return (
            " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None) or "with a trusted source"
        )


class AllowedEffect(Sparse, extra="forbid"):
    """One effect of a contract: calls of a kind with these arguments."""

    kind: Kept[str] = Field(min_length=1, max_length=200)
    args: Named[dict[str, Term]] = Field(default_factory=dict, max_length=MAX_ARGUMENTS)
    """What each argument may be, by name; the value of any other argument needs a trusted source."""
    count: int = Field(default=1, ge=1, le=MAX_COUNT)
    """How many calls may have the effect."""
    by_user: bool = False
    """Whether the user wrote this effect, so that references in `args` may lead to untrusted content."""
    used_by: Kept[list[str]] = Field(default_factory=list)
    """The ids of the steps that were planned with this effect."""

    def __str__(self) -> str:
        times = "" if self.count == 1 else f" up to {self.count} times"
        args = ", ".join(f"{name}: {term}" for name, term in self.args.items())
        return f"{self.kind}{times}{f' ({args})' if args else ''}"


def contract_text(effects: Sequence[AllowedEffect]) -> str:
    """The contract of a task that has read untrusted content, in one sentence."""
    allowed = few(list(map(str, effects)), MAX_SHOWN, "; ") or "no effect"
    return f"It read untrusted content; its contract allows {allowed}."


class Contract(BaseModel):
    """The contract of a task, and what it was applied to."""

    effects: list[AllowedEffect] = Field(default_factory=list, exclude_if=not_)
    is_tainted: bool = False
    """Whether the task may have read untrusted content: it has called a tool that returns such content."""
    outside: dict[str, str] = Field(default_factory=dict, exclude_if=not_)
    """By the id of each step of the plan in force that a person must approve, the reason."""
    origins: list[Origin] = Field(default_factory=list, exclude_if=not_)
    """Literals without a trusted source in the arguments of the steps in `outside`, and of steps with an effect."""
    tainted: Kept[list[str]] = Field(default_factory=list, exclude_if=not_)
    """Ids of the steps of the plan in force whose results will be untrusted content."""
    unchecked: dict[str, list[str]] = Field(default_factory=dict, exclude_if=not_)
    """By the id of a read of the plan in force, its arguments that refer to untrusted content. Their values are known
    when the step starts; an address among them is outside the contract."""

    def begin(self, *, is_untrusted: bool) -> None:
        """Record that a tool is called; the task is tainted if the tool may return untrusted content."""
        self.is_tainted = self.is_tainted or is_untrusted
