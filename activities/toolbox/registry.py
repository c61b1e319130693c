"""Collects the kinds of one worker from the built-in tools and the user's tools files."""

import importlib.util
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from activities.storage.store import spoken
from activities.toolbox.declare.kind import Kind, describe
from activities.toolbox.declare.tool import Tool
from activities.toolbox.documents import extra
from activities.toolbox.find_tools import MAX_SHOWN, find_tools_among
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from workflows.plan import nearest


class ToolMistakes(Exception):
    """Some tools cannot be used; `mistakes` has one sentence for each mistake, which also says what to do."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Registry(Mapping[str, Kind]):
    """The kinds of one worker (its tools, after they were checked), by their names."""

    def __init__(
        self,
        tools: Iterable[Tool[..., Any]],
        *,
        builtin: Iterable[Tool[..., Any]] = (),
        demo: Iterable[Tool[..., Any]] = (),
        has_model: bool = True,
    ) -> None:
        """Check every tool. One of the user's `tools` replaces a `demo` tool of the same name.

        A `demo` tool replaces a `builtin` tool of the same name. Without a model, tools that use a model are left out.
        If there are more than `MAX_SHOWN` kinds, the kind `find_tools` is added.

        Raises:
            ToolMistakes: some tools cannot be used, e.g. one of `tools` has the name of a `builtin` tool.
        """
        self._kinds: dict[str, Kind] = {}
        self.left_out: list[str] = []  # kinds that use a model, if the worker has no model
        mistakes, names, own = list[str](), set[str](), list(tools)
        world = _without(demo, own)
        for tool in [*_without(builtin, world), *own, *world]:
            kind, wrong = describe(tool)
            mistakes += wrong
            if tool.__name__ in names:
                mistakes.append(f"{tool.__name__}: another tool has this name already: rename the function.")
            names.add(tool.__name__)
            if kind is not None and kind.asks_model and not has_model:
                self.left_out.append(tool.__name__)
            elif kind is not None:
                self._kinds[tool.__name__] = kind
        mistakes += self._add_finder(names)
        # Not after other mistakes: a tool with mistakes is not in `_kinds`, and would be reported as missing.
        mistakes += [] if mistakes else self._missing_companions()
        if mistakes:
            raise ToolMistakes(mistakes)

    def __getitem__(self, kind: str) -> Kind:
        return self._kinds[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def catalogue(self) -> str:
        lacks = [f"Not offered, since this worker has no model: {', '.join(self.left_out)}"] if self.left_out else []
        return "\n".join([*map(_lines, self._kinds.values()), *lacks, *filter(None, [extra.missing()])])

    def _add_finder(self, taken: Collection[str]) -> list[str]:
        """Add `find_tools` if there are more than `MAX_SHOWN` kinds.

        Return a mistake if another tool has this name, else an empty list.
        """
        if FIND_TOOLS in taken:
            return [f"{FIND_TOOLS}: this is the name of a built-in tool: rename the function."]
        if len(self._kinds) <= MAX_SHOWN:
            return []
        finder, wrong = describe(find_tools_among(self._kinds))
        self._kinds |= {FIND_TOOLS: finder} if finder else {}
        return wrong

    def _missing_companions(self) -> Iterator[str]:
        for spec in (kind.spec for kind in self._kinds.values()):
            companions = [one.kind for one in (spec.observe, spec.reconcile, spec.undo) if one]
            for other in filter(None, [*companions, spec.fallback]):
                names = f"{spec.kind}: names {other!r}, which"
                if other in self.left_out:
                    yield f"{names} takes a model, and this worker has none: set a key or --planner, or leave it out."
                elif other not in self._kinds:
                    yield f"{names} no tools file defines{nearest(other, self._kinds)}: load it too."


def _without(tools: Iterable[Tool[..., Any]], others: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
    """The tools in `tools` whose names are not used in `others`."""
    taken = {tool.__name__ for tool in others}
    return [tool for tool in tools if tool.__name__ not in taken]


def _lines(kind: Kind) -> str:
    spec = kind.spec
    first = f"{spec.kind:<16} {spec.effect:<14} {kind.description.splitlines()[0]}"
    more = [
        f"{name}: {part.get('format') or part.get('type') or 'any'}"
        for name, part in kind.args_schema.get("properties", {}).items()
    ]
    more += [f"observe={spec.observe.kind}"] if spec.observe else []
    more += [f"reconcile={spec.reconcile.kind}, settle={spec.settle:g} s"] if spec.reconcile else []
    more += [f"undo={spec.undo.kind}"] if spec.undo else []
    more += [f"fallback={spec.fallback}"] if spec.fallback else []
    more += [f"ensure={spec.ensure}"] if spec.ensure else []
    more += [f"datasource={spoken(kind.datasource.url)}"] if kind.datasource else []
    more += ["untrusted"] if spec.untrusted else []
    more += [f"tokens={spec.tokens}"] if spec.tokens else []
    return f"{first}\n{'':<16} {', '.join(more)}; {spec.retry}, {spec.timeout:g} s"


def load_all(paths: Iterable[Path]) -> list[Tool[..., Any]]:
    """Load the tools of several files; raises ToolMistakes with the mistakes of all files."""
    tools, mistakes = list[Tool[..., Any]](), list[str]()
    for path in paths:
        try:
            tools += load(path)
        except ToolMistakes as wrong:
            mistakes += wrong.mistakes
    if mistakes:
        raise ToolMistakes(mistakes)
    return tools


def load(path: Path) -> list[Tool[..., Any]]:
    """Import a user's tools file and return the tools that it defines.

    Raises:
        ToolMistakes: the file is missing, cannot be imported, or defines no tool.
    """
    if not path.is_file():
        raise ToolMistakes([f"There is no tools file {path}: check --tools."])
    name = f"replan_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ToolMistakes([f"{path} is not a Python file: --tools takes files that end in .py."])
    if str(path.parent.resolve()) not in sys.path:
        # At the end: the file can import files beside it, and these cannot hide installed modules.
        sys.path.append(str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    # Before the import runs: pydantic resolves annotations of the file's classes through `sys.modules`.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the file raises is a mistake in the file
        raise ToolMistakes([f"{path}{_line(error, spec.origin)} cannot be imported: {_what(error)}."]) from error
    tools = tools_in(module)
    if not tools:
        raise ToolMistakes([f"{path} defines no tool: decorate a function, e.g. with @tool.read."])
    return tools


def _line(error: BaseException, file: str | None) -> str:
    """The line of `file` that an exception comes from, as `:LINE`; empty if it does not come from this file."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f":{lines[-1]}" if lines else ""


def _what(error: BaseException) -> str:
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    return ": ".join([type(error).__name__, *words.splitlines()[:1]]).rstrip(".")


def tools_in(module: ModuleType) -> list[Tool[..., Any]]:
    """The tools that a module defines itself, in the order of their definition."""
    found = (value for value in vars(module).values() if isinstance(value, Tool))
    return [tool for tool in dict.fromkeys(found) if tool.function.__module__ == module.__name__]
