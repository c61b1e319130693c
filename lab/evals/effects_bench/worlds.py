"""The worlds: tools and tasks that others have published, as they are, with the calls that solve each task.

It runs in an environment of its own (`worlds-requirements.txt`), and needs nothing of this project. What a call changes
is seen by comparing the state before and after: no table of ours says which tool changes something.
"""

import ast
import copy
import gzip
import importlib
import inspect
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ConfigDict, create_model
from pydantic_core import to_jsonable_python

SEED = 11
"""Some tools draw ids: each world begins with the same seed, so that equal calls give equal ids."""


@dataclass(frozen=True)
class Call:
    """A call of a tool, as the solution of a task has it."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A task, what it asks for, and the calls that solve it."""

    id: str
    text: str
    calls: Sequence[Call]


class World:
    """The world of one task: its tools, and its state."""

    def __init__(
        self, tools: Mapping[str, Callable[..., Any]], state: Callable[[], Any], mark: Callable[[], str] | None = None
    ) -> None:
        """`mark` differs whenever `state` does, where `state` is slow."""
        self.tools, self._state, self.mark = tools, state, mark or self.state
        random.seed(SEED)

    def call(self, tool: str, args: Mapping[str, Any]) -> Any:
        """The result of a call, as JSON. Raises what the tool raises, and LookupError without such a tool."""
        if tool not in self.tools:
            raise LookupError(f"There is no tool {tool}.")
        result = to_jsonable_python(self.tools[tool](**args), fallback=str)
        if isinstance(result, dict) and set(result) == {"error"}:
            raise ValueError(str(result["error"]))
        return result

    def state(self) -> str:
        """The whole state, as JSON with sorted keys."""
        return json.dumps(to_jsonable_python(self._state(), fallback=str), sort_keys=True)

    def described(self) -> list[dict[str, Any]]:
        """Each tool's name, description and JSON Schema."""
        return [
            {"name": name, "description": inspect.getdoc(tool) or name, "parameters": _schema(name, tool)}
            for name, tool in sorted(self.tools.items())
        ]


def _schema(name: str, tool: Callable[..., Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for one in inspect.signature(tool).parameters.values():
        annotation = Any if one.annotation is one.empty or isinstance(one.annotation, str) else one.annotation
        fields[one.name] = (annotation, ... if one.default is one.empty else one.default)
    schema = create_model(name, __config__=ConfigDict(arbitrary_types_allowed=True), **fields).model_json_schema()
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def _methods(*objects: object) -> dict[str, Callable[..., Any]]:
    """The public methods of objects that are tools."""
    found = dict[str, Callable[..., Any]]()
    for one in objects:
        kind = type(one)
        for name, function in vars(kind).items():
            if not name.startswith("_") and inspect.isfunction(function) and name not in NO_TOOLS:
                found.setdefault(name, getattr(one, name))
    return found


NO_TOOLS = {"initialize", "get_user_db", "sync_tools", "model_post_init", "update_user_db"}


def transfer_to_human_agents(summary: str) -> str:
    """Transfer the user to a human agent, with a summary of the user's issue."""
    return "Transfer successful"


def calculate(expression: str) -> str:
    """Calculate the result of an expression of numbers, + - * / and parentheses."""
    if not set(expression) <= set("0123456789+-*/(). "):
        raise ValueError("Invalid characters in expression")
    return str(round(float(_number(ast.parse(expression, mode="eval").body)), 2))


def _number(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _number(left), _number(right)
            return {"Add": one + other, "Sub": one - other, "Mult": one * other}.get(
                type(op).__name__, one / other if other else 0.0
            )
    raise ValueError("Invalid expression")


# tau2: retail and telecom


def _tau2(domain: str) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """The tasks of a domain, and the ids of its training split."""
    from inspect_evals.tau2.utils import TAU2_DATA_DIR

    folder = Path(TAU2_DATA_DIR, "domains", domain)
    plain, packed = folder / "tasks.json", folder / "tasks.json.gz"
    tasks = json.loads(plain.read_text()) if plain.exists() else json.loads(gzip.decompress(packed.read_bytes()))
    return tasks, json.loads((folder / "split_tasks.json").read_text())["train"]


def _tau2_tasks(domain: str) -> Iterator[Task]:
    tasks, train = _tau2(domain)
    wanted = set(train)
    for task in tasks:
        actions = (task["evaluation_criteria"] or {}).get("actions") or ()
        if task["id"] in wanted and actions:
            text = task.get("ticket") or task["user_scenario"]["instructions"]["reason_for_call"]
            yield Task(task["id"], text, [Call(one["name"], one["arguments"]) for one in actions])


@cache
def _begun() -> dict[str, Any]:
    return {}


def _retail(task: Task) -> World:
    from inspect_ai.util import Store
    from inspect_evals.tau2.retail.RetailAgentTools import RetailAgentTools

    if "retail" not in _begun():  # reading the file takes half a second
        first = RetailAgentTools(store=Store())
        first.initialize()
        _begun()["retail"] = first.db
    tools = RetailAgentTools(store=Store())
    tools.initialized, tools.db = True, _begun()["retail"].model_copy(deep=True)
    more = {"calculate": calculate, "transfer_to_human_agents": transfer_to_human_agents}
    return World(
        {**_methods(tools), **more}, lambda: tools.db.model_dump(mode="json"), lambda: str(tools.db.model_dump_json())
    )


def _telecom(task: Task) -> World:
    from inspect_ai.util import Store
    from inspect_evals.tau2.telecom.environment import Environment
    from inspect_evals.tau2.telecom.TelecomAgentTools import TelecomAgentTools
    from inspect_evals.tau2.telecom.TelecomUserTools import TelecomUserTools

    agent, user = TelecomAgentTools(store=Store()), TelecomUserTools(store=Store())
    agent.initialize()
    user.initialize()
    around = Environment(user, agent)
    sides = {"user": user, "assistant": agent}
    record = next(one for one in _tau2("telecom")[0] if one["id"] == task.id)
    for action in (record["initial_state"] or {}).get("initialization_actions") or ():
        getattr(sides[action["env_type"]], action["func_name"])(**action["arguments"])
        around.sync_tools()

    def synced(tool: Callable[..., Any]) -> Callable[..., Any]:
        def called(**args: Any) -> Any:
            result = tool(**args)
            around.sync_tools()
            return result

        called.__doc__, called.__signature__ = tool.__doc__, inspect.signature(tool)  # type: ignore[attr-defined]
        return called

    tools = {name: synced(tool) for name, tool in _methods(agent, user).items()}
    tools["transfer_to_human_agents"] = transfer_to_human_agents
    return World(tools, lambda: [agent.db.model_dump(mode="json"), user.db.model_dump(mode="json")])


# AgentDojo: banking and slack

DOJO = "v1.2.2"


def _dojo_suite(name: str) -> Any:
    pipeline = "agentdojo.agent_pipeline"
    if pipeline not in sys.modules:  # its `__init__` imports the SDKs of many models, and none is used
        import agentdojo

        package, google = ModuleType(pipeline), ModuleType(f"{pipeline}.llms.google_llm")
        package.__path__ = [f"{folder}/agent_pipeline" for folder in agentdojo.__path__]
        google.EMPTY_FUNCTION_NAME = ""  # type: ignore[attr-defined]
        sys.modules |= {pipeline: package, google.__name__: google}
    from agentdojo.task_suite.load_suites import get_suite

    return get_suite(DOJO, name)


def _dojo_tasks(name: str) -> Iterator[Task]:
    suite = _dojo_suite(name)
    for id, task in suite.user_tasks.items():
        environment = task.init_environment(suite.load_and_inject_default_environment({}))
        calls = [Call(one.function, dict(one.args)) for one in task.ground_truth(environment)]
        if calls:
            yield Task(id, task.PROMPT, calls)


def _dojo(name: str, task: Task) -> World:
    from agentdojo.functions_runtime import FunctionsRuntime

    suite = _dojo_suite(name)
    user_task = suite.user_tasks[task.id]
    environment = user_task.init_environment(suite.load_and_inject_default_environment({}))
    runtime = FunctionsRuntime(suite.tools)

    def calling(function: Any) -> Callable[..., Any]:
        def called(**args: Any) -> Any:
            result, error = runtime.run_function(environment, function.name, args)
            if error:
                raise ValueError(error)
            return result

        called.__doc__ = function.description
        called.schema = function.parameters.model_json_schema()  # type: ignore[attr-defined]
        return called

    world = World({one.name: calling(one) for one in suite.tools}, lambda: environment.model_dump(mode="json"))
    world.described = lambda: [  # type: ignore[method-assign]
        {"name": one.name, "description": one.description, "parameters": one.parameters.model_json_schema()}
        for one in suite.tools
    ]
    return world


# BFCL: several turns, base

BFCL_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}


@cache
def _bfcl_rows() -> dict[str, dict[str, Any]]:
    import bfcl_eval

    folder, name = Path(bfcl_eval.__file__).parent / "data", "BFCL_v4_multi_turn_base.json"
    rows = {row["id"]: row for row in map(json.loads, (folder / name).read_text().splitlines())}
    for answer in map(json.loads, (folder / "possible_answer" / name).read_text().splitlines()):
        rows[answer["id"]]["ground_truth"] = answer["ground_truth"]
    return rows


def _bfcl_tasks() -> Iterator[Task]:
    for id, row in _bfcl_rows().items():
        text = "\n".join(message["content"] for turn in row["question"] for message in turn)
        world = _bfcl(Task(id, text, ()))
        yield Task(id, text, [_parsed(call, world) for turn in row["ground_truth"] for call in turn])


def _parsed(text: str, world: World) -> Call:
    """A call that is written as Python."""
    node = ast.parse(text, mode="eval").body
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise ValueError(f"{text} is no call")
    named = {one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg}
    given = [ast.literal_eval(one) for one in node.args]
    names = list(inspect.signature(world.tools[node.func.id]).parameters)
    return Call(node.func.id, {**dict(zip(names, given, strict=False)), **named})


def _bfcl(task: Task) -> World:
    row, parts = _bfcl_rows()[task.id], dict[str, Any]()
    for name in row["involved_classes"]:
        module = importlib.import_module(
            f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.{BFCL_MODULES[name]}"
        )
        parts[name] = getattr(module, name)()
        if name != "MathAPI":
            parts[name]._load_scenario(copy.deepcopy(row["initial_config"].get(name, {})))
    return World(_methods(*parts.values()), lambda: {name: _plain(part) for name, part in parts.items()})


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """What an object of BFCL holds, as JSON."""
    match value:
        case str() | int() | float() | None:
            return value
        case dict():
            return {str(key): _plain(one, above) for key, one in value.items()}
        case list() | tuple() | set():
            return [_plain(one, above) for one in value]
    if id(value) in above or not hasattr(value, "__dict__"):
        return type(value).__name__
    inside = {name: one for name, one in vars(value).items() if not name.startswith("_") and name != "parent"}
    return {name: _plain(one, (*above, id(value))) for name, one in inside.items()}


SUITES: Mapping[str, tuple[Callable[[], Iterator[Task]], Callable[[Task], World]]] = {
    "tau2-retail": (lambda: _tau2_tasks("retail"), _retail),
    "tau2-telecom": (lambda: _tau2_tasks("telecom"), _telecom),
    "agentdojo-banking": (lambda: _dojo_tasks("banking"), lambda task: _dojo("banking", task)),
    "agentdojo-slack": (lambda: _dojo_tasks("slack"), lambda task: _dojo("slack", task)),
    "bfcl-multi-turn": (_bfcl_tasks, _bfcl),
}
"""By name, the tasks of a world, and how the world of a task is made."""


@dataclass(frozen=True)
class Solution:
    """What a task comes to when each call of its solution is made once, and nothing fails."""

    task: Task
    changing: Sequence[int]
    """The numbers of the calls that change the world."""
    state: str


def solved(suite: str, task: Task) -> Solution:
    """Play the solution of a task."""
    world, changing = SUITES[suite][1](task), list[int]()
    before = world.state()
    for number, call in enumerate(task.calls):
        with suppress(Exception):  # a solution may have a call that the tool refuses
            world.call(call.tool, call.args)
        after = world.state()
        if after != before:
            changing.append(number)
        before = after
    return Solution(task, changing, before)


def _looked(solution: Solution, reading: Sequence[str]) -> list[int]:
    tools = [call.tool for call in solution.task.calls]
    return [at for at, number in enumerate(solution.changing, 1) if any(tool in reading for tool in tools[:number])]


def main() -> None:
    """Print `tasks.json`: by world, its tools that change something and those that do not.

    Of each task: how many of its calls change something, and which of these come after a read, counted from 1.
    """
    found = dict[str, dict[str, Any]]()
    for name, (tasks, _) in SUITES.items():
        solutions = [one for task in tasks() if (one := solved(name, task)).changing]
        tools = sorted({one.task.calls[number].tool for one in solutions for number in one.changing})
        reading = sorted({call.tool for one in solutions for call in one.task.calls} - {*tools})
        of_tasks = {one.task.id: {"changes": len(one.changing), "looked": _looked(one, reading)} for one in solutions}
        found[name] = {"changing": tools, "reading": reading, "tasks": of_tasks}
    print(json.dumps(found, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
