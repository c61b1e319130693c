"""Tools as their authors write them: what is wrong with one is said in one sentence that names it and the remedy."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from activities.toolbox.registry import Registry, ToolMistakes, load
from replan import tool
from tests.activities import mistakes
from tests.activities.mistakes import PLANTED

ROOT = Path(__file__).parents[2]


class Number(BaseModel):
    number: int


class Word(BaseModel):
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
    day: str
    at: int = 0


class Place(BaseModel):
    city: str


class Days(RootModel[list[str]]):
    """A list is no object."""


class Free(BaseModel):
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

Loaded = Callable[..., Registry]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    """Loads a tools file made of a header and some more lines, and forgets it again."""
    path, modules = [*sys.path], {*sys.modules}

    def load_file(source: str, header: str = HEADER) -> Registry:
        file = tmp_path / "mine.py"
        file.write_text(header + source)
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

MODEL = "the first parameter must be one pydantic model"
PARAMETERS = {
    "": f"{MODEL}: def book(args: MyArguments",
    "args": MODEL,
    "args: Days": MODEL,
    "*args: Slot": MODEL,
    "*, args: Slot": MODEL,
    "args: 'httpx2.slot'": "an annotation cannot be resolved",
    "args: '1 +'": "an annotation cannot be resolved",
    "args: Slot, limit=3": "parameter 'limit': unsupported type",
    "args: Slot, docs: Documents, /": "parameter 'docs' cannot be given by name: write it without / and *",
    "args: Slot, *docs: Documents": "parameter 'docs' cannot be given by name: write it without / and *",
    "args: Slot, model: LanguageModel": "book: it takes a LanguageModel: say how many tokens one call may use",
}
"""Of the function, with what is said of it."""
DECORATORS = {
    **{f"read(timeout={one})": "must be a number of seconds above 0" for one in ("0", "float('nan')", "1e300", "'5'")},
    "read(timeout=float('inf'))": "timeout=inf must be a number of seconds above 0",
    "read(observe=undecorated)": "observe=undecorated is no tool: decorate it",
    "read(observe='look')": "observe='look' is no tool: decorate it",
    "read(observe=look.using(dya='args.day'))": "look has no argument 'dya': did you mean day?: it has ['at', 'day']",
    "read(observe=look.using(day='args.date'))": "leads nowhere: did you mean at?: Slot has ['at', 'day']",
    "read(observe=look.using(day='args.day.name'))": "day='args.day.name' leads nowhere: 'args.day' has no fields",
    "read(observe=look.using(day='result.day'))": "must be a path over args",
    "read(observe=look.using(day='args'))": "must be a path over args",
    "read(observe=look.using(day='key'))": "book: day='key' must be a path over args, e.g. args.key",
    "read(observe=look_at)": "look_at needs 'city': write observe=look_at.using(city=",
    "idempotent(undo=look)": "undo=look is a @tool.read, which changes nothing",
    "idempotent(undo=undecorated)": "undo=undecorated is no tool: decorate it",
    "idempotent(undo=write.using(day='result.id'))": "day='result.id' leads nowhere: Free has ['free']",
    "idempotent(undo=write.using(day='result.free.first'))": "'result.free' is a list, so write result.free.0 for its",
    "idempotent(undo=write.using(day='key'))": "book: day='key' must be a path over args or result, e.g. args.key",
    "idempotent(reconcile=undecorated)": "reconcile=undecorated is no tool",
    "idempotent(reconcile='look')": "reconcile='look' is no tool: decorate it",
    "read(reconcile=look)": "book: a @tool.read has no effect to find out about: leave reconcile= out",
    "idempotent(reconcile=look.using(day='result.day'))": "must be a path over args or key, e.g. args.day",
    "idempotent(reconcile=look.using(day='key.id'))": "day='key.id' leads nowhere: 'key' has no fields",
    "idempotent(reconcile=look.using(day='args.date'))": "leads nowhere: did you mean at?: Slot has ['at', 'day']",
    "idempotent(reconcile=look.using(at='key'))": "the key is a str, but 'at' of look is not: give it an argument of",
    "idempotent(reconcile=look_at)": "book: look_at needs 'city': write reconcile=look_at.using(city=",
    "idempotent(settle=5)": "book: settle=5 has a meaning only with reconcile=: leave it out",
    "idempotent(reconcile=look, settle=-1)": "book: settle=-1 must be a number of seconds from 0 to a day",
    **{
        f"idempotent(reconcile=look, settle={settle})": "must be a number of seconds from 0 to a day"
        for settle in ("'5'", "float('nan')", "86401")
    },
    "read(untrusted='yes')": "book: untrusted='yes' must be True or False",
    "read(tokens=100)": "book: tokens=100 has a meaning only with a LanguageModel",
    "read(tokens='many')": "book: tokens='many' must be a whole number",
    "read(fallback=look_at)": "fallback=look_at must take the same arguments",
    "read(ensure=True)": "book: ensure=True must be a str, e.g. 'result",
    "read(ensure='')": "book: ensure='' is no condition: it is empty: write a condition",
    "read(ensure='len(result.free')": "is no condition: it is not complete: check that brackets close",
    "read(ensure='result.free\\n= 1')": "ensure='result.free\\n= 1' is no condition: there is '=' in it: use names",
    "read(ensure='len(result.free) + args.at')": "there is a number where a condition must stand: compare it with",
    "read(ensure='key == args.day and result.free == none')": "book: ensure reads 'key': write args.key or result.key",
    "read(ensure='args.at > 0')": "does not use the result: compare something of it, e.g. result.id != none",
    "read(ensure='len(result.free) > args.most')": "book: ensure reads 'args.most': Slot has ['at', 'day']",
}
"""Of the function, with what is said of them."""
WITH_TX, WITH_MODEL = "args: Slot, tx: Transaction", "args: Slot, model: LanguageModel"
COUNT = "class Count(BaseModel):\n    free: int\n\n\n"
OTHER_RESULTS = {
    " -> Place": "Free lacks ['city'] of Place",
    " -> list[Free]": "it is of another type",
    " -> Count": "'free' of Free is a list, of Count a number",
}
SOURCES = {
    "no result": (book(result=" -> None"), "the result has no type"),
    "strange result": (book(result=" -> Strange"), "pydantic has no schema for its arguments or result"),
    "plain and transaction": (
        book("@tool.transactional", WITH_TX).replace("async def", "def"),
        "a plain def runs in a thread and cannot use 'tx': write async def",
    ),
    "class": ('@tool.read\nclass book:\n    "Book."\n', "this is no function: put the decorator directly above a def"),
    "twice": (book("@tool.read\n@tool.read"), "this is no function: put the decorator directly above a def"),
    "reserved": (book().replace("def book", "def plan"), "plan: this is the name of one of Replan's own activities"),
    "two of a name": (book() + "first = book\n" + book(), "book: another tool has this name already: rename"),
    **{
        f"reconcile finds another result{result}": (
            COUNT + book("@tool.idempotent(reconcile=look)", result=result),
            f"book: the result of reconcile=look becomes its result, but {words}: use one model",
        )
        for result, words in OTHER_RESULTS.items()
    },
    "datasource that blocks": (
        "from sqlalchemy import create_engine\n\n\n"
        + book("@tool.transactional(datasource=create_engine('sqlite://'))", WITH_TX),
        "book: datasource= is of type Engine, not an AsyncEngine: use create_async_engine(URL)",
    ),
    "datasource in memory": (
        ENGINE.replace("///bank.db", "//") + book("@tool.transactional(datasource=BANK)", WITH_TX),
        "book: datasource= is a SQLite database in memory: use a file, as in sqlite+aiosqlite:///FILE.db",
    ),
    "datasource without a transaction": (
        ENGINE + book("@tool.idempotent(datasource=BANK)"),
        "book: datasource= has a meaning only with a Transaction: add a parameter tx: Transaction",
    ),
    "tokens beside more than all": (
        book("@tool.read(tokens=9, tokens_overhead=10)", WITH_MODEL),
        "book: tokens_overhead=10 must not be more than tokens=9",
    ),
    "a model in a thread": (
        book("@tool.read(tokens=9)", WITH_MODEL).replace("async def", "def"),
        "book: a plain def runs in a thread and cannot use 'model'",
    ),
    "unknown option beside others": (
        book("@tool.read(cache=True)", result=""),
        "book: there is no option 'cache': use one of",
    ),
    "fallback circle": (
        book() + book("@tool.read(fallback=book)").replace("def book", "def pay") + book("@tool.read(fallback=pay)"),
        "book: its fallbacks lead back to book: let the last one have none",
    ),
    "a second one of a name, beside other mistakes": (
        book(doc=" ") + "first = book\n" + book(doc=" "),
        "another tool has this name already",
    ),
    **{parameters: (book(arguments=parameters), words) for parameters, words in PARAMETERS.items()},
    **{decorator: (book(f"@tool.{decorator}"), words) for decorator, words in DECORATORS.items()},
}


@pytest.mark.parametrize(("source", "words"), SOURCES.values(), ids=SOURCES)
def test_a_mistake_is_one_sentence(loaded: Loaded, source: str, words: str) -> None:
    """Whatever an author does wrong, the worker says which tool, what is wrong and what to write instead."""
    with pytest.raises(ToolMistakes) as wrong:
        loaded(source)

    assert [mistake for mistake in wrong.value.mistakes if words in mistake], wrong.value.mistakes
    assert all(": " in mistake and mistake.endswith(".") and "\n" not in mistake for mistake in wrong.value.mistakes)


def test_all_mistakes_are_said_at_once(loaded: Loaded) -> None:
    """An author mends everything in one go: also several mistakes of one tool."""
    two = book("@tool.read(timeout=0, retries=3)", doc=" ")
    two += book(arguments="args: Place, limit: int", result="").replace("def book", "def pay")
    with pytest.raises(ToolMistakes) as wrong:
        loaded("".join(PLANTED), mistakes.HEADER)
    with pytest.raises(ToolMistakes) as several:
        loaded(two)

    assert [mistake.partition(": ")[2] for mistake in wrong.value.mistakes] == [*PLANTED.values()]
    assert [mistake.split(": ")[1] for mistake in several.value.mistakes] == ["book", "book", "book", "pay", "pay"]
    assert str(several.value).splitlines() == [
        *several.value.mistakes,
        "5 mistakes: no tool is served until they are corrected.",
    ]


def test_a_companion_that_is_wrong_itself_is_its_own_mistake(loaded: Loaded) -> None:
    """It is reported for the companion, and breaks nothing else; only the tool that names it is at fault."""
    broken = book(arguments="args: 'Slott'").replace("def book", "def peek")
    wrong = book("@tool.read(fallback=undecorated)").replace("def book", "def pay")

    with pytest.raises(ToolMistakes, match="peek: an annotation cannot be resolved"):
        loaded(broken + book("@tool.idempotent(observe=peek)") + book("@tool.read(fallback=peek)"))
    with pytest.raises(ToolMistakes, match=r"^\S+: pay: fallback=undecorated is no tool: [^\n]*$"):
        loaded(wrong + book("@tool.read(fallback=pay)"))


@pytest.mark.parametrize(
    "decorator", ["@tool.read(observe=others.glance)", "@tool.idempotent(reconcile=others.glance)"]
)
def test_a_companion_of_another_file_has_to_be_loaded_too(loaded: Loaded, tmp_path: Path, decorator: str) -> None:
    """A tool that was only imported is no kind of this worker."""
    (tmp_path / "others.py").write_text(HEADER + book().replace("def book", "def glance"))

    with pytest.raises(ToolMistakes, match=r"book: names 'glance', which no tools file defines.*: load it too"):
        loaded("import others\nFree = others.Free\n" + book(decorator))


def test_the_spec_says_all_that_the_workflow_needs(loaded: Loaded) -> None:
    """The kind is the function's name, the rest what the decorator was told; what is taken by name is written out."""
    decorator = "@tool.idempotent(retry='patient', timeout=5, fallback=write)"
    kind = loaded(book(decorator, doc="Book one.\n\n    Now."))["book"]
    found_out = loaded(
        book("@tool.idempotent(observe=look.using(day='args.day'), reconcile=look.using(day='key'), settle=2)")
    )
    spec = found_out["book"].spec
    nested = "class Trip(BaseModel):\n    where: Place\n\n\n"
    inner = loaded(nested + book("@tool.read(observe=look_at.using(city='args.where.city'))", "args: Trip"))[
        "book"
    ].spec

    assert (kind.spec.kind, kind.spec.effect, kind.description) == ("book", "idempotent", "Book one.\n\nNow.")
    assert (kind.spec.retry, kind.spec.timeout, kind.spec.fallback) == ("patient", 5.0, "write")
    assert spec.observe is not None and spec.reconcile is not None and inner.observe is not None
    assert (spec.observe.kind, spec.observe.args) == ("look", {"day": "args.day", "at": "args.at"})
    assert (spec.reconcile.kind, spec.reconcile.args, spec.settle) == ("look", {"day": "key", "at": "args.at"}, 2)
    assert inner.observe.args == {"city": "args.where.city"}


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


def test_a_tool_has_a_database_of_its_own(loaded: Loaded) -> None:
    """The worker knows it, the workflow does not: where a bank lies is nothing for a history."""
    kind = loaded(ENGINE + book("@tool.transactional(datasource=BANK)", WITH_TX))["book"]

    assert kind.datasource is not None and kind.datasource.url.database == "bank.db"
    assert "bank.db" not in kind.spec.model_dump_json()


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
    "tokens": (book("@tool.read(tokens=9)", WITH_MODEL), False),
    "tokens beside": (book("@tool.read(tokens=9, tokens_overhead=4)", WITH_MODEL), False),
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
    untrusted = loaded(book("@tool.read(untrusted=True)")).catalogue().splitlines()[-2]
    both = loaded(book() + book().replace("def book", "def find_the_price_of_an_article")).catalogue().splitlines()
    [first, second] = [line for line in both if line.startswith(("book ", "find_"))]
    source = ENGINE.replace("sqlite+aiosqlite:///bank.db", "sqlite+aiosqlite:///bank.db?uri=true&mode=ro")
    source += book("@tool.transactional(datasource=BANK, reconcile=look, settle=0)", WITH_TX)

    assert (name, effect, place.startswith("/"), "mine.py:" in place) == ("book", "idempotent", True, True)
    assert lines[-3:] == [
        "    Book one.",
        "    day: string, at: integer, observe=look, authority: all; standard, 30 s",
        f"{len(lines) // 3} tools of yours: no mistakes.",
    ]
    assert untrusted.strip() == "day: string, at: integer, untrusted; standard, 30 s"
    assert first.index("  read ") == second.index("  read ") == len("find_the_price_of_an_article")
    # of a database's URL what may be said, without its query
    line = loaded(source).catalogue().splitlines()[-2]
    assert "reconcile=look, settle=0 s, datasource=sqlite+aiosqlite:///bank.db," in line


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
    with pytest.raises(ToolMistakes, match="content= names 'pageUrl', which can do more"):
        Registry([tool.unkeyed(content=["pageUrl"])(visit.function)])  # more than inform somebody
