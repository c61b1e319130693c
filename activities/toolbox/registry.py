"""Collects the kinds of one worker from the built-in tools and the user's files, modules and packages."""

import ast
import importlib.metadata
import importlib.util
import inspect
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from activities.borders import declared, described
from activities.storage.store import spoken
from activities.toolbox import extra
from activities.toolbox.declare.kind import Kind, describe
from activities.toolbox.declare.tool import Tool
from activities.toolbox.find_tools import MAX_SHOWN, NAME as FIND_TOOLS, find_tools_among
from extras import __name__ as extras
from workflows.plans.catalogue import Effect
from workflows.text import legible, nearest

GROUP = "replan.tools"
"""The group of entry points whose values are modules with tools."""
IMPORTABLE = Path(__file__).with_name("importable")
"""The folder with the package `replan_tools`, of which each tools file is a module."""
OF_EXTRAS = f"{extras}."
"""How the names of modules begin that make tools of other programs' ones."""
OWN = {"replan", __name__.partition(".")[0]}
"""Replan's own packages: `replan`, which tools import, and the package of this module."""


class ToolMistakes(Exception):
    """Some tools cannot be used; `mistakes` has one sentence for each mistake, which also says what to do."""

    def __init__(self, mistakes: list[str]) -> None:
        verdict = f"{len(mistakes)} mistakes: no tool is served until they are corrected."
        super().__init__("\n".join([*mistakes, verdict] if len(mistakes) > 1 else mistakes))
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
        If `tools` is a mapping, its values are those of `load_all`: the package that each tool comes with.
        If there are more than `MAX_SHOWN` kinds, the kind `find_tools` is added.

        Raises:
            ToolMistakes: some tools cannot be used, e.g. one of `tools` has the name of a `builtin` tool.
        """
        self._kinds: dict[str, Kind] = {}
        self.left_out: list[str] = []  # kinds that use a model, if the worker has no model
        mistakes, self._places, own = list[str](), dict[str, str](), list(tools)
        self._reasons = dict[str, str]()
        packages = tools if isinstance(tools, Mapping) else {}
        self.own = frozenset(tool.__name__ for tool in own)
        """The kinds of the user's own tools; the others come with Replan."""
        world = _without(demo, own)
        for tool in [*_without(builtin, world), *own, *world]:
            kind, wrong = describe(tool)
            if tool.__name__ in self._places:
                wrong.append(f"{tool.__name__}: another tool has this name already: rename the function.")
            self._places[tool.__name__] = tool.origin.place or _place(tool, packages.get(tool, ""))
            self._reasons[tool.__name__] = tool.origin.because
            mistakes += _with_place(self._places[tool.__name__], wrong)
            if kind is not None and kind.asks_model and not has_model:
                self.left_out.append(tool.__name__)
            elif kind is not None:
                self._kinds[tool.__name__] = kind
        mistakes += self._add_finder()
        # Not after other mistakes: a tool with mistakes is not in `_kinds`, and would be reported as missing.
        mistakes += [] if mistakes else self._missing_companions()
        mistakes += self._different_limits()
        if mistakes:
            raise ToolMistakes(mistakes)

    def __getitem__(self, kind: str) -> Kind:
        return self._kinds[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def catalogue(self, notes: Mapping[str, str] | None = None) -> str:
        """The text that `--check` prints: the tools, the kinds and packages that are missing, and the number of tools.

        Only the user's own tools are described; if there are none, all tools are described. `notes` has one more line
        for some kinds, by the name of the kind.
        """
        offered = [name for name, kind in self.items() if not kind.is_hidden]
        shown = [name for name in offered if name in self.own or not self.own]
        rest = [name for name in offered if name not in shown]
        width = max(map(len, shown), default=0)
        lines = list[str]()
        for name in shown:
            reason = f"  ({self._reasons[name]})" if self._reasons[name] else ""
            lines += _lines(self[name], width, f"{self._places[name]}{reason}" if self.own else "")
            lines += [f"    {notes[name]}"] if notes and name in notes else []
        lines += [f"Tools that come with Replan: {', '.join(rest)}"] if rest else []
        lines += [f"Not offered, since this worker has no model: {', '.join(self.left_out)}"] if self.left_out else []
        lines += filter(None, [extra.missing()])
        lines += self._unknown_exceptions()
        own = f"{len(shown)} tool{'s' * (len(shown) > 1)} of yours: no mistakes." if self.own else ""
        lines.append(own or f"{len(shown)} tools, which come with Replan; --tools adds your own.")
        return "\n".join(map(_wrapped, lines) if sys.stdout.isatty() else lines)

    def _unknown_exceptions(self) -> Iterator[str]:
        """Yield a line for each package that tools files import and whose exceptions are in no table or `raises=`."""
        own = [kind for name, kind in self._kinds.items() if name in self.own]
        raises = {raised: entry for kind in own for raised, entry in kind.raises.items()}
        modules = {module for kind in own if not (module := kind.function.__module__).startswith(OF_EXTRAS)}
        packages = {package for module in modules for package in _imported(module)}
        for package in sorted(packages - sys.stdlib_module_names - OWN):
            left = [found for found in described.unknown(package) if declared.entry_of(found, raises) is None]
            if left:
                names = ", ".join(found.__qualname__ for found in left[:3]) + (", …" if len(left) > 3 else "")
                remedy = "say what they are with raises= (docs/tools.md#exceptions-of-other-libraries)."
                is_bug = "so each is a bug, for a person, or guessed from its HTTP status"
                yield f"No table knows the exceptions of {package} ({names}), {is_bug}: {remedy}"

    def _add_finder(self) -> list[str]:
        """Add `find_tools` if there are more than `MAX_SHOWN` kinds; return a mistake if another tool has this name."""
        if FIND_TOOLS in self._places:
            taken = f"{FIND_TOOLS}: this is the name of a built-in tool: rename the function."
            return _with_place(self._places[FIND_TOOLS], [taken])
        if len(self._kinds) <= MAX_SHOWN:
            return []
        finder, wrong = describe(find_tools_among(self._kinds))
        self._kinds |= {FIND_TOOLS: finder} if finder else {}
        return wrong

    def _different_limits(self) -> Iterator[str]:
        """Yield a mistake for each kind whose `limit` differs from that of the first kind of the same service."""
        first = dict[str, Kind]()
        for name, kind in self._kinds.items():
            other = first.setdefault(kind.service, kind)
            if kind.breaker and other.breaker and kind.limit != other.limit:
                wrong = (
                    f"{name}: limit={kind.limit!r} is not the limit of {other.spec.kind}, which calls the same service "
                    f"({kind.service}): declare the same one, {other.limit!r}."
                )
                yield from _with_place(self._places[name], [wrong])

    def _missing_companions(self) -> Iterator[str]:
        """Yield a mistake for each kind that an option names, e.g. `undo`, and that this worker does not have."""
        for spec in (kind.spec for kind in self._kinds.values()):
            companions = [companion.kind for companion in (spec.observe, spec.reconcile, spec.undo) if companion]
            for other in filter(None, [*companions, spec.fallback]):
                [names] = _with_place(self._places[spec.kind], [f"{spec.kind}: names {other!r}, which"])
                if other in self.left_out:
                    yield f"{names} takes a model, and this worker has none: set a key or --planner, or leave it out."
                elif other not in self._kinds:
                    yield f"{names} no tools file defines{nearest(other, self._kinds)}: load it too."


def _without(tools: Iterable[Tool[..., Any]], others: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
    """The `tools` without those that have the name of one of the `others`."""
    taken = {tool.__name__ for tool in others}
    return [tool for tool in tools if tool.__name__ not in taken]


def _place(tool: Tool[..., Any], package: str = "") -> str:
    """`FILE:LINE (PACKAGE)` of a tool's function; only the package if the source cannot be read."""
    try:
        source, (_, line) = inspect.getsourcefile(tool.function), inspect.getsourcelines(tool.function)
    except (OSError, TypeError):  # the file has changed, or what was decorated is neither function nor class
        return package
    return f"{_shown(source or '')}:{line}" + (f" ({package})" if package else "")


def _shown(file: str) -> str:
    """A path as text, relative to the current directory if the file is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _with_place(place: str, mistakes: Iterable[str]) -> list[str]:
    return [f"{place}: {mistake}" if place else mistake for mistake in mistakes]


def _wrapped(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, shutil.get_terminal_size().columns, subsequent_indent=indent, break_long_words=False)


def _lines(kind: Kind, width: int, place: str) -> list[str]:
    """The three lines of `--check` about a kind: its name is padded to `width`, and `place` is FILE:LINE or empty."""
    spec = kind.spec
    properties = kind.args_schema.get("properties", {})
    more = [f"{legible(name)}: {part.get('format') or part.get('type') or 'any'}" for name, part in properties.items()]
    more += [f"observe={spec.observe.kind}"] if spec.observe else []
    more += [f"reconcile={spec.reconcile.kind}, settle={spec.settle:g} s"] if spec.reconcile else []
    more += [f"undo={spec.undo.kind}"] if spec.undo else []
    more += [f"fallback={spec.fallback}"] if spec.fallback else []
    more += [f"ensure={spec.ensure}"] if spec.ensure else []
    more += [f"approve={spec.approve}"] if spec.approve else []
    more += [f"approved by {spec.approvers.text()}"] if spec.approvers else []
    more += [f"datasource={spoken(kind.datasource.url)}"] if kind.datasource else []
    more += [] if spec.pure or kind.breaker else ["no breaker"]
    more += [f"breaker: {kind.breaker}"] if kind.breaker and str(kind.breaker) else []
    more += ["untrusted"] if spec.untrusted else []
    authority = spec.authority_of([*properties])
    more += (
        [f"authority: {'all' if authority == [*properties] else ', '.join(map(legible, authority))}"]
        if authority
        else []
    )
    more += [f"tokens={spec.tokens}"] if spec.tokens else []
    first = f"{spec.kind:<{width}}  {spec.effect:<{max(map(len, Effect))}}  {place}".rstrip()
    return [
        first,
        f"    {kind.description.splitlines()[0]}",
        f"    {', '.join(more)}{'; ' * bool(more)}{'pure' if spec.pure else spec.retry}, {spec.timeout:g} s",
    ]


def load_all(names: Iterable[str]) -> dict[Tool[..., Any], str]:
    """Load the tools of files and modules, and those of installed packages with an entry point of `replan.tools`.

    The values are the packages (name and version) whose entry points name the tools; empty for a tool of `names`.
    Raises ToolMistakes, with the mistakes of all that cannot be loaded.
    """
    tools, mistakes = dict[Tool[..., Any], str](), list[str]()
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name)
    installed = [
        (point.value, f"{point.dist.name} {point.dist.version}" if point.dist else point.name) for point in points
    ]
    for name, package in [*((name, "") for name in names), *installed]:
        try:
            is_file = not package and (name.endswith(".py") or os.sep in name or Path(name).is_file())
            found = load(Path(name)) if is_file else load_module(name)
            tools |= {tool: package for tool in found if tool not in tools}
        except ToolMistakes as wrong:
            by = f"{GROUP} of {package}: " if package else ""
            mistakes += [f"{by}{mistake}" for mistake in wrong.mistakes]
    if mistakes:
        raise ToolMistakes(
            [mistake for tool in tools for mistake in _with_place(_place(tool), describe(tool)[1])] + mistakes
        )
    return tools


def load_module(name: str) -> list[Tool[..., Any]]:
    """Import a module, from the current directory if no installed module has its name, and return its tools.

    Raises:
        ToolMistakes: there is no such module, it cannot be imported, or it defines no tool.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise ToolMistakes(
            [f"{name!r} is neither a file that ends in .py nor the name of a module such as shop.tools."]
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # at the end, for the same reason as the folder of a file
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever the module raises is a mistake in the module
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            raise ToolMistakes([_no_module_mistake(missing)]) from error
        raise ToolMistakes([_import_mistake(_raised_in(name, error), error)]) from error
    tools = tools_in(module)
    if not tools:
        remedy = "decorate a function, e.g. with @tool.read, or name the module that does."
        raise ToolMistakes([f"{name} ({_shown(module.__file__ or '')}) defines no tool: {remedy}"])
    return tools


def _no_module_mistake(name: str) -> str:
    remedy = "check --tools, or start the worker in the folder that has it"
    if package := sys.modules.get(name.rpartition(".")[0]):
        return f"There is no module {name} in {', '.join(map(_shown, package.__path__))}: {remedy}."
    return f"There is no module {name}, neither installed nor in {Path.cwd()}: {remedy}."


def _import_mistake(where: str, error: BaseException) -> str:
    is_missing = isinstance(error, ModuleNotFoundError)
    remedy = f"install it for {sys.executable}, or correct the import" if is_missing else "correct it there"
    return f"{where} cannot be imported ({_in_one_line(error)}): {remedy}."


def _raised_in(module: str, error: BaseException) -> str:
    """`FILE:LINE` of the module's own code that raised an error, or called code that did; else the module's name."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}"
    frames = [
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals["__name__"] == module
    ]
    return f"{_shown(frames[-1][0].f_code.co_filename)}:{frames[-1][1]}" if frames else module


def load(path: Path) -> list[Tool[..., Any]]:
    """Import a user's tools file and return the tools that it defines; raises ToolMistakes if there are none."""
    if not path.is_file():
        raise ToolMistakes([f"There is no tools file {path}: check --tools."])
    name = f"replan_tools.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ToolMistakes([f"{path} is not a Python file: --tools takes files that end in .py."])
    for folder in (IMPORTABLE, path.parent.resolve()):
        if str(folder) not in sys.path:
            # At the end: the file can import files beside it, and these cannot hide installed modules.
            sys.path.append(str(folder))
    module = importlib.util.module_from_spec(spec)
    # Before the import runs: pydantic resolves annotations of the file's classes through `sys.modules`.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the file raises is a mistake in the file
        raise ToolMistakes([_import_mistake(f"{path}{_line(error, spec.origin)}", error)]) from error
    tools = tools_in(module)
    if not tools:
        raise ToolMistakes([f"{path} defines no tool: decorate a function, e.g. with @tool.read."])
    return tools


def _line(error: BaseException, file: str | None) -> str:
    """`:LINE` of `file` at which an error was raised; empty if the error did not come from `file`."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f":{lines[-1]}" if lines else ""


def _in_one_line(error: BaseException) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return ": ".join([type(error).__name__, *message.splitlines()[:1]]).rstrip(".")


def _imported(module: str) -> set[str]:
    """The top-level packages that a loaded module imports at its top."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):  # it is not loaded from a file, or the file has changed
        return set()
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names} - {""}


def tools_in(module: ModuleType) -> list[Tool[..., Any]]:
    """The tools that a module defines, or imports from a submodule, in the order of their names in the module."""
    found = (value for value in vars(module).values() if isinstance(value, Tool))
    return [tool for tool in dict.fromkeys(found) if f"{tool.function.__module__}.".startswith(f"{module.__name__}.")]
