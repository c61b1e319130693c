"""The settings file, `replan.toml`: budgets of tasks, for the starter, and prices of models, for the worker."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from runtime.settings import WithRemedy
from runtime.validation import expected
from workflows.durations import seconds
from workflows.limits.budget import MAX_DEADLINE
from workflows.plans.catalogue import Price
from workflows.text import decode_text, nearest

DEFAULT = Path("replan.toml")
VARIABLE = "REPLAN_SETTINGS"
UNLIMITED = "unlimited"
"""The value that means no limit, since TOML has no null."""
OWN = "own"
"""The type of the validation errors that this module raises itself; their messages say what was expected."""
MAX_VALUE = 80
"""The most characters of a wrong value that a message quotes."""
CHECK = f"check --settings and {VARIABLE}"
CORRECT = "correct it, docs/models.md#budgets shows one"

Profile = Literal["interactive", "background"]
Model = Annotated[str, Field(pattern=r"^[a-z]+:\S+$")]
"""The name of a model as `--planner` takes it: `provider:MODEL`, or `provider:MODEL@HOST` on a server of one's own."""

OpenAIModel = Annotated[str, Field(pattern=r"^openai:\S+$")]


class BadSettings(WithRemedy, ValueError):
    """The settings file cannot be used."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _duration(value: object) -> object:
    try:
        return seconds(value) if isinstance(value, str) and value != UNLIMITED else value
    except ValueError:
        raise PydanticCustomError(OWN, 'must be seconds, a time as "1h30m", or "unlimited"') from None


def _number_or_unlimited(value: object) -> object:
    if isinstance(value, str) and value != UNLIMITED:
        raise PydanticCustomError(OWN, f'must be a number or "{UNLIMITED}"')
    return None if value == UNLIMITED else value


class Budget(_Frozen):
    """The default limits of a task; None for no limit."""

    # `SettingsFile.limits` leaves defaults out, so the zeros below are never used.
    tool_calls: int = Field(default=0, ge=1)
    replans: int = Field(default=0, ge=0)
    tokens: Annotated[int | None, Field(ge=1), BeforeValidator(_number_or_unlimited)] = None
    usd: Annotated[float | None, Field(gt=0), BeforeValidator(_number_or_unlimited)] = None
    """US dollars."""
    deadline: Annotated[
        float | None, Field(gt=0, le=MAX_DEADLINE), BeforeValidator(_number_or_unlimited), BeforeValidator(_duration)
    ] = None
    """Seconds after the start of the task."""


class Budgets(_Frozen):
    """The limits of tasks for which a person waits at a terminal (`interactive`), and of the console's other tasks.

    A limit that is left out has the default of `workflows.limits.budget.Limits`.
    """

    interactive: Budget = Budget()
    background: Budget = Budget()


class ModelPrice(_Frozen):
    """The price of a model's tokens, in US dollars per million."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    """The price of input tokens read from the cache; None: the same as `input`."""
    cache_write: float | None = Field(default=None, ge=0)
    """The price of input tokens written to the cache; None: the same as `input`."""

    @property
    def price(self) -> Price:
        usual = {"cache_read": self.input, "cache_write": self.input}
        return Price.model_validate(usual | self.model_dump(exclude_none=True))


class Models(_Frozen):
    """Settings of models; the prices and windows here take precedence over the published ones."""

    compact_at: float = Field(default=0.8, gt=0, le=1)
    """The share of a model's window that a conversation may fill before it is compacted."""
    prices: dict[Model, ModelPrice] = Field(default_factory=dict)
    windows: dict[Model, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """By model, the context window: the maximum of input tokens in a request."""
    wires: dict[OpenAIModel, Literal["responses", "chat_completions"]] = Field(default_factory=dict)
    """By model, which of OpenAI's APIs Replan uses: Responses or Chat Completions."""
    idle_timeout: Annotated[float, Field(gt=0), BeforeValidator(_duration)] = 60.0
    """Seconds without a byte after which a model's reply counts as stalled."""
    reasoning_effort: dict[OpenAIModel, Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]] = Field(
        default_factory=dict
    )
    """By model, its reasoning effort; not every model supports every value."""
    calls: dict[Model, Literal["native", "text"]] = Field(default_factory=dict)
    """By model, how it makes tool calls: in the API, or as text if its server does not support tool calls."""
    strict: dict[Model, bool] = Field(default_factory=dict)
    """By model, whether its provider enforces the schemas of tools and answers that the provider supports."""

    @property
    def known_prices(self) -> dict[str, Price]:
        return {name: row.price for name, row in self.prices.items()}


class SettingsFile(_Frozen):
    budgets: Budgets = Budgets()
    models: Models = Models()

    @classmethod
    def read(cls, path: Path | None) -> "SettingsFile":
        """Read the file at `path`; without a `path` read `replan.toml` in the current folder, if it exists.

        Raises:
            BadSettings: the file cannot be read, or a value cannot be used.
        """
        named = path or DEFAULT
        which = f"The settings file {str(named)!r}"
        try:
            return cls.model_validate(tomllib.loads(decode_text(named.read_bytes())))
        except FileNotFoundError:
            if path is None:
                return cls()
            raise BadSettings(f"There is no settings file {str(named)!r}", CHECK) from None
        except OSError as error:
            raise BadSettings(f"{which} cannot be read ({error.strerror})", CHECK) from error
        except ValidationError as error:
            raise BadSettings(f"{which}: {_first_mistake(error, cls.model_json_schema())}", CORRECT) from error
        except ValueError as error:  # of TOML, or of UTF-8
            raise BadSettings(f"{which} is no TOML ({error})", CORRECT) from error

    def limits(self, profile: Profile, options: Mapping[str, Any]) -> dict[str, Any]:
        """The limits of a task, by name: from `options` (the command line), else from this file.

        `profile` chooses the table of the file. An option that is None was not typed. A limit that neither the command
        line nor the file sets is left out.
        """
        own = getattr(self.budgets, profile).model_dump(exclude_unset=True)
        return {**own, **{name: value for name, value in options.items() if value is not None}}


def _first_mistake(error: ValidationError, form: Mapping[str, Any]) -> str:
    """The first mistake in the file, with its name; `form` is the JSON schema of the file."""
    first = error.errors(include_url=False)[0]
    loc = [str(part) for part in first["loc"] if part != "[key]"]
    setting = ".".join(loc)
    if first["type"] == "extra_forbidden":
        names = _names_at(form, loc[:-1])
        near = nearest(loc[-1], names).removeprefix(": ") or f"there are {', '.join(names)}"
        return f"{setting!r} is no setting ({near})"
    if first["loc"][-1] == "[key]":
        of = " of openai" if "openai" in first["msg"] else ""
        return f"{setting!r} names no model{of} (write it as --planner does, in quotes)"
    if first["type"] == "missing":
        return f"{setting!r} is missing"
    if first["type"] in ("model_type", "dict_type"):
        return f"{setting!r} must be a table"
    value = repr(first["input"])[:MAX_VALUE]
    return f"{setting!r} cannot be {value}: it {first['msg'] if first['type'] == OWN else expected(first)}"


def _names_at(schema: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """The names of the settings that `schema` allows at `path`."""
    at: Any = schema
    for part in path:
        others = [*at.get("patternProperties", {}).values(), {}]
        at = at.get("properties", {}).get(part) or others[0]
        at = schema["$defs"][at["$ref"].rpartition("/")[2]] if "$ref" in at else at
    return list(at.get("properties", {}))
