"""The boundary without a server: what goes in, what comes out, what is committed, what is logged."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text

from activities.boundary.boundary import MAX_RESULT
from activities.toolbox.injection import folder
from evals.fakes.http_server import reply, serving
from replan import Documents, Key, NeedsPerson, Refused, Tool, Transaction, tool
from tests.activities.bench import Bench, bench
from workflows.calls.header import CallHeader
from workflows.faults.fault import Applied, Code, Quadrant
from workflows.json_values import digest
from workflows.people.approval import ApprovedCall, approval_code

HIDDEN = "sk-secret"


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = "hi"
    number: int = Field(default=1, ge=1)
    names: dict[str, str] = {}


class Said(BaseModel):
    said: str = ""


@tool.read
async def echo(args: Word) -> Said:
    """Say the word."""
    return Said(said=args.word)


@tool.read
def plain(args: Word) -> Said:
    """Say in which thread it runs."""
    return Said(said=threading.current_thread().name)


async def test_arguments_go_in_and_a_result_comes_out(calls: Bench) -> None:
    """Plain JSON on both sides. A result can lie, and what does not fit is named and never quoted."""
    back = await calls.call(echo, word="hello", attempt=3)

    assert (back.result, back.attempt, back.replayed, back.earlier) == ({"said": "hello"}, 3, False, ())
    assert str((await calls.call(plain)).result).startswith("{'said': 'tool_")

    for fitting in ({"said": "hi"}, {"said": HIDDEN * 2, "more": []}):
        assert (await calls.call(returning(fitting))).result == {"said": fitting["said"]}
    for value in (None, 7, "hi", {"said": 7}, [HIDDEN]):
        fault, _ = await calls.fails(returning(value))
        assert fault.code is Code.UNEXPECTED_RESULT, value
        assert HIDDEN not in fault.model_dump_json()

    for args, words in INVALID:
        fault, _ = await calls.fails(echo, **args)
        assert fault.code is Code.INVALID_INPUT and words in fault.reason
        assert HIDDEN not in fault.model_dump_json()


def returning(value: object) -> Tool[..., Any]:
    """A tool that promises a `Said` and returns something."""

    @tool.read
    async def broken(args: Word) -> Said:
        """Lie."""
        return value  # type: ignore[return-value]  # that is what the test is about

    return broken


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"number": HIDDEN}, "The arguments do not fit echo: 'number' input should be a valid integer."),
    ({"number": 0}, "'number' input should be greater than or equal to 1"),
    ({"word": [HIDDEN]}, "'word' input should be a valid string"),
    ({"wrod": HIDDEN}, "'wrod' extra inputs are not permitted"),
]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_a_result_that_cannot_be_sent_goes_to_a_person(calls: Bench) -> None:
    """More than a history can bear, half a character, or an object inside a model: a person has to mend the tool."""
    large, _ = await calls.fails(returning(Said(said="x" * MAX_RESULT)))
    half, _ = await calls.fails(returning(Said(said="\ud800")))
    foreign, _ = await calls.fails(returning(Said.model_construct(**{"said": object()})))  # type: ignore[arg-type]

    assert large.code is Code.TOO_LARGE and str(MAX_RESULT) in large.reason
    assert {one.quadrant for one in (half, foreign)} == {Quadrant.PERSISTENT_INFRASTRUCTURAL}


class Wide(BaseModel):
    words: list[str] = []


def noting(result: Callable[[], object], timeout: float = 30) -> Tool[..., Any]:
    @tool.transactional(timeout=timeout)
    async def note(args: Word, tx: Transaction) -> Wide:
        """Write a word down."""
        await tx.execute(text("INSERT INTO notes VALUES (:word)"), {"word": args.word})
        if args.word == "slow":
            await asyncio.sleep(5)
        return result()  # type: ignore[return-value]  # some lie

    return note


def failing(error: Exception) -> Wide:
    raise error


UNDONE: list[tuple[Callable[[], object], Code]] = [
    (lambda: failing(Refused("No.")), Code.REFUSED),
    (lambda: failing(KeyError(HIDDEN)), Code.BUG),
    (lambda: Wide(words=["x" * MAX_RESULT]), Code.TOO_LARGE),
    (lambda: {"words": 7}, Code.UNEXPECTED_RESULT),
]


async def test_a_transaction_commits_with_its_result_or_leaves_nothing(calls: Bench) -> None:
    """Whatever goes wrong after the write and before the commit, the world is as before, and the fault says so."""
    for result, code in UNDONE:
        fault, _ = await calls.fails(noting(result))
        assert (fault.code, fault.applied) == (code, Applied.NONE)
    late, _ = await calls.fails(noting(Wide, timeout=0.3), word="slow")
    before = await calls.rows("SELECT word FROM notes")
    await calls.call(noting(Wide))
    twice, _ = await calls.fails(noting(Wide))

    assert (late.code, late.applied, before) == (Code.TIMEOUT, Applied.NONE, [])
    assert (twice.code, twice.applied) == (Code.CONFLICT, Applied.NONE)
    assert await calls.rows("SELECT word FROM notes") == ["hi"]


async def test_a_failing_read_writes_nothing_either(calls: Bench) -> None:
    """A read has a transaction as well, and it is rolled back."""

    @tool.read
    async def peek(args: Word, tx: Transaction) -> Said:
        """Look, and do what a read should not."""
        await tx.execute(text("INSERT INTO notes VALUES ('x')"))
        raise Refused("No.")

    await calls.fails(peek)

    assert await calls.rows("SELECT word FROM notes") == []


async def test_a_tool_gets_what_its_parameters_ask_for(calls: Bench, tmp_path: Path) -> None:
    """By type, whatever name and order; the refusals of the shared HTTP client need no code in the tool."""

    @tool.read
    async def price(args: Word, http: httpx2.AsyncClient) -> Said:
        """Look up a price."""
        return Said.model_validate((await http.get(args.word)).raise_for_status().json())

    async with serving(reply(200, b'{"said": "24.50"}'), reply(404, b'{"have": ["A-18"]}')) as url:
        back = await calls.call(price, word=url)
        fault, _ = await calls.fails(price, word=url)

    assert back.result == {"said": "24.50"}
    assert (fault.code, fault.observed) == (Code.NOT_FOUND, {"have": ["A-18"]})

    @tool.transactional
    async def count(args: Word, papers: Documents, db: Transaction, *, web: httpx2.AsyncClient) -> Said:
        """Count what there is."""
        rows = await db.scalar(text("SELECT count(*) FROM notes"))
        return Said(said=f"{papers.root.name} {rows} {web.is_closed}")

    assert (await calls.call(count)).result == {"said": f"{tmp_path.name} 0 False"}


ELSEWHERE = ["..", "../documents2", "/etc", "/", "out", "nowhere", "file.txt", "team/../..", "a\0b", "x" * 5000, "~"]


async def test_only_a_folder_below_the_root_is_given(tmp_path: Path) -> None:
    """Outside the root, through a link, absolute, missing, no folder, no name at all: never read."""
    root = tmp_path / "documents"
    (root / "team" / "old").mkdir(parents=True)
    (root / "file.txt").write_text("x")
    (root / "out").symlink_to(tmp_path)

    for below, found in ((None, "."), ("team", "team"), ("team/old", "team/old"), ("team/../team", "team")):
        assert folder(root, below) == (root / found).resolve()
    for below in ELSEWHERE:
        with pytest.raises(NeedsPerson, match=r"There is no folder '.*' below the worker's documents"):
            folder(root, below)
    with pytest.raises(NeedsPerson, match="documents"):
        folder(root / "gone", None)

    @tool.read
    async def search(args: Word, docs: Documents) -> Said:
        """Search."""
        return Said(said=str(docs.root))

    async with bench(tmp_path) as calls:
        fault, _ = await calls.fails(search)

    assert (fault.code, fault.reason) == (
        Code.NEEDS_PERSON,
        "This worker has no documents: start it with --documents DIR.",
    )


@tool.keyed(approve="args.number > 5")
async def spend(args: Word, key: Key) -> Said:
    """Spend a number."""
    return Said(said=str(args.number))


def approved(number: int, *, run: str = "a-run", key: str = "a-key", allowed: int | None = None) -> ApprovedCall:
    shown, meant = (digest("spend", {"number": one}) for one in (number, number if allowed is None else allowed))
    return ApprovedCall(code=approval_code(run, key, shown), shown=shown, allowed=meant)


VOID: list[ApprovedCall | None] = [
    None,
    approved(8),  # of other arguments
    approved(9, key="another-key"),  # of another step
    approved(9, run="another-run"),  # of the run before a reset
    approved(9, allowed=8),  # of what was edited
    approved(9).model_copy(update={"code": "123456123456"}),  # a code that nobody was shown
]


async def test_a_call_that_differs_from_the_approved_one_is_refused(calls: Bench) -> None:
    """Before anything is called; what a person edited is what may be called."""
    for approval in VOID:
        header = CallHeader(key="a-key", approval=approval)
        fault, failure = await calls.fails(spend, run="a-run", header=header, number=9)

        assert (fault.code, fault.applied, fault.taken) == (Code.NEEDS_APPROVAL, Applied.NONE, 0), approval
        assert failure.type == "needs_approval"

    for number, approval in ((5, None), (9, approved(9)), (7, approved(9, allowed=7))):
        header = CallHeader(key="a-key", approval=approval)
        back = await calls.call(spend, run="a-run", header=header, number=number)

        assert back.result == {"said": str(number)}
