"""Tools as their authors write them: what is wrong with one is said in one sentence that names it and the remedy."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from activities.toolbox.registry import Registry, ToolMistakes, load
from replan import tool
from workflows.plans.references import pick

ROOT = Path(__file__).parents[2]


class Number(BaseModel):
    """An argument and a result."""

    number: int


class Word(BaseModel):
    """Something else."""

    word: str


@tool.read
async def twice(args: Number) -> Number:
    """Double a number."""
    return Number(number=2 * args.number)


HEADER = '''
import httpx2
from pydantic import BaseModel, RootModel

from replan import Documents, LanguageModel, Transaction, tool


class Slot(BaseModel):
    """When."""

    day: str
    at: int = 0


class Place(BaseModel):
    """Where."""

    city: str


class Days(RootModel[list[str]]):
    """A list is no object."""


class Free(BaseModel):
    """What is there."""

    free: list[str] = []


class Strange:
    """What pydantic does not know."""


async def undecorated(args: Slot) -> Free:
    """Be no tool."""


@tool.read
async def look(args: Slot) -> Free:
    """See what is free."""
    return Free()


@tool.read
async def look_at(args: Place) -> Free:
    """See what is free somewhere."""
    return Free()


@tool.idempotent
async def write(args: Slot) -> Free:
    """Change something."""
    return Free()

'''

Loaded = Callable[[str], Registry]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    """Loads a tools file made of the header and some more lines, and forgets it again."""
    path, modules = [*sys.path], {*sys.modules}

    def load_file(source: str) -> Registry:
        file = tmp_path / "mine.py"
        file.write_text(HEADER + source)
        return Registry(load(file))

    yield load_file
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def book(
    decorator: str = "@tool.read", arguments: str = "args: Slot", result: str = " -> Free", doc: str = "Book."
) -> str:
    """A tool named `book`, right but for what is given."""
    return f'{decorator}\nasync def book({arguments}){result}:\n    """{doc}"""\n'


ENGINE = """from sqlalchemy.ext.asyncio import create_async_engine

BANK = create_async_engine("sqlite+aiosqlite:///bank.db")

"""
"""The datasource of a tools file."""

MISTAKES = {
    "bare decorator": (
        book("@tool"),
        "does not say what a call changes: use one of tool.pure, tool.read, tool.idempotent",
    ),
    "no docstring": (book(doc=" "), "there is no docstring: say in one sentence what the tool does"),
    "no argument": (book(arguments=""), "the first parameter must be one pydantic model: def book(args: MyArguments"),
    "no model": (book(arguments="day: str"), "the first parameter must be one pydantic model"),
    "no annotation": (book(arguments="args"), "the first parameter must be one pydantic model"),
    "a list": (book(arguments="args: Days"), "the first parameter must be one pydantic model"),
    "many models": (book(arguments="*args: Slot"), "the first parameter must be one pydantic model"),
    "keyword only": (book(arguments="*, args: Slot"), "the first parameter must be one pydantic model"),
    "unknown name": (book(arguments="args: 'Slott'"), "an annotation cannot be resolved (name 'Slott' is not defined)"),
    "unknown attribute": (book(arguments="args: 'httpx2.slot'"), "an annotation cannot be resolved"),
    "broken annotation": (book(arguments="args: '1 +'"), "an annotation cannot be resolved"),
    "no result": (book(result=""), "the result has no type: annotate it, e.g. -> Price"),
    "None": (book(result=" -> None"), "the result has no type"),
    "strange result": (book(result=" -> Strange"), "pydantic has no schema for its arguments or result"),
    "strange extra": (
        book(arguments="args: Slot, limit: int"),
        "parameter 'limit': unsupported type; use one of Key, Transaction",
    ),
    "untyped extra": (book(arguments="args: Slot, limit=3"), "parameter 'limit': unsupported type"),
    "positional extra": (
        book(arguments="args: Slot, docs: Documents, /"),
        "parameter 'docs' cannot be given by name: write it without / and *",
    ),
    "starred extra": (
        book(arguments="args: Slot, *docs: Documents"),
        "parameter 'docs' cannot be given by name: write it without / and *",
    ),
    "no transaction": (book("@tool.transactional"), "must take a Transaction: add a parameter tx: Transaction"),
    "plain and HTTP": (
        '@tool.read\ndef book(args: Slot, http: httpx2.AsyncClient) -> Free:\n    "Book."\n',
        "a plain def runs in a thread and cannot use 'http': write async def",
    ),
    "plain and transaction": (
        '@tool.transactional\ndef book(args: Slot, tx: Transaction) -> Free:\n    "Book."\n',
        "a plain def runs in a thread and cannot use 'tx': write async def",
    ),
    "class": ('@tool.read\nclass book:\n    "Book."\n', "this is no function: put the decorator directly above a def"),
    "twice": (book("@tool.read\n@tool.read"), "this is no function: put the decorator directly above a def"),
    "unknown profile": (book("@tool.read(retry='often')"), "retry='often' must be one of standard"),
    "timeout 0": (book("@tool.read(timeout=0)"), "timeout=0 must be a number of seconds above 0"),
    "timeout NaN": (book("@tool.read(timeout=float('nan'))"), "timeout=nan must be a number of seconds above 0"),
    "timeout for ever": (book("@tool.read(timeout=float('inf'))"), "timeout=inf must be a number of seconds above 0"),
    "timeout of years": (book("@tool.read(timeout=1e300)"), "timeout=1e+300 must be a number of seconds above 0"),
    "timeout in words": (book("@tool.read(timeout='5')"), "timeout='5' must be a number of seconds above 0"),
    "reserved": (book().replace("def book", "def plan"), "plan: this is the name of one of Replan's own activities"),
    "two of a name": (book() + "first = book\n" + book(), "book: another tool has this name already: rename"),
    "observe writes": (book("@tool.idempotent(observe=write)"), "observe=write must be a @tool.read"),
    "observe no tool": (book("@tool.read(observe=undecorated)"), "observe=undecorated is no tool: decorate it"),
    "observe in words": (book("@tool.read(observe='look')"), "observe='look' is no tool: decorate it"),
    "observe unknown argument": (
        book("@tool.read(observe=look.using(dya='args.day'))"),
        "look has no argument 'dya': did you mean day?: it has ['at', 'day']",
    ),
    "observe unknown field": (
        book("@tool.read(observe=look.using(day='args.date'))"),
        "day='args.date' leads nowhere: did you mean at?: Slot has ['at', 'day']",
    ),
    "observe over result": (book("@tool.read(observe=look.using(day='result.day'))"), "must be a path over args"),
    "observe over all": (book("@tool.read(observe=look.using(day='args'))"), "must be a path over args"),
    "observe lacks": (book("@tool.read(observe=look_at)"), "look_at needs 'city': write observe=look_at.using(city="),
    "undo reads": (book("@tool.idempotent(undo=look)"), "undo=look is a @tool.read, which changes nothing"),
    "undo no tool": (book("@tool.idempotent(undo=undecorated)"), "undo=undecorated is no tool: decorate it"),
    "undo over nothing": (
        book("@tool.idempotent(undo=write.using(day='result.id'))"),
        "day='result.id' leads nowhere: Free has ['free']",
    ),
    "undo below a list": (
        book("@tool.idempotent(undo=write.using(day='result.free.first'))"),
        "day='result.free.first' leads nowhere: 'result.free' is a list, so write result.free.0 for its first item",
    ),
    "observe below a text": (
        book("@tool.read(observe=look.using(day='args.day.name'))"),
        "day='args.day.name' leads nowhere: 'args.day' has no fields",
    ),
    "reconcile writes": (
        book("@tool.idempotent(reconcile=write)"),
        "book: reconcile=write must be a @tool.read: observing must change nothing",
    ),
    "reconcile no tool": (book("@tool.idempotent(reconcile=undecorated)"), "reconcile=undecorated is no tool"),
    "reconcile in words": (book("@tool.idempotent(reconcile='look')"), "reconcile='look' is no tool: decorate it"),
    "reconcile of a read": (
        book("@tool.read(reconcile=look)"),
        "book: a @tool.read has no effect to find out about: leave reconcile= out",
    ),
    "reconcile over result": (
        book("@tool.idempotent(reconcile=look.using(day='result.day'))"),
        "day='result.day' must be a path over args or key, e.g. args.day",
    ),
    "reconcile below the key": (
        book("@tool.idempotent(reconcile=look.using(day='key.id'))"),
        "day='key.id' leads nowhere: 'key' has no fields",
    ),
    "reconcile unknown field": (
        book("@tool.idempotent(reconcile=look.using(day='args.date'))"),
        "day='args.date' leads nowhere: did you mean at?: Slot has ['at', 'day']",
    ),
    "reconcile key as a number": (
        book("@tool.idempotent(reconcile=look.using(at='key'))"),
        "book: the key is a str, but 'at' of look is not: give it an argument of type str",
    ),
    "reconcile lacks": (
        book("@tool.idempotent(reconcile=look_at)"),
        "book: look_at needs 'city': write reconcile=look_at.using(city=",
    ),
    "reconcile finds another model": (
        book("@tool.idempotent(reconcile=look)", result=" -> Place"),
        "book: the result of reconcile=look becomes its result, but Free lacks ['city'] of Place: use one model",
    ),
    "reconcile finds another type": (
        book("@tool.idempotent(reconcile=look)", result=" -> list[Free]"),
        "the result of reconcile=look becomes its result, but it is of another type: use one model",
    ),
    "reconcile finds fields of another type": (
        "class Count(BaseModel):\n    free: int\n\n\n" + book("@tool.idempotent(reconcile=look)", result=" -> Count"),
        "but 'free' of Free is a list, of Count a number: use one model",
    ),
    "key in observe": (
        book("@tool.read(observe=look.using(day='key'))"),
        "book: day='key' must be a path over args, e.g. args.key",
    ),
    "key in undo": (
        book("@tool.idempotent(undo=write.using(day='key'))"),
        "book: day='key' must be a path over args or result, e.g. args.key",
    ),
    "settle alone": (
        book("@tool.idempotent(settle=5)"),
        "book: settle=5 has a meaning only with reconcile=: leave it out",
    ),
    "settle before": (
        book("@tool.idempotent(reconcile=look, settle=-1)"),
        "book: settle=-1 must be a number of seconds from 0 to a day",
    ),
    "settle in words": (book("@tool.idempotent(reconcile=look, settle='5')"), "settle='5' must be a number of seconds"),
    "settle NaN": (book("@tool.idempotent(reconcile=look, settle=float('nan'))"), "settle=nan must be a number of"),
    "settle for days": (book("@tool.idempotent(reconcile=look, settle=86401)"), "settle=86401 must be a number of"),
    "datasource as a URL": (
        book("@tool.transactional(datasource='sqlite+aiosqlite://me:secret@/x')", "args: Slot, tx: Transaction"),
        "book: datasource= is of type str, not an AsyncEngine: use create_async_engine(URL)",
    ),
    "datasource that blocks": (
        "from sqlalchemy import create_engine\n\n\n"
        + book("@tool.transactional(datasource=create_engine('sqlite://'))", "args: Slot, tx: Transaction"),
        "book: datasource= is of type Engine, not an AsyncEngine: use create_async_engine(URL)",
    ),
    "datasource in memory": (
        ENGINE.replace("///bank.db", "//")
        + book("@tool.transactional(datasource=BANK)", "args: Slot, tx: Transaction"),
        "book: datasource= is a SQLite database in memory: use a file, as in sqlite+aiosqlite:///FILE.db",
    ),
    "datasource without a transaction": (
        ENGINE + book("@tool.idempotent(datasource=BANK)"),
        "book: datasource= has a meaning only with a Transaction: add a parameter tx: Transaction",
    ),
    "fallback no tool": (book("@tool.read(fallback=undecorated)"), "fallback=undecorated is no tool: decorate it"),
    "fallback of a read": (
        book("@tool.read(fallback=write)"),
        "book: fallback=write changes something, and a @tool.read must not: name another @tool.read",
    ),
    "unknown option": (
        book("@tool.read(retries=3)"),
        "book: there is no option 'retries': did you mean retry or raises?: use one of observe, reconcile,",
    ),
    "untrusted no truth": (
        book("@tool.read(untrusted='yes')"),
        "book: untrusted='yes' must be True or False",
    ),
    "tokens for nothing": (book("@tool.read(tokens=100)"), "book: tokens=100 has a meaning only with a LanguageModel"),
    "tokens no number": (book("@tool.read(tokens='many')"), "book: tokens='many' must be a whole number"),
    "tokens beside more than all": (
        book("@tool.read(tokens=9, tokens_overhead=10)", "args: Slot, model: LanguageModel"),
        "book: tokens_overhead=10 must not be more than tokens=9",
    ),
    "a model without tokens": (
        book(arguments="args: Slot, model: LanguageModel"),
        "book: it takes a LanguageModel: say how many tokens one call may use, e.g. tokens=10_000",
    ),
    "a model in a thread": (
        book("@tool.read(tokens=9)", "args: Slot, model: LanguageModel").replace("async def", "def"),
        "book: a plain def runs in a thread and cannot use 'model'",
    ),
    "unknown option beside others": (
        book("@tool.read(cache=True)", result=""),
        "book: there is no option 'cache': use one of",
    ),
    "fallback model": (book("@tool.read(fallback=look_at)"), "fallback=look_at must take the same arguments"),
    "fallback circle": (
        book() + book("@tool.read(fallback=book)").replace("def book", "def pay") + book("@tool.read(fallback=pay)"),
        "book: its fallbacks lead back to book: let the last one have none",
    ),
    "ensure no text": (
        book("@tool.read(ensure=True)"),
        "book: ensure=True must be a str, e.g. 'result",
    ),
    "ensure nothing": (
        book("@tool.read(ensure='')"),
        "book: ensure='' is no condition: it is empty: write a condition",
    ),
    "ensure broken": (
        book("@tool.read(ensure='len(result.free')"),
        "book: ensure='len(result.free' is no condition: it is not complete: check that brackets close",
    ),
    "ensure many lines": (
        book("@tool.read(ensure='result.free\\n= 1')"),
        "ensure='result.free\\n= 1' is no condition: there is '=' in it: use names",
    ),
    "ensure a number": (
        book("@tool.read(ensure='len(result.free) + args.at')"),
        "is no condition: there is a number where a condition must stand: compare it with something",
    ),
    "ensure unknown root": (
        book("@tool.read(ensure='key == args.day and result.free == none')"),
        "book: ensure reads 'key': write args.key or result.key",
    ),
    "ensure only arguments": (
        book("@tool.read(ensure='args.at > 0')"),
        "book: ensure='args.at > 0' does not use the result: compare something of it, e.g. result.id != none",
    ),
    "ensure unknown field": (
        book("@tool.read(ensure='len(result.fre) > 0')"),
        "book: ensure reads 'result.fre': did you mean free?: Free has ['free']",
    ),
    "ensure unknown argument": (
        book("@tool.read(ensure='len(result.free) > args.most')"),
        "book: ensure reads 'args.most': Slot has ['at', 'day']",
    ),
    "ensure nested": (
        "class Trip(BaseModel):\n    to: list[Place | None] = []\n\n\n"
        + book("@tool.read(ensure='result.to.0.town == args.day')", result=" -> Trip"),
        "book: ensure reads 'result.to.0.town': Place has ['city']",
    ),
    "ensure list by name": (
        book("@tool.read(ensure='result.free.first == args.day')"),
        "book: ensure reads 'result.free.first': 'result.free' is a list, so write result.free.0 for its first item",
    ),
    "ensure below a text": (
        book("@tool.read(ensure='result.free.0.hour == 9')"),
        "book: ensure reads 'result.free.0.hour': 'result.free.0' has no fields",
    ),
    "ensure unlike": (
        book("@tool.read(ensure='result.free.0 == args.at')"),
        "book: ensure='result.free.0 == args.at' is no condition: it compares a text with a number: compare like with",
    ),
}


@pytest.mark.parametrize(("source", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence(loaded: Loaded, source: str, words: str) -> None:
    """Whatever an author does wrong, the worker says which tool, what is wrong and what to write instead."""
    with pytest.raises(ToolMistakes) as wrong:
        loaded(source)

    assert [mistake for mistake in wrong.value.mistakes if words in mistake], wrong.value.mistakes
    assert all(": " in mistake and mistake.endswith(".") and "\n" not in mistake for mistake in wrong.value.mistakes)


BROKEN = book("@tool(timeout=0, retries=3)").replace("@tool(", "@tool.read(").replace("Book.", " ") + book(
    "@tool.read", "args: Place, limit: int", ""
).replace("def book", "def pay")


def test_all_mistakes_are_said_at_once(loaded: Loaded) -> None:
    """An author mends everything in one go."""
    with pytest.raises(ToolMistakes) as wrong:
        loaded(BROKEN)

    assert [mistake.split(": ")[1] for mistake in wrong.value.mistakes] == ["book", "book", "book", "pay", "pay"]
    assert str(wrong.value).splitlines() == [
        *wrong.value.mistakes,
        "5 mistakes: no tool is served until they are corrected.",
    ]


def test_a_second_tool_of_a_name_is_seen_beside_other_mistakes(loaded: Loaded) -> None:
    """A duplicate is reported although both have mistakes of their own."""
    with pytest.raises(ToolMistakes, match="another tool has this name already"):
        loaded(book(doc=" ") + "first = book\n" + book(doc=" "))


def test_a_companion_that_cannot_be_resolved_is_its_own_mistake(loaded: Loaded) -> None:
    """A broken annotation of the companion is reported for the companion, and breaks nothing else."""
    broken = book(arguments="args: 'Slott'").replace("def book", "def peek")

    with pytest.raises(ToolMistakes, match="peek: an annotation cannot be resolved"):
        loaded(broken + book("@tool.idempotent(observe=peek)") + book("@tool.read(fallback=peek)"))


def test_a_fallback_whose_fallback_is_no_tool_is_the_others_mistake(loaded: Loaded) -> None:
    """Only the tool that names it is at fault."""
    wrong = book("@tool.read(fallback=undecorated)").replace("def book", "def pay")

    with pytest.raises(ToolMistakes, match=r"^\S+: pay: fallback=undecorated is no tool: [^\n]*$"):
        loaded(wrong + book("@tool.read(fallback=pay)"))


def test_a_companion_of_another_file_has_to_be_loaded_too(loaded: Loaded, tmp_path: Path) -> None:
    """A tool that was only imported is no kind of this worker."""
    (tmp_path / "others.py").write_text(HEADER + book().replace("def book", "def glance"))

    with pytest.raises(ToolMistakes, match=r"book: names 'glance', which no tools file defines.*: load it too"):
        loaded("import others\n" + book("@tool.read(observe=others.glance)"))


def test_what_is_taken_by_name_is_written_out(loaded: Loaded) -> None:
    """The spec says where each argument of `observe` comes from, so that the workflow needs no schema."""
    observe = loaded(book("@tool.idempotent(observe=look.using(day='args.day'))"))["book"].spec.observe

    assert observe is not None and (observe.kind, observe.args) == ("look", {"day": "args.day", "at": "args.at"})


def test_the_spec_says_how_to_find_out_about_an_effect(loaded: Loaded) -> None:
    """The workflow needs no more than this to reconcile: paths over `args` and `key`, and when to believe it."""
    spec = loaded(book("@tool.idempotent(reconcile=look.using(day='key'), settle=2)"))["book"].spec

    assert spec.reconcile is not None
    assert (spec.reconcile.kind, spec.reconcile.args, spec.settle) == ("look", {"day": "key", "at": "args.at"}, 2)


def test_every_path_of_a_companion_can_be_followed() -> None:
    """The path `key` leads to the key of the call, as `args.day` leads into its arguments."""
    call: JsonValue = {"args": {"day": "Friday"}, "key": "run/pay"}

    assert [pick(call, path, "the call") for path in ("key", "args.day")] == ["run/pay", "Friday"]


FINDS_MORE = """
class Found(Free):
    at: int


@tool.read
async def find(args: Slot) -> Found:
    \"\"\"Find one.\"\"\"


@tool.read
async def find_free(args: Slot) -> Free:
    \"\"\"Find one.\"\"\"


class Booked(BaseModel):
    free: list[str]
    note: str = ""


"""


@pytest.mark.parametrize(("finder", "result"), [("find", "Free"), ("find_free", "Booked"), ("find_free", "Free")])
def test_what_is_found_may_be_more_than_the_result(loaded: Loaded, finder: str, result: str) -> None:
    """One model for both, a child of it, or one with all its required fields."""
    kinds = loaded(FINDS_MORE + book(f"@tool.idempotent(reconcile={finder})", result=f" -> {result}"))

    assert kinds["book"].spec.reconcile is not None


def test_a_reconcile_of_another_file_has_to_be_loaded_too(loaded: Loaded, tmp_path: Path) -> None:
    """A read that no worker knows finds nothing out."""
    (tmp_path / "finders.py").write_text(HEADER + book().replace("def book", "def glance"))

    with pytest.raises(ToolMistakes, match=r"book: names 'glance', which no tools file defines.*: load it too"):
        loaded("import finders\nFree = finders.Free\n" + book("@tool.idempotent(reconcile=finders.glance)"))


def test_a_tool_has_a_database_of_its_own(loaded: Loaded) -> None:
    """The worker knows it, the workflow does not: where a bank lies is nothing for a history."""
    kind = loaded(ENGINE + book("@tool.transactional(datasource=BANK)", "args: Slot, tx: Transaction"))["book"]

    assert kind.datasource is not None and kind.datasource.url.database == "bank.db"
    assert "bank.db" not in kind.spec.model_dump_json()


def test_the_catalogue_shows_no_password(loaded: Loaded) -> None:
    """What belongs to a tool is named; of a database's URL what may be said, without its query."""
    source = ENGINE.replace("sqlite+aiosqlite:///bank.db", "sqlite+aiosqlite:///bank.db?uri=true&mode=ro")
    decorator = "@tool.transactional(datasource=BANK, reconcile=look, settle=0)"
    line = loaded(source + book(decorator, "args: Slot, tx: Transaction")).catalogue().splitlines()[-2]

    assert "reconcile=look, settle=0 s, datasource=sqlite+aiosqlite:///bank.db," in line


def test_a_path_may_lead_into_an_argument(loaded: Loaded) -> None:
    """`args.where.city` follows a nested model."""
    nested = "class Trip(BaseModel):\n    where: Place\n\n\n"
    observe = "@tool.read(observe=look_at.using(city='args.where.city'))"

    assert loaded(nested + book(observe, "args: Trip"))["book"].spec.observe is not None


def test_a_tool_knows_what_it_promises(loaded: Loaded) -> None:
    """The kind is the function's name, the description its docstring, the rest what the decorator was told."""
    kind = loaded(book("@tool.idempotent(retry='patient', timeout=5, fallback=write)", doc="Book one.\n\n    Now."))[
        "book"
    ]

    assert (kind.spec.kind, kind.spec.effect, kind.description) == ("book", "idempotent", "Book one.\n\nNow.")
    assert (kind.spec.retry, kind.spec.timeout, kind.spec.fallback) == ("patient", 5.0, "write")


PROMISES = {
    "nothing": (book(), True),
    "a comment": ("# another comment\n" + book(), True),
    "the code": (book() + "    return Free(free=['x'])\n", True),
    "the description": (book(doc="Book it."), False),
    "the arguments": (book(arguments="args: Place"), False),
    "the result": (book(result=" -> Place"), False),
    "the effect": (book("@tool.idempotent"), False),
    "the timeout": (book("@tool.read(timeout=5)"), False),
    "the profile": (book("@tool.read(retry='once')"), False),
    "observe": (book("@tool.read(observe=look)"), False),
    "fallback": (book("@tool.read(fallback=look)"), False),
    "reconcile": (book("@tool.idempotent(reconcile=look)"), False),
    "settle": (book("@tool.idempotent(reconcile=look, settle=1)"), False),
    "ensure": (book("@tool.read(ensure='len(result.free) > 0')"), False),
    "untrusted": (book("@tool.read(untrusted=True)"), False),
    "tokens": (book("@tool.read(tokens=9)", "args: Slot, model: LanguageModel"), False),
    "tokens beside": (book("@tool.read(tokens=9, tokens_overhead=4)", "args: Slot, model: LanguageModel"), False),
}


@pytest.mark.parametrize(("source", "same"), PROMISES.values(), ids=PROMISES)
def test_the_digest_follows_the_promise_and_nothing_else(loaded: Loaded, source: str, same: bool) -> None:
    """Two workers with one digest promise the same; other code behind it is no other promise."""
    assert (loaded(book())["book"].spec.digest == loaded(source)["book"].spec.digest) is same


@pytest.mark.full
def test_the_digest_is_the_same_in_every_process(loaded: Loaded, tmp_path: Path) -> None:
    """Two workers on two machines load the same file."""
    here = loaded(book())["book"].spec.digest
    code = "import sys; from pathlib import Path; from activities.toolbox.registry import *; "
    code += "print(Registry(load(Path(sys.argv[1])))['book'].spec.digest)"
    command = [sys.executable, "-c", code, str(tmp_path / "mine.py")]
    there = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True)

    assert there.stdout.strip() == here


def test_the_catalogue_is_readable(loaded: Loaded) -> None:
    """Each kind in three lines: name, effect, place; first sentence; arguments, companions, retries and timeout."""
    lines = loaded(book("@tool.idempotent(observe=look)", doc="Book one.\n\n    Now.")).catalogue().splitlines()
    [name, effect, place] = lines[-4].split()

    assert (name, effect, place.startswith("/"), "mine.py:" in place) == ("book", "idempotent", True, True)
    assert lines[-3:] == [
        "    Book one.",
        "    day: string, at: integer, observe=look, authority: all; standard, 30 s",
        f"{len(lines) // 3} tools of yours: no mistakes.",
    ]


def test_a_long_name_breaks_no_column(loaded: Loaded) -> None:
    """The effects stand below each other, whatever the length of a kind."""
    lines = loaded(book() + book().replace("def book", "def find_the_price_of_an_article")).catalogue().splitlines()
    [first, second] = [line for line in lines if line.startswith(("book ", "find_"))]

    assert first.index("  read ") == second.index("  read ") == len("find_the_price_of_an_article")


def test_the_catalogue_names_what_is_not_to_be_trusted(loaded: Loaded) -> None:
    """An author sees that the declaration is there."""
    line = loaded(book("@tool.read(untrusted=True)")).catalogue().splitlines()[-2]

    assert line.strip() == "day: string, at: integer, untrusted; standard, 30 s"


async def test_a_decorated_tool_stays_callable() -> None:
    """A unit test of a tool needs nothing but a call."""
    assert (await twice(Number(number=4))).number == 8
    assert (twice.__name__, twice.__doc__) == ("twice", "Double a number.")


TYPED = """
import asyncio

from tests.activities.test_toolbox import Number, Word, twice

asyncio.run(twice(Number(number=4)))
asyncio.run(twice(Word(word="four")))
"""


@pytest.mark.timeout(300)
@pytest.mark.full
def test_mypy_sees_a_wrong_model(tmp_path: Path) -> None:
    """The decorators keep the function's types: a call with another model is one error, one with its own is none."""
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(file)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert [line.partition(": ")[2] for line in checked.stdout.splitlines() if "typed.py" in line] == [
        'error: Argument 1 to "__call__" of "Tool" has incompatible type "Word"; expected "Number"  [arg-type]'
    ]


class Page(BaseModel):
    """Names as other languages spell them."""

    pageUrl: str
    curl: str = ""
    baseURI: str = ""
    subject: str = ""


@pytest.mark.parametrize(
    ("decorator", "authority"),
    [
        (tool.read, {"pageUrl", "baseURI"}),
        (tool.unkeyed(content=["subject"]), {"pageUrl", "baseURI", "curl"}),
        (tool.unkeyed(authority=["subject"]), {"subject", "pageUrl"}),
    ],
)
def test_a_name_in_camel_case_is_authority_as_in_snake_case(decorator: Any, authority: set[str]) -> None:
    """`pageUrl` is what `page_url` is; `curl` is no URL."""

    @decorator  # type: ignore[untyped-decorator]  # any of them
    async def visit(args: Page) -> Number:
        """Visit a page."""
        raise NotImplementedError

    assert {*Registry([visit])["visit"].spec.authority_of(Page.model_fields)} == authority


def test_content_in_camel_case_is_refused_as_in_snake_case() -> None:
    """What can do more than inform somebody is no content."""

    @tool.unkeyed(content=["pageUrl"])
    async def visit(args: Page) -> Number:
        """Visit a page."""
        raise NotImplementedError

    with pytest.raises(ToolMistakes, match="content= names 'pageUrl', which can do more"):
        Registry([visit])
