"""What is public, as data: one surface (see tests/promises.py) for each door by which users reach Replan.

`python -m tests.golden` writes them into docs/surface; docs/compatibility.md says what they promise.
"""

import ast
import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from typer.main import get_command

import replan
import worker
from activities.borders import declared
from activities.toolbox import registry
from activities.toolbox.declare.tool import DECORATORS, NOT_PURE, Tool, ToolOptions
from activities.toolbox.injection import Documents, Services, Transaction, Web, Workspace
from activities.toolbox.servers import Servers
from client.client import TaskHandle, TaskNotCompleted
from client.events import TaskEvent
from client.problem import Problem
from client.remedy import Remedy
from client.start import PlanFile
from console import app as application
from console.entry import BROKEN_PIPE
from console.exits import Exit
from console.serving.problems import ProblemDocument
from extras.web import api
from replan import pytest_plugin
from replan.testing.worker import AsyncCallTool, CallTool, RunningWorker
from runtime.process import SECRETS
from runtime.settings import Settings
from runtime.settings_file import SettingsFile
from tests.documentation import printed, sections, tables
from tests.processes import ROOT
from tests.promises import ANY, Promise, Surface
from workflows.account import search_attributes
from workflows.account.metrics import GAUGES, METRICS
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.faults.fault import QUADRANT, Code
from workflows.people.notifications import Notification
from workflows.people.requests import CHOICES, HumanRequest
from workflows.unfinished import Unfinished

FOLDER = ROOT / "docs" / "surface"
MODULES = ("replan", "replan.effects", "replan.events", "replan.faults", "replan.testing", "replan.testing.worker")
"""The modules whose names users may import."""
READ_ONLY = (
    *(TaskEvent, TaskHandle, TaskNotCompleted, Outcome, HumanRequest, Problem, Remedy),
    *(Tool, Transaction, RunningWorker, CallTool, AsyncCallTool),
)
"""Classes that users only read or call: how one is made is not promised."""
INJECTED = (Documents, Servers, Services, Web, Workspace)
"""Classes that a tool gets as arguments: how one is made, and of what, is not promised."""
PRIVATE: Mapping[str, Sequence[str]] = {
    "Task": ("allow", "remains"),
    "HumanRequest": ("close", "option", "result", "given_code", "given_others", "given_args", "is_ended", "steps"),
    "Outcome": ("reasons",),
    "FaultRecord": ("queued", "is_trial", "held", "defaults"),
    "Step": ("provider_call", "dependencies", "label"),
    "Problem": ("fields", "sentence"),
    "FailingTask": ("is_taken", "failures", "workflow_id", "task_id", "queue", "event", "step"),
    "Explanation": ("story", "is_plain"),
    "ResetResult": ("point", "asked"),
    "Rollback": ("handle", "planned_fields"),
    "Documents": ("library",),
    "Services": ("of",),
    "Servers": ("opened",),
    "Web": ("exchange", "parse", "allows_name"),
    "Tool": ("function", "effect", "options", "unknown", "decorator", "pure", "origin"),
    "RunningWorker": ("start", "parts", "failures", "loop"),
    "FaultsPlugin": ("effect_of", "fault_of", "is_for", "translated", "is_dry_run"),
    "Refused": ("codes",),
    "Busy": ("codes",),
    "Unreachable": ("codes",),
    "NeedsPerson": ("codes",),
    "ToolError": ("codes",),
    "Settings": ("dev", "desk", "fresh", "tools", "check", "strict", "write_tools", "classify", "metrics"),
}
"""By class, the names that Replan needs for itself; those of Settings are no arguments of `Replan(...)`."""
NO_DATA = ("ToolOptions", "Registry", "PlannerSelection")
"""Classes that promises name, and whose fields are private."""
ROOMS = ("replan", "workflows", "activities", "runtime", "client", "extras", "console")
NOT_OURS = ("_REPLAN_COMPLETE", "REPLANS")
"""Texts of the source that look like variables of the environment, and are none that users set."""
CONSTRAINTS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength")
LIMITS = (*CONSTRAINTS, "minItems", "maxItems", "pattern")
STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
RESULT = "->"
"""The member of a function that says what it returns."""

Members = dict[str, Promise]


class Door(NamedTuple):
    made: Callable[[], Surface]
    page: str
    """Where users read about it."""


# --- Python ---------------------------------------------------------------------------------------------------------


def kinds(annotation: Any) -> list[str]:
    """The types and values that an annotation stands for, as promises name them."""
    if annotation is inspect.Parameter.empty:
        return [ANY]
    if type(annotation).__name__ == "TypeAliasType":  # such as pydantic's JsonValue
        return [annotation.__name__]
    origin = get_origin(annotation)
    if origin is Annotated:
        return kinds(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for one in get_args(annotation) for kind in kinds(one)]
    if origin is Literal:
        return [repr(value) for value in get_args(annotation)]
    return [_name(annotation)]


def _name(annotation: Any) -> str:
    if annotation in (None, type(None)):
        return "None"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, str | typing.ForwardRef | typing.TypeVar | typing.ParamSpec):
        return str(getattr(annotation, "__forward_arg__", annotation))
    if isinstance(annotation, list):
        return f"[{', '.join(' | '.join(kinds(one)) for one in annotation)}]"
    origin = get_origin(annotation)
    if origin is None:
        name = getattr(annotation, "__name__", None) or str(annotation)
        if _is_ours(annotation):
            return _label(annotation)
        where = getattr(annotation, "__module__", "").partition(".")[0]
        is_foreign = where in ("temporalio", "sqlalchemy", "httpx2") or name in {cls.__name__ for cls in _classes()}
        return f"{where}.{name}" if is_foreign else name
    inner = ", ".join(" | ".join(kinds(one)) for one in get_args(annotation))
    return f"{_name(origin)}[{inner}]"


def _hints(thing: Any) -> Mapping[str, Any]:
    """Annotations as objects; as texts where a module imports a name only for type checkers."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError:
        return dict(getattr(thing, "__annotations__", {}))


def parameters(function: Callable[..., Any], hides_first: bool = False) -> Iterator[tuple[str, Promise]]:
    hints = _hints(function)
    given = list(inspect.signature(function).parameters.values())[hides_first:]
    for place, parameter in enumerate(given):
        if parameter.name.startswith("_"):
            continue
        promise: dict[str, Any] = {"takes": kinds(hints.get(parameter.name, inspect.Parameter.empty))}
        stars = STARS.get(parameter.kind, "")
        if parameter.default is not parameter.empty or stars:
            promise["default"] = _default(parameter.default) if not stars else "none"
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            promise["place"] = place + 1
        yield f"{stars}{parameter.name}", promise
    yield RESULT, {"gives": kinds(hints.get("return", type(None)))}


def _default(value: object) -> str:
    """As the source would have it; only its type where that would be an address in memory."""
    is_plain = isinstance(value, str | int | float | tuple | list | frozenset | types.NoneType | enum.Enum)
    return repr(str(value)) if isinstance(value, enum.StrEnum) else repr(value) if is_plain else type(value).__name__


def _own(cls: type, name: str) -> bool:
    """Whether a name is promised: a class of ours defines it, and no class of a library that ours is made from."""
    if not _is_promised(cls.__name__, name):
        return False
    definers = [one for one in cls.__mro__ if name in vars(one)]
    return bool(definers) and all(_is_ours(one) for one in definers)


def _is_promised(owner: str, name: str) -> bool:
    return not name.startswith("_") and name not in PRIVATE.get(owner, ())


def _is_ours(thing: object) -> bool:
    return isinstance(thing, type) and thing.__module__.partition(".")[0] in ROOMS


def fields(cls: type) -> Members:
    """The values or the fields of a class, and the properties of one that users import.

    Fields of a class that users import and make are also taken.
    """
    if issubclass(cls, enum.Enum):
        return {str(member.value): {} for member in cls}
    is_made = cls in _named() and not issubclass(cls, READ_ONLY)
    hints, found = _hints(cls), Members()
    for name, default in _defaults(cls).items():
        if not _is_promised(cls.__name__, name):
            continue
        promise: dict[str, Any] = {"gives": kinds(hints[name])}
        if is_made:
            promise = {"takes": promise["gives"], **promise} | ({"default": default} if default else {})
        found[name] = promise
    for name, member in inspect.getmembers(cls, lambda one: isinstance(one, property)):
        if cls in _named() and _own(cls, name):
            found[name] = {"gives": kinds(_hints(member.fget).get("return"))}
    return found


def _defaults(cls: type) -> dict[str, str]:
    """The fields of a class of data, each with its default in words; empty for a field that is required."""
    if issubclass(cls, INJECTED):
        return {}
    if issubclass(cls, BaseModel):
        shown = {name: field for name, field in cls.model_fields.items() if not field.exclude}
        return {
            name: ""
            if field.is_required()
            else _default(field.get_default(call_default_factory=True, validated_data={}))
            for name, field in shown.items()
        }
    if dataclasses.is_dataclass(cls):
        return {one.name: _default_of(one) for one in dataclasses.fields(cls)}
    usual = getattr(cls, "_field_defaults", {})
    return {name: _default(usual[name]) if name in usual else "" for name in getattr(cls, "_fields", ())}


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.default_factory.__name__}()" if isinstance(field.default_factory, type) else "made anew"
    return "" if field.default is dataclasses.MISSING else _default(field.default)


@cache
def _named() -> dict[Any, str]:
    """Each class and function that users import, with its name."""
    found = dict[Any, str]()
    for module in map(importlib.import_module, MODULES):
        for name in _names(module):
            thing = getattr(module, name)
            if callable(thing) and not isinstance(thing, types.GenericAlias):
                found.setdefault(thing, f"{module.__name__}.{name}")
    return found


def _names(module: types.ModuleType) -> Sequence[str]:
    own = [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", module.__name__) == module.__name__
    ]
    listed: Sequence[str] = getattr(module, "__all__", own)
    return [name for name in listed if not inspect.ismodule(getattr(module, name))]


def python() -> Surface:
    """What programs, tools and tests import; and the data that they get from it."""
    found: dict[str, Members] = {}
    for module in map(importlib.import_module, MODULES):
        for name in _names(module):
            thing, owner = getattr(module, name), f"{module.__name__}.{name}"
            if isinstance(thing, type) and get_origin(thing) is None:
                found |= _class(thing, owner)
            elif inspect.isfunction(thing):
                found[owner] = dict(parameters(thing))
            else:
                found[owner] = {RESULT: {"gives": kinds(thing) if get_origin(thing) else kinds(type(thing))}}
    found["replan.tool"] = {f"@{name}": {} for name in DECORATORS}
    found["options of @tool.*"] = options = _options_of_tools()
    found["options of @tool.pure"] = {name: promise for name, promise in options.items() if name not in NOT_PURE}
    found["replan.Replan(**settings)"] = {
        one.name: {"takes": kinds(one.type), "default": "as for `replan worker`"}
        for one in dataclasses.fields(Settings)
        if one.name not in PRIVATE["Settings"]
    }
    fixtures = [
        one for one, thing in vars(pytest_plugin).items() if type(thing).__name__ == "FixtureFunctionDefinition"
    ]
    found["pytest"] = {name: {} for name in (*(f"fixture {one}" for one in fixtures), "setting replan_tools")}
    return found | _reached(found)


def _class(cls: type, owner: str) -> dict[str, Members]:
    """A class with its fields, its methods, and how it is made if that is written down."""
    found = {owner: fields(cls)}
    if not issubclass(cls, (*READ_ONLY, *INJECTED)) and not found[owner] and "__init__" in vars(cls):
        found[f"{owner}()"] = {name: one for name, one in parameters(cls.__init__, True) if name != RESULT}
    for name, method in inspect.getmembers(cls, callable):
        if name == "__call__" and name in vars(cls) and cls is not Tool:
            found[f"{owner}()()"] = dict(parameters(method, hides_first=True))
        elif _own(cls, name) and not isinstance(method, type):
            found[f"{owner}.{name}"] = dict(parameters(method, hides_first=not inspect.ismethod(method)))
    found[owner] = {**_attributes(cls), **found[owner]}
    bases = [one.__name__ for one in cls.__mro__[1:] if one in _named() or one is Exception]
    if bases:
        found[owner] = {"a kind of": {"is": bases[0]}, **found[owner]}
    return found


def _attributes(cls: type) -> Members:
    """The attributes that the `__init__` of a class sets; as a rule each is the parameter of the same name."""
    if "__init__" not in vars(cls) or dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel):
        return {}
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls.__init__)))))
    names = [one.attr for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)]
    hints = _hints(cls.__init__)
    return {name: {"gives": kinds(hints.get(name, Any))} for name in names if _is_promised(cls.__name__, name)}


def _options_of_tools() -> Members:
    hints = _hints(ToolOptions)
    return {
        one.name: {"takes": kinds(hints[one.name]), "default": _default_of(one)}
        for one in dataclasses.fields(ToolOptions)
    }


def _reached(found: Mapping[str, Members]) -> dict[str, Members]:
    """The classes of data that the promises name, and that the fields of these name; not those that are imported."""
    classes = {_label(cls): cls for cls in _classes() if cls not in _named() and cls.__name__ not in NO_DATA}
    reached, waiting = dict[str, Members](), list(found.values())
    while waiting:
        words = re.findall(r"[\w.]+", " ".join(_kinds_of(waiting.pop())))
        for word in {*words} & {*classes} - {*reached}:
            reached[word] = fields(classes[word])
            waiting.append(reached[word])
    return reached


def _kinds_of(members: Members) -> Iterator[str]:
    for promise in members.values():
        yield from (kind for key in ("takes", "gives") for kind in promise.get(key, ()) if not kind.startswith("'"))


def _label(cls: type) -> str:
    """The name of a class of ours; with that of its module where another class of data has the same name."""
    same = [one for one in _classes() if one.__name__ == cls.__name__]
    return cls.__name__ if len({*same, cls}) == 1 else f"{_defined_in(cls).rpartition('.')[2]}.{cls.__name__}"


def _defined_in(cls: type) -> str:
    """The module of a class; `replan` takes the place of that name in each class that it exports."""
    return replan._MODULES[cls.__name__] if cls.__module__ == "replan" else cls.__module__


@cache
def _classes() -> Sequence[type]:
    """The classes of data in the rooms that programs may get: models, records, enums."""
    found = list[type]()
    for file in sorted(file for room in ("workflows", "client", "activities") for file in (ROOT / room).rglob("*.py")):
        module = importlib.import_module(
            ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        )
        found += [cls for cls in vars(module).values() if isinstance(cls, type) and _defined_in(cls) == module.__name__]
    return [cls for cls in found if not cls.__name__.startswith("_") and _is_data(cls)]


def _is_data(cls: type) -> bool:
    return issubclass(cls, BaseModel | enum.Enum) or dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")


# --- JSON -----------------------------------------------------------------------------------------------------------


def schema_kinds(schema: Mapping[str, Any]) -> list[str]:
    """The types and values that a JSON schema allows, as promises name them."""
    if "$ref" in schema:
        return [schema["$ref"].rpartition("/")[2]]
    if "const" in schema:
        return [repr(schema["const"])]
    if "enum" in schema:
        return [repr(value) for value in schema["enum"]]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return list(dict.fromkeys(kind for one in schema[several] for kind in schema_kinds(one)))
    match schema.get("type"):
        case "array":
            items = schema.get("prefixItems") or [schema.get("items", {})]
            return [f"array of {' | '.join(kind for one in items for kind in schema_kinds(one))}"]
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return [f"object of {' | '.join(schema_kinds(schema['additionalProperties']))}"]
        case str(kind):
            return [kind]
    return [ANY]


def limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a value, also of one that may be null."""
    return {name: one[name] for one in (schema, *schema.get("anyOf", ())) for name in LIMITS if name in one}


def schema_members(name: str, schema: Mapping[str, Any], ways: Sequence[str]) -> Members:
    """The fields of the JSON object of a model, or the values of an enum; `ways` are `takes`, `gives`, or both."""
    if "enum" in schema:
        return {str(value): {} for value in schema["enum"]}
    found = Members()
    for key, field in schema.get("properties", {}).items():
        if not _is_promised(name, key):
            continue
        promise: dict[str, Any] = {way: schema_kinds(field) for way in ways}
        if "takes" in ways:
            if key not in schema.get("required", ()):
                promise["default"] = repr(field["default"]) if "default" in field else "left out"
            if bounds := limits(field):
                promise["limits"] = bounds
        found[key] = promise
    return found


def schema_surface(name: str, schema: Mapping[str, Any], ways: Sequence[str], prefix: str = "") -> dict[str, Members]:
    """A JSON schema and those that its fields refer to; these, but for enums, have a prefix before their names."""
    inner = schema.get("$defs", {})
    found, waiting = {name: schema_members(name, schema, ways)}, [name]
    while waiting:
        for word in {*re.findall(r"\w+", " ".join(_kinds_of(found[waiting.pop()])))} & {*inner}:
            owner = word if "enum" in inner[word] else f"{prefix}{word}"
            members = schema_members(word, inner[word], ways)
            if members and owner not in found:
                found[owner] = members
                waiting.append(owner)
    return found


def taken(model: Any, name: str, prefix: str = "") -> dict[str, Members]:
    """What a user may send or write."""
    return schema_surface(name, TypeAdapter(model).json_schema(), ["takes"], prefix)


def given(model: Any, name: str) -> dict[str, Members]:
    adapter = TypeAdapter(model)
    # The schema of what is written has nothing of a model that leaves out fields by itself.
    read, written = (schema_surface(name, adapter.json_schema(mode=mode), ["gives"]) for mode in MODES)
    return read | written


MODES: Sequence[Literal["validation", "serialization"]] = ("validation", "serialization")


def workflow() -> Surface:
    """What programs in any language say to a task through a Temporal SDK, and what it says."""
    answers = {f"Update {choice.value}": row.given for choice, row in CHOICES.items()}
    found: dict[str, Members] = {
        "workflow AgentWorkflow": {"argument": {"takes": ["Task"]}, RESULT: {"gives": ["Outcome"]}},
        "query progress": {},
        "query words": {},
        "search attributes": {name: {"is": kind} for name, kind in search_attributes.TYPES.items()},
    }
    assert (AgentWorkflow.progress.__name__, AgentWorkflow.words.__name__) == ("progress", "words")
    for name, model in answers.items():
        found |= taken(model, name)
    return (
        found
        | taken(Task, "Task", "Task: ")
        | given(Notification, "Notification")
        | given(Outcome, "Outcome")
        | given(Unfinished, "Unfinished")
    )


PAGE = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")


def documents() -> Surface:
    """The JSON of commands and the lines of `--jsonl`, as docs/console.md has them; other tests hold that page."""
    below = tables(sections(PAGE)["The JSON document"])
    events = {row[0]: row[1] for row in below.pop("event")}
    below.pop("command")
    places: dict[str, Members] = {
        f"start, show, call --json: {'the document' if place == 'key' else place}": {row[0]: {} for row in rows}
        for place, rows in below.items()
    }
    for command, keys in printed().items():
        places[f"{command} --json"] = {"schema": {}, **{key: {} for key in keys}}
        places |= {f"{command} --json: {key}[]": {one: {} for one in inner} for key, inner in keys.items() if inner}
    for event, words in events.items():
        same = re.search(r"the keys of `([^`]+)`|the same keys", words)
        place = (same[1] or "requests[]") if same else ""
        named = [row[0] for row in below[place]] if place else re.findall(r"`(\w+)`", words)
        places[f"--jsonl: {event}"] = {key: {} for key in ("schema", "event", *EVENT_KEYS.get(event, named))}
    return places


EVENT_KEYS: Mapping[str, Sequence[str]] = {
    "task": ("task_id", "task", "planner", "strategy", "started_at"),
    "worker": ("answers", "queue"),
    "server": ("answers", "queue"),
    "error": ("error",),
}
"""The keys of events whose row names them in words, or not all of them."""


def http() -> Surface:
    """The requests of `serve`, from its OpenAPI document."""
    app = FastAPI()
    app.include_router(api.router)
    document = app.openapi()
    schemas = document["components"]["schemas"]
    found: dict[str, Members] = {}
    for path, methods in document["paths"].items():
        for method, request in methods.items():
            members = Members()
            for one in request.get("parameters", []):
                promise: dict[str, Any] = {"takes": schema_kinds(one["schema"])}
                if not one.get("required"):
                    promise["default"] = repr(one["schema"]["default"]) if "default" in one["schema"] else "left out"
                if bounds := limits(one["schema"]):
                    promise["limits"] = bounds
                members[f"{one['in']} {one['name']}"] = promise
            if "requestBody" in request:
                [(media, body)] = request["requestBody"]["content"].items()
                is_required = request["requestBody"].get("required")
                members[f"body {media}"] = {"takes": schema_kinds(body["schema"])} | (
                    {} if is_required else {"default": "left out"}
                )
            members |= {f"status {code}": {} for code in request["responses"] if code.startswith("2")}
            found[f"{method.upper()} {path}"] = members
    unread = {"HTTPValidationError", "ValidationError"}  # FastAPI's own, which the application replaces
    sent = {name: schema_members(name, schema, ["takes"]) for name, schema in schemas.items() if name not in unread}
    found |= {name: members for name, members in sent.items() if members}
    for path in ("/health/live", "/health/ready", "/openapi.json"):
        found[f"GET {path}"] = {}
    problems = tables((ROOT / "docs" / "web.md").read_text(encoding="utf-8"))["code"]
    codes = {code: {"is": status} for names, status, _ in problems for code in re.findall(r"\w+", names)}
    return found | given(ProblemDocument, "ProblemDocument") | {"codes of problems, beside those of codes.json": codes}


# --- the rest -------------------------------------------------------------------------------------------------------


def metrics() -> Surface:
    """What Prometheus reads of a worker; counters have `_total` behind their names there."""
    found: dict[str, Members] = {}
    for metric in METRICS:
        kind = "gauge" if metric in GAUGES else "histogram" if metric.buckets else "counter"
        found[metric.name] = {"kind": {"is": kind}, **{f"label {label}": {} for label in metric.labels}}
    return found


def commands() -> Surface:
    """Command lines: of tasks, of a worker; their exit codes, and the variables that both read."""
    found = {f"starter.py {name}": _options(application.load(name)) for name in application.COMMANDS}
    found |= {f"starter.py {name} --store": _options(application.load_on_store(name)) for name in application.ON_STORE}
    found["starter.py"] = {**_options(get_command(application.app)), "--help, -h": {}}
    found["worker.py"] = {**_options(get_command(worker.main)), "--help, -h": {}}
    found["replan worker"] = {"the options of worker.py": {}}
    found["replan.healthy"] = {"python -m replan.healthy [QUEUE]": {}}
    found["replan.ready"] = {"python -m replan.ready [URL]": {}}
    codes = {str(code.value): {"is": code.name.lower()} for code in Exit}
    found["exit codes"] = {**codes, str(BROKEN_PIPE): {"is": "broken_pipe"}}
    return found | {"environment variables": {name: {} for name in sorted(_variables())}}


def _options(command: Any) -> Members:
    found = Members()
    for one in command.params:
        is_switch = getattr(one, "is_flag", False)
        promise: dict[str, Any] = {"takes": ["no value"] if is_switch else kinds(one.type_descriptor.annotation)}
        if not one.required:
            shown = one.get_help_record(typer.Context(command, resilient_parsing=True))
            promise["default"] = "".join(re.findall(r"default: ([^;\]]*)", shown[1] if shown else "")) or "left out"
        if one.multiple:
            promise["is"] = "may be repeated"
        bounds = {"minimum": one.min, "maximum": one.max}
        if any(value is not None for value in bounds.values()):
            promise["limits"] = {name: value for name, value in bounds.items() if value is not None}
        found[one.metavar if one.param_type_name == "argument" else ", ".join(one.opts)] = promise
    return found


def _variables() -> set[str]:
    """The variables of the environment that the source names."""
    looks = re.compile(r"(REPLAN|TEMPORAL|OTEL|ANTHROPIC|OPENAI)_[A-Z_]+")
    files = [
        file for room in ROOMS for file in (ROOT / room).rglob("*.py") if "tests" not in file.parts[len(ROOT.parts) :]
    ]
    files += [ROOT / "worker.py", ROOT / "starter.py"]
    texts = {node.value for file in files for node in ast.walk(_tree(file)) if isinstance(node, ast.Constant)}
    named = {text for text in texts if isinstance(text, str) and looks.fullmatch(text)} - {*NOT_OURS}
    return named | {f"{name}_FILE" for name in SECRETS} | {"NO_COLOR"}


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def files() -> Surface:
    """What users write for Replan: settings, plans, and what a package of tools declares."""
    found = taken(SettingsFile, "settings file", "settings file: ")
    return (
        found
        | taken(PlanFile, "plan file", "plan file: ")
        | {"entry points of packages": {registry.GROUP: {}, declared.GROUP: {}, "pytest11: replan": {}}}
    )


def codes() -> Surface:
    page = sections((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))
    endings = {row[0]: Members(statuses={"is": row[1]}) for row in tables(page["Endings of a task"])["code"]}
    problems = {row[0]: Members(exits={"is": row[1]}) for row in tables(page["Problems of a command"])["code"]}
    return {
        "faults": {code.value: {"is": QUADRANT[code].value} for code in Code},
        "endings of a task": {name: one["statuses"] for name, one in endings.items()},
        "problems of a command, with their exit codes": {name: one["exits"] for name, one in problems.items()},
    }


DOORS: Mapping[str, Door] = {
    "python": Door(python, "docs/client.md, docs/tools.md, docs/faults.md, docs/effects.md"),
    "workflow": Door(workflow, "docs/client.md, docs/people.md"),
    "documents": Door(documents, "docs/console.md"),
    "http": Door(http, "docs/web.md"),
    "metrics": Door(metrics, "docs/observability.md"),
    "commands": Door(commands, "docs/console.md, docs/operations.md"),
    "files": Door(files, "docs/models.md, docs/tools.md"),
    "codes": Door(codes, "docs/errors.md"),
}


def file_of(door: str) -> Path:
    return FOLDER / f"{door}.json"


def sentence(door: str, what: str) -> str:
    """What is wrong with a door, and where it is promised."""
    return f"docs/surface/{door}.json, {DOORS[door].page}: {what}."
