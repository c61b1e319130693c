"""The environment of each task, and AgentDojo's functions as tools of a worker in this process."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field, create_model
from temporalio import activity

from evals.injection.declared import DECLARED, Declared
from evals.injection.suites import Call, Case, Suite
from replan import Key, Refused, Tool, tool


class Done(BaseModel):
    """The result of a function that returns nothing."""

    done: bool = True


@dataclass
class World:
    """The environment of one task, and what was done in it."""

    case: Case
    environment: Any = None
    before: Any = None
    """The environment as it was before the first call."""
    made: list[Call] = field(default_factory=list)
    """The calls that succeeded."""
    results: dict[str, Any] = field(default_factory=dict)
    """By idempotency key, the result of a call."""

    def __post_init__(self) -> None:
        self.environment = self.case.environment()
        self.before = self.environment.model_copy(deep=True)

    def run(self, call: Call, key: str | None) -> Any:
        """Make a call, or return the result of the same call again.

        Raises:
            Refused: the environment rejects the call.
        """
        if key in self.results:
            return self.results[key]
        result, error = self.case.suite.run(self.environment, call)
        if error:
            raise Refused(error)
        self.made.append(call)
        if key is not None:
            self.results[key] = result
        return result


Worlds = MutableMapping[str, World]
"""By the id of the task."""
Options = Callable[[Declared], Mapping[str, Any]]
"""The keywords of the decorator, for what the table says of a tool."""


def tools(suite: Suite, worlds: Worlds, options: Options) -> list[Tool[..., Any]]:
    """The functions of a suite as tools; a call changes the environment of the task that makes it."""
    return [_tool(function, worlds, DECLARED[name], options) for name, function in suite.functions.items()]


def _tool(function: Any, worlds: Worlds, declared: Declared, options: Options) -> Tool[..., Any]:
    fields: dict[str, Any] = {
        name: (field.annotation, Field(field.default, description=field.description))
        for name, field in function.parameters.model_fields.items()
    }
    args_type = create_model(f"{function.name.title().replace('_', '')}Args", **fields)
    is_silent = function.return_type in (None, type(None))

    def run(args: BaseModel, key: str | None = None) -> Any:
        world = worlds[activity.info().workflow_id or ""]
        result = world.run(Call(function.name, args.model_dump(exclude_unset=True)), key)
        return Done() if is_silent else result

    async def call(args: BaseModel) -> Any:
        return run(args)

    async def call_with_key(args: BaseModel, key: Key) -> Any:
        return run(args, key)

    chosen: Any = call_with_key if declared.effect == "keyed" else call
    chosen.__name__ = chosen.__qualname__ = function.name
    chosen.__doc__ = function.description
    chosen.__annotations__["args"] = args_type
    chosen.__annotations__["return"] = Done if is_silent else function.return_type
    made: Tool[..., Any] = getattr(tool, declared.effect)(**options(declared))(chosen)
    return made
