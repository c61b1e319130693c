"""Records the exception classes of the libraries that have a table: `python -m tests.libraries`.

It needs the extra `libraries`. `python -m tests.libraries PACKAGE` prints those of one installed package instead. Each
package is read in a process of its own, since that imports all its modules.
"""

import importlib
import importlib.metadata
import json
import pkgutil
import platform
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from activities.borders import entry_of, table_of, tables
from activities.borders.table import Cases, Entry, qualified
from workflows.faults.fault import QUADRANT, Quadrant

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "activities" / "libraries" / "classes.json"
AUDITED = ROOT / "extras" / "audit" / "classes.json"
RECORD_THEM = 'install `pip install --editable ".[libraries]"` and record them with `python -m tests.libraries`'
WITHOUT_RECORD = {"activities", "anthropic", "openai"}
"""Packages whose classes are not recorded: Replan's own, and the models' SDKs, which have their own tests."""
PACKAGES = tuple(one for packages in tables().values() for one in packages if one not in WITHOUT_RECORD)
STANDARD = tuple(package for package in PACKAGES if package in sys.stdlib_module_names)
DISTRIBUTIONS = {
    "bson": "pymongo",
    "cimpl": "confluent-kafka",
    "confluent_kafka": "confluent-kafka",
    "google": "google-api-core",
    "gridfs": "pymongo",
    "grpc": "grpcio",
    "kafka": "kafka-python",
    "psycopg2": "psycopg2-binary",
}
"""The distribution of a package, where it has another name; that of `google`, which is in several, is the main one."""
IMPORTED_AS = {"cimpl": "confluent_kafka.cimpl"}
"""The module to import for a package, where classes name another one than theirs."""
_APART = {"__main__", "_testbase", "conftest", "pytest_plugin", "test", "testing", "tests"}
"""Parts of a module's name that say that a library does not raise what it defines, or that it runs when imported."""


@dataclass(frozen=True)
class Recorded:
    """One exception class of a library, as its package had it when the classes were recorded."""

    name: str
    parents: tuple[str, ...]
    """The qualified names of its other classes, nearest first; without `object`."""
    sqlstate: str | None = None

    @property
    def is_classified(self) -> bool:
        """Whether an exception of it reaches a table: a warning is shown, and what is no Exception ends a process."""
        classes = {self.name, *self.parents}
        return "builtins.Exception" in classes and "builtins.Warning" not in classes

    @property
    def entry(self) -> Entry | None:
        """The entry of the class or of a parent in its own library, or in another library of the same wire.

        One of a parent in the standard library says nothing about the library: RequestException is an OSError.
        """
        package = self.name.partition(".")[0]
        wire = next(packages for packages in tables().values() if package in packages)
        own = {package} if package in STANDARD else {*wire} - {*STANDARD}
        return entry_of(name for name in (self.name, *self.parents) if name.partition(".")[0] in own)


def recorded() -> Mapping[str, list[Recorded]]:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {
        package: [
            Recorded(name, tuple(one["parents"]), one.get("sqlstate")) for name, one in library["classes"].items()
        ]
        for package, library in record.items()
    }


def without_row() -> Mapping[str, Sequence[str]]:
    """By the row of a table, the short names of the classes that have no row of their own, and are as that row says.

    The SQLSTATE of a class stands behind its row. Histories have these names, and not their parents.
    """
    found = defaultdict[str, set[str]](set)
    for classes in recorded().values():
        for one in classes:
            rows = [name for name in one.parents if name in table_of(name.partition(".")[0])]
            row = next((name for name in rows if entry_of([name]) is one.entry), None)
            if one.is_classified and row and one.name not in table_of(one.name.partition(".")[0]):
                found[f"{row} {one.sqlstate or ''}".strip()].add(one.name.rpartition(".")[2])
    return {row: sorted(names) for row, names in sorted(found.items())}


def text_without_row() -> str:
    lines = ",\n".join(f"{json.dumps(row)}: {json.dumps(names)}" for row, names in without_row().items())
    return f"{{\n{lines}\n}}\n"


def installed(package: str) -> list[Recorded]:
    """The exception classes of an installed package, by name; a process of its own finds them.

    Raises:
        CalledProcessError: it is not installed.
    """
    command = [sys.executable, "-m", "tests.libraries", package]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Recorded(name, tuple(one["parents"]), one.get("sqlstate")) for name, one in json.loads(done.stdout).items()]


def _classes(package: str) -> Iterator[Recorded]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _import_modules(importlib.import_module(IMPORTED_AS.get(package, package)))
    found = {qualified(one): one for one in _below(BaseException) if one.__module__.partition(".")[0] == package}
    for name, one in sorted(found.items()):
        if issubclass(one, BaseExceptionGroup) or _APART & {*one.__module__.split(".")}:
            continue
        sqlstate = getattr(one, "sqlstate", None)
        parents = tuple(qualified(parent) for parent in one.__mro__[1:-1])
        yield Recorded(name, parents, sqlstate if isinstance(sqlstate, str) else None)


def _import_modules(package: ModuleType) -> None:
    for found in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        if _APART & {*found.name.split(".")}:
            continue
        module = None
        with suppress(Exception, SystemExit):  # it needs a package or a platform that is not here
            module = importlib.import_module(found.name)
        if module is not None and found.ispkg:
            _import_modules(module)


def _below(raised: type[BaseException]) -> Iterator[type[BaseException]]:
    yield raised
    for child in raised.__subclasses__():
        yield from _below(child)


def _version(package: str) -> str:
    if package in STANDARD:
        return f"Python {'.'.join(platform.python_version_tuple()[:2])}"
    return importlib.metadata.version(DISTRIBUTIONS.get(package, package))


def _lines(classes: Iterable[Recorded]) -> str:
    """JSON with one class in a line, so that a diff shows what a new version brought."""
    states = {one.name: {"sqlstate": one.sqlstate} if one.sqlstate else {} for one in classes}
    lines = [f"{json.dumps(one.name)}: {json.dumps({'parents': one.parents, **states[one.name]})}" for one in classes]
    return "{\n" + ",\n".join(lines) + "\n}"


def _counts(classes: Iterable[Recorded]) -> str:
    counts = Counter[str]()
    for one in classes:
        entry = one.entry
        if not one.is_classified:
            counts["not judged"] += 1
        elif entry is None:
            counts["no entry"] += 1
        else:
            counts["by data" if isinstance(entry, Cases) else QUADRANT[entry.code]] += 1
    return "".join(f"{counts[column]:>13}" for column in _COLUMNS) + f"{counts.total():>13}"


_COLUMNS = {
    Quadrant.TRANSIENT_INFRASTRUCTURAL: "trans. inf.",
    Quadrant.TRANSIENT_SEMANTIC: "trans. sem.",
    Quadrant.PERSISTENT_INFRASTRUCTURAL: "pers. inf.",
    Quadrant.PERSISTENT_SEMANTIC: "pers. sem.",
    "by data": "by data",
    "no entry": "no entry",
    "not judged": "not judged",
}


def _record() -> None:
    libraries = {package: installed(package) for package in PACKAGES}
    parts = [
        f'{json.dumps(package)}: {{"version": {json.dumps(_version(package))}, "classes": {_lines(classes)}}}'
        for package, classes in libraries.items()
    ]
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    print(f"{'':14}" + "".join(f"{column:>13}" for column in (*_COLUMNS.values(), "all")))
    for package, classes in libraries.items():
        print(f"{package:14}{_counts(classes)}")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(_lines(list(_classes(sys.argv[1]))))
    else:
        _record()
        AUDITED.write_text(text_without_row(), encoding="utf-8")
