"""Finds the libraries that a function can use, as far as its code names them: which it may send requests with."""

import builtins
import dis
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache, partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

MAX_THINGS = 5_000
"""The most functions, classes and values that a search visits."""
MAX_ITEMS = 100
"""The most items of a list, dict, tuple or set that a search visits."""

_FOLDERS = {name: sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_REPLAN = __name__.partition(".")[0]


def libraries_of(function: object) -> frozenset[str] | None:
    """The top-level packages that `function`, or a function or class of its program, names; Python's own packages, too.

    None if the search would visit more than `MAX_THINGS` objects.

    The search follows names: what the function reads from its module and from other modules of the same program, what
    the function imports in its body, and the classes and attributes of the objects found there. A module that is looked
    up by a text, as with `importlib.import_module`, is not found.
    """
    found, visited, left = set[str](), dict[int, object](), [function]
    while left and len(visited) < MAX_THINGS:
        thing = left.pop()
        if id(thing) in visited:
            continue
        visited[id(thing)] = thing  # kept, since the id of an object that is gone is used again
        module = _module_of(thing)
        if _is_own(module) or _is_wrapper(thing):
            left += _parts(thing)
            found |= _imported_packages(thing)
        else:
            found.add(module.partition(".")[0].lstrip("_"))  # Python's own libraries in C: _sqlite3
    return None if left else frozenset(found)


def is_foreign(defined: type | FunctionType) -> bool:
    """Whether a class or function belongs to an installed package, and not to the program or to Python itself."""
    return _place_of(str(defined.__module__)) == "package"


_WRAPPERS = (partial, MethodType, staticmethod, classmethod, property, list, tuple, set, frozenset, dict)


def _is_wrapper(thing: object) -> bool:
    """Whether a thing matters only for what it holds: a container, or what a decorator has made of a function."""
    return isinstance(thing, _WRAPPERS) or "__wrapped__" in getattr(thing, "__dict__", {})


def _parts(thing: Any) -> Iterator[object]:
    """Yield what a function, class, module or value of the program contains, and the values that a function names."""
    match thing:
        case FunctionType():
            yield from _named(thing)
            yield from map(_content, thing.__closure__ or ())
            yield from (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
            yield from vars(thing).values()  # what a decorator has wrapped
        case type():
            # Without what pydantic keeps there.
            made = {name: value for name, value in vars(thing).items() if not name.startswith("__pydantic")}
            yield from (*thing.__bases__, *made.values())
        case partial():
            yield from (thing.func, *thing.args, *thing.keywords.values())
        case MethodType():
            yield from (thing.__func__, thing.__self__)
        case staticmethod() | classmethod():
            yield thing.__func__
        case property():
            yield from (thing.fget, thing.fset)
        case dict():
            yield from list(thing.values())[:MAX_ITEMS]
        case list() | tuple() | set() | frozenset():
            yield from list(thing)[:MAX_ITEMS]
        case ModuleType():
            return  # its parts are found by the names that a function reads of it
        case _:
            yield type(thing)
            yield from list(getattr(thing, "__dict__", {}).values())


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return None


def _named(function: FunctionType) -> Iterator[object]:
    """Yield the values that a function's code names, in its module and in the program's modules that it names."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    known: Mapping[str, Any] = function.__globals__
    values = [known[name] for name in names if name in known]
    yield from values
    imported = [sys.modules.get(name) for name in _imports(function)]
    for module in (*values, *imported):  # a program may put any object into sys.modules, or None
        if isinstance(module, ModuleType) and _is_own(module.__name__):
            yield from (vars(module)[name] for name in names if name in vars(module))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imports(function: FunctionType) -> Iterator[str]:
    for code in _codes(function.__code__):
        yield from (
            str(instruction.argval) for instruction in dis.get_instructions(code) if instruction.opname == "IMPORT_NAME"
        )


def _imported_packages(thing: object) -> set[str]:
    """The top-level packages of other programs that a function imports in its body; empty for any other object."""
    if not isinstance(thing, FunctionType):
        return set()
    return {name.partition(".")[0] for name in _imports(thing) if name and not _is_own(name)}


def _module_of(thing: object) -> str:
    """The name of a module, or of the module that defines a function or class; for a value, that of its class."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    named = thing if isinstance(thing, FunctionType | BuiltinFunctionType | type) else type(thing)
    return str(getattr(named, "__module__", None) or builtins.__name__)


def _is_own(module: str) -> bool:
    """Whether a module belongs to the user's program."""
    return _place_of(module) == "own"


@cache
def _place_of(module: str) -> str:
    """`own` for a module of the user's program, `package` for one of an installed package, `python` for Python's."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names:
        return "python"
    file = str(getattr(sys.modules.get(module) or sys.modules.get(root), "__file__", None) or "")
    is_package = root == _REPLAN or file.startswith((_FOLDERS["purelib"], _FOLDERS["platlib"]))
    return "package" if is_package else "own"
