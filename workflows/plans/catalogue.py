"""The catalogue: the spec of each kind (a step's type), which is all that the workflow knows about the kind's tool.

Made by a worker at the start of each run of a task; read at each decision about a step. History contains the specs, so
that a replay decides by the same ones.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from operator import not_
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue, field_serializer

from workflows.marks import Kept
from workflows.people.approvers import Approvers
from workflows.plans.proposal import Proposed
from workflows.sparse import Sparse


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
    """A second call would apply the effect a second time."""


SAFE = (Effect.IDEMPOTENT, Effect.KEYED, Effect.TRANSACTIONAL)
"""Effects whose call may be repeated after an unknown outcome: a second call applies no second effect."""
IN_LEDGER = (Effect.TRANSACTIONAL, Effect.UNKEYED)
"""Effects of which each call has a row in a ledger: committed with the effect, or claimed before the call."""
REFUSAL_MAY_FOLLOW_SUCCESS = (Effect.IDEMPOTENT, Effect.KEYED)
"""Effects whose rejection may mean that an earlier attempt was applied: "already cancelled", "no such file"."""


ADDRESSES = ("domain", "endpoint", "host", "hostname", "uri", "url")
"""Names of arguments with which a read can send data to an outside system, whatever their values are."""
ALWAYS_AUTHORITY = ("code", "command", "html", "path", "sql", "url")
"""Arguments with these names, or with names that end with one of them, are authority whatever their tool declares."""


def is_always_authority(argument: str) -> bool:
    """Whether an argument with this name is authority (see ALWAYS_AUTHORITY) even if its tool declares otherwise."""
    return argument.lower().rpartition("_")[2] in ALWAYS_AUTHORITY


class CompanionSpec(BaseModel, frozen=True):
    """A kind of tool that observes, reconciles or undoes the call of another kind.

    `args` gives for each argument a path into that call's `args`, `result` or `key`, such as `{"id": "result.id"}`.
    """

    kind: Kept[str]
    args: Kept[dict[str, str]] = Field(default_factory=dict)
    defaults: dict[str, JsonValue] = Field(default_factory=dict, exclude_if=not_)
    """For a kind that undoes: by argument, the default with which the call was made. It takes the place of an optional
    argument that the call left out; None to leave the argument out of the undo, too."""


FORM = 2
"""The version of the data that a task keeps in its history. A release that cannot read the data of earlier releases
increases this number, and says so."""


class OtherForm(Exception):
    """Another version of Replan began a run, and this version would misread it; see FORM."""

    def __init__(self, form: int) -> None:
        cure = "a worker of that version ends it, or cancel it and start the task again"
        super().__init__(f"This run was begun by another version of Replan (form {form}, here {FORM}): {cure}.")


ALWAYS = "always"
"""The value of `approve` that is no condition."""
EVERY_CALL = "the tool asks before each call"
"""Why a call of a tool with ALWAYS needs an approval."""
WHY_OF_TASK: Mapping[str, str] = {
    "effects": "the task asks before each call that changes something",
    "all": "the task asks before each call",
}
"""By `Task.approve`, why a call needs an approval whose tool does not ask for one."""
UNREAD: Mapping[str, str] = {
    "new": "no person has read what its server says of it",
    "changed": "what its server says of it has changed since a person read it",
}
"""By `ToolSpec.unread`, what it means, as a clause."""
MAX_SAYS = 160
"""The most characters of `ToolSpec.says`."""


class ToolSpec(BaseModel, frozen=True):
    """What a tool promises, as data for the workflow.

    The tool's schemas and description stay with the worker; `digest` is made from them, too.
    """

    # Read when a call is scheduled
    kind: Kept[str]
    effect: Effect
    retry: Literal["standard", "patient", "once"] = "standard"
    timeout: float = Field(default=30.0, gt=0)
    """Seconds that one attempt may take."""

    # Read after a call has failed, and in a rollback
    observe: CompanionSpec | None = None
    """The read-only tool that reads the current state before a replan, after a call of this kind failed."""
    reconcile: CompanionSpec | None = None
    """The read-only tool that finds out whether a call was applied. If so, the tool returns the result of the call."""
    settle: float = Field(default=10.0, ge=0)
    """Seconds after the last attempt until "not found" of `reconcile` proves that the call was not applied."""
    undo: CompanionSpec | None = None
    fallback: Kept[str | None] = None
    """The kind of tool that is called instead, with the same arguments, when the retries of this kind are used up."""

    # Read when the tool has returned
    ensure: str | None = None
    """A condition over `args` and `result`; a result that violates it is a fault with the code `unexpected_result`."""

    # Read before the tool is called
    approve: str | None = None
    """Which calls a person must approve: `always`, or a condition over `args`; None for none."""
    approvers: Approvers | None = Field(default=None, exclude_if=lambda rule: rule is None)
    """Which people; None for anybody, whom nobody needs to know."""

    # Read when a proposal is compared with the contract of the task
    authority: Kept[tuple[str, ...] | None] = None
    """The arguments that say whom, where, which or how much; None for all but `content`. Of a read: further arguments
    with which it could carry data away; empty if none can, since they stay with the worker and its own model."""
    content: Kept[tuple[str, ...]] = ()
    """The arguments that are only content, such as the text of a message."""
    untrusted: bool = False
    """Whether a result may contain untrusted content: text from outside, which may contain hidden instructions."""

    # Read when a call is scheduled: what it may use, and how it runs
    tokens: int = 0
    """How many tokens of a model one call may use; 0 for a tool that uses no model."""
    tokens_overhead: int | None = None
    """The part of `tokens` that does not depend on the arguments; None if the model reads more than the arguments."""
    pure: bool = False
    """Whether the tool only computes, without I/O, and always the same: its calls are local activities."""
    is_threaded: bool = False
    """Whether the tool is a plain function: neither a timeout nor a cancel can stop its thread."""

    # Read when a person is asked about a call
    asks: str = Field(default="", exclude_if=not_)
    """When a person must approve a call, in words, as a clause after "needs approval: "; empty for never."""
    unread: Literal["new", "changed"] | None = Field(default=None, exclude_if=not_)
    """Whether the name, the description or a schema are words of a foreign server that no person has read: they are
    `new`, or have `changed` since a person read them. None for words that a person wrote or has read."""
    says: str = Field(default="", exclude_if=not_)
    """What the tool says of itself, in a sentence; empty for a tool whose calls nobody is asked to approve."""

    # Read in each attempt, by a worker that may have another version
    digest: Kept[str] = ""
    """Digest of this spec and of the tool's schemas and description."""

    def authority_of(self, names: Iterable[str]) -> list[str]:
        """The arguments among `names` that are authority: they say whom, where, which or how much."""
        if self.effect is Effect.READ:
            declared = self.authority or ()
            return [name for name in names if name in declared or name.lower().rpartition("_")[2] in ADDRESSES]
        if self.authority is None:
            return [name for name in names if name not in self.content or is_always_authority(name)]
        return [name for name in names if name in self.authority or is_always_authority(name)]

    @property
    def can_carry_addresses(self) -> bool:
        """Whether an address in an argument of this read may take data outside."""
        return self.effect is Effect.READ and not self.pure and self.authority != ()

    def needs_approval(self, approve: str) -> bool:
        """Whether a task with `approve` asks a person before each call of this tool, whatever `self.approve` says."""
        return approve == "all" or (approve == "effects" and self.effect is not Effect.READ)

    @property
    def paths(self) -> frozenset[str]:
        """The paths to values in the arguments or result of a call of this tool that the tool's companions need."""
        companions = filter(None, (self.observe, self.reconcile, self.undo))
        return frozenset(path for companion in companions for path in companion.args.values() if path != "key")


class Price(BaseModel, frozen=True):
    """What a model's tokens cost, in US dollars per million."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_from: int | None = None
    """A request with more input tokens than this costs more per token; None if the price is always the same."""
    long_input: float = 1.0
    """The factor for the prices of input, cache reads and cache writes if a request has more input than `long_from`."""
    long_output: float = 1.0
    """The factor for the price of output if a request has more input than `long_from`."""


class Catalogue(Sparse, frozen=True):
    """The specs of the tools that a task may use, and settings of its worker; read at the start of each run."""

    # Read at the start of each run
    form: int = 0
    """The FORM of the worker that began the run; 0 before the first release."""
    digest: str = ""
    """The digest of the worker's tools, the same for all workers with the same tools."""
    specs: dict[str, ToolSpec]
    planner: Kept[str]
    searchable: bool = True
    """Whether the namespace has Replan's search attributes; without them, to set one fails the workflow task."""

    # Read when a call is scheduled
    patience: float = Field(ge=0)
    """Seconds that a step may wait for a worker that has the step's tool."""
    store: str | None = None
    """The id of the worker's store (its database); a worker with another store refuses calls that have an effect."""

    # Read before the first plan
    refused: str | None = None
    """Why this worker cannot run the task; None where it can."""
    converses: bool = False
    """Whether the planner keeps its conversation in the store, so that each request contains only what is new."""
    is_clean: bool = False
    """Whether the worker knows the conversation that the task continues, and it has no untrusted content."""

    # Read before and after each use of a model
    price: Price | None = None
    """The highest price of the planner's models; None if a price is unknown, or the planner is no model."""
    step_price: Price | None = None
    """The highest price of the models that steps use; None if a price is unknown, or steps use no model."""
    prices: dict[str, Price | None] = Field(default_factory=dict)
    """By model name, the price of each model that the planner or a step may use; None if the price is unknown."""
    last_news: int = 0
    """Tokens kept back for new input, such as results, in the request for the final answer; 0 without a model."""

    # Read when the planner is asked
    opening: Proposed | None = None
    """The first proposal, if the planner need not be asked for it: a plan that is made by rules, or the check of a
    hand-written plan. If that plan has no mistake, its steps are left out, because the task has them."""
    plans_locally: bool = False
    """Whether the planner needs no I/O, so that a local activity asks it what comes after a finished plan."""

    # Read when a person is asked
    notifies: bool = False
    """Whether the worker tells a receiver outside of Replan (`--notify`) of requests to people."""
    page: str = ""
    """Where people open the page (`REPLAN_PAGE`), without a slash at its end; empty if the worker does not know."""

    # Read when a request to the planner is reserved
    longest_reply: int = 0
    """The most tokens that the planner allows a reply of its model; 0 if the worker does not say it."""
    preamble: int = 0
    """Estimated tokens of the instructions and descriptions of tools that a model is told before the task."""

    @property
    def unread(self) -> list[str]:
        """The kinds with words that no person has read and that the planner is shown; none if no model plans."""
        return [] if self.plans_locally else [kind for kind, spec in self.specs.items() if spec.unread]

    def take_over(self, specs: Mapping[str, JsonValue]) -> None:
        """Let the task use these specs, as JSON, from now on: the planner's worker has other tools than the one that
        made this catalogue, as in a rolling deploy, and a plan was made and checked with them."""
        self.specs.update((kind, ToolSpec.model_validate(spec)) for kind, spec in specs.items())

    @field_serializer("specs")
    def _sparsely(self, specs: dict[str, ToolSpec]) -> dict[str, Any]:
        # Without default values, which most of the values are, to keep history small.
        return {kind: spec.model_dump(mode="json", exclude_defaults=True) for kind, spec in specs.items()}
