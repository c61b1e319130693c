"""Each exception class of each library has a row or is a stated bug; `python -m tests.libraries` records the classes.

`make test` reads the record, and needs no library. `make test-all` compares the record with the installed packages.
"""

import importlib
import re
from collections.abc import Iterator, Mapping

import pytest

from activities.borders import entry_of, table_of, tables
from activities.borders.table import Cases, Entry, Row, qualified
from tests.libraries import IMPORTED_AS, PACKAGES, RECORD_THEM, Recorded, installed, recorded

RECORD = recorded()
RECORDED = {one.name for classes in RECORD.values() for one in classes}
NEVER_RAISED = {
    "asyncpg.connect_utils._NextHostSignal": "the library catches it",
    "asyncpg.connect_utils._RetryConnectSignal": "the library catches it",
    "concurrent.futures.process._RemoteTraceback": "the cause of an exception of another process, as text",
    "pydantic._internal._discriminated_union.MissingDefinitionForUnionRef": "the library catches it",
    "pydantic._internal._generate_schema.InvalidSchemaError": "the library catches it",
    "pydantic.v1.schema.SkipField": "the library catches it",
    "pydantic_core._pydantic_core.PydanticCustomError": "a validator raises it, and pydantic a ValidationError",
    "pydantic_core._pydantic_core.PydanticKnownError": "a validator raises it, and pydantic a ValidationError",
    "pydantic_core._pydantic_core.PydanticOmit": "a validator raises it, and pydantic leaves the item out",
    "pydantic_core._pydantic_core.PydanticSerializationUnexpectedValue": "pydantic catches it, and warns",
    "pydantic_core._pydantic_core.PydanticUseDefault": "a validator raises it, and pydantic takes the default",
    "pydantic_core._pydantic_core._schema_gather.MissingDefinitionError": "pydantic catches it",
    "socket._GiveupOnSendfile": "socket.sendfile catches it, and sends in another way",
    **dict.fromkeys(
        (
            f"sqlalchemy.engine.interfaces.DBAPIModule.{kind}Error"
            for kind in ("", "Integrity", "Interface", "Operational")
        ),
        "a type for the classes of a driver",
    ),
    "sqlalchemy.orm.mapper._OptGetColumnsNotAvailable": "the library catches it",
    "sqlalchemy.orm.util._CleanupError": "the library catches it",
    "sqlalchemy.util.queue.Empty": "the library catches it",
    "sqlalchemy.util.queue.Full": "the library catches it",
}
"""Classes without a row, and why no tool meets them."""
NEWER = {"asyncio.queues.QueueShutDown": "Python 3.13", "queue.ShutDown": "Python 3.13"}
"""Keys of the tables whose class the recorded versions lack, and which version has it."""


def needs_entry(one: Recorded) -> bool:
    """Whether a tool can meet a class that is not one of Python's own errors.

    These stay without a row: one for ValueError would also cover each library's children of it.
    """
    is_python = one.name.startswith("builtins.") and "builtins.OSError" not in (one.name, *one.parents)
    return one.is_classified and one.name not in NEVER_RAISED and not is_python


def exists(name: str) -> bool:
    """Whether a class is recorded, or can be imported, and has this name; an alias of it would never be found."""
    if name in RECORDED or name in NEWER:
        return True
    module, _, attribute = name.rpartition(".")
    try:
        return qualified(getattr(importlib.import_module(module), attribute)) == name
    except (ImportError, AttributeError):
        return False


def rows(entries: Mapping[str, Entry]) -> Iterator[tuple[str, Row]]:
    """The rows of a table, also those among which data choose, by the name of the class."""
    for name, entry in entries.items():
        if isinstance(entry, Cases):
            yield from ((f"{name} ({value})", row) for value, row in entry.rows.items())
        else:
            yield name, entry


def test_each_library_is_recorded() -> None:
    """A library that gets a table gets a record."""
    assert [package for package in PACKAGES if package not in RECORD] == [], RECORD_THEM


@pytest.mark.parametrize("package", PACKAGES)
def test_each_class_has_an_entry_of_its_own_library(package: str) -> None:
    """Default deny is never an accident: who finds no entry adds one, of code `bug` if a person has to fix the tool."""
    assert [one.name for one in RECORD[package] if needs_entry(one) and one.entry is None] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_each_key_of_a_table_is_a_class_and_each_reason_one_sentence(package: str) -> None:
    """A key with a typing error would never be found, nor one of a package that does not lead to the table."""
    wire = next(packages for packages in tables().values() if package in packages)
    entries = {name: entry for name, entry in table_of(package).items() if name.partition(".")[0] == package}
    sentence = re.compile(r"(?:e\.g\.|[^\n.]|\.(?! ))+\.")

    assert [name for name in entries if not exists(name)] == []
    assert [name for name in table_of(package) if name.partition(".")[0] not in wire] == []
    assert [(name, row.reason) for name, row in rows(entries) if not sentence.fullmatch(row.reason)] == []


def test_what_has_no_row_is_still_there() -> None:
    """A class that a new version no longer has, or that has got a row, leaves the list."""
    assert [name for name in NEVER_RAISED if name not in RECORDED or entry_of([name]) is not None] == []


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
def test_each_installed_class_is_recorded(package: str) -> None:
    """A class that a new version of a library brings fails here until it is recorded, and then until it has an entry.

    One with an entry under its own name need not be recorded: this Python may be newer than that of the record.
    """
    pytest.importorskip(IMPORTED_AS.get(package, package))
    new = [one for one in installed(package) if needs_entry(one) and one.name not in RECORDED]

    assert [one.name for one in new if entry_of([one.name]) is None] == [], RECORD_THEM
