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
from workflows.people.approval import Approval, approval_code

HIDDEN = "sk-secret"


class Word(BaseModel):
    """An argument."""

    model_config = ConfigDict(extra="forbid")

    word: str = "hi"
    number: int = Field(default=1, ge=1)
    names: dict[str, str] = {}


class Said(BaseModel):
    """A result."""

    said: str = ""


@tool.read
async def echo(args: Word) -> Said:
    """Say the word."""
    return Said(said=args.word)


@tool.read
def plain(args: Word) -> Said:
    """Say in which thread it runs."""
    return Said(said=threading.current_thread().name)


def raising(make: Callable[[], BaseException]) -> Tool[..., Any]:
    """A tool that raises what is made when it is called."""

    @tool.read
    async def broken(args: Word) -> Said:
        """Fail."""
        raise make()

    return broken


def returning(value: object) -> Tool[..., Any]:
    """A tool that promises a `Said` and returns something."""

    @tool.read
    async def broken(args: Word) -> Said:
        """Lie."""
        return value  # type: ignore[return-value]  # that is what the test is about

    return broken


async def test_arguments_go_in_and_a_result_comes_out(calls: Bench) -> None:
    """Plain JSON on both sides; the attempt that came back is told."""
    back = await calls.call(echo, word="hello", attempt=3)

    assert (back.result, back.attempt, back.replayed, back.earlier) == ({"said": "hello"}, 3, False, ())


async def test_a_plain_function_runs_in_a_thread(calls: Bench) -> None:
    """A blocking call freezes nobody else."""
    back = await calls.call(plain)

    assert str(back.result).startswith("{'said': 'tool_")


async def test_a_decorated_model_may_be_returned_as_plain_data(calls: Bench) -> None:
    """What validates against the promised type is fine, whatever its class."""
    assert (await calls.call(returning({"said": "hi"}))).result == {"said": "hi"}


@pytest.mark.parametrize("value", [None, 7, "hi", {"said": 7}, {"said": HIDDEN * 2, "more": []}, [HIDDEN]], ids=repr)
async def test_a_result_of_another_type_is_unexpected(calls: Bench, value: object) -> None:
    """A result can lie: what does not have the promised shape leads to a new plan, and is not quoted."""
    if isinstance(value, dict) and isinstance(value["said"], str):
        assert (await calls.call(returning(value))).result == {"said": value["said"]}
        return
    fault, _ = await calls.fails(returning(value))

    assert fault.code is Code.UNEXPECTED_RESULT
    assert HIDDEN not in fault.model_dump_json()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"number": HIDDEN}, "The arguments do not fit echo: 'number' input should be a valid integer."),
        ({"number": 0}, "'number' input should be greater than or equal to 1"),
        ({"word": [HIDDEN]}, "'word' input should be a valid string"),
        ({"wrod": HIDDEN}, "'wrod' extra inputs are not permitted"),
    ],
)
async def test_invalid_arguments_name_the_field_and_not_the_value(
    calls: Bench, args: dict[str, Any], words: str
) -> None:
    """The planner learns what to change; the tool is not called; the value stays where it was."""
    fault, _ = await calls.fails(echo, **args)

    assert fault.code is Code.INVALID_INPUT and words in fault.reason
    assert HIDDEN not in fault.model_dump_json()


async def test_a_result_that_is_too_large_is_refused(calls: Bench) -> None:
    """More than a history can bear: a person has to mend the tool."""
    fault, _ = await calls.fails(returning(Said(said="x" * MAX_RESULT)))

    assert fault.code is Code.TOO_LARGE and str(MAX_RESULT) in fault.reason


@pytest.mark.parametrize(
    "value",
    [Said(said="\ud800"), Said.model_construct(**{"said": object()})],  # type: ignore[arg-type]  # a tool that lies
    ids=["half", "object"],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_a_result_that_is_no_json_goes_to_a_person(calls: Bench, value: Said) -> None:
    """Half a character or an object inside a model can be sent nowhere."""
    fault, _ = await calls.fails(returning(value))

    assert fault.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL


# What a transaction leaves behind


class Wide(BaseModel):
    """A result of any size."""

    words: list[str] = []


def noting(result: Callable[[], Wide], timeout: float = 30) -> Tool[..., Any]:
    """A tool that writes a row, then returns or raises."""

    @tool.transactional(timeout=timeout)
    async def note(args: Word, tx: Transaction) -> Wide:
        """Write a word down."""
        await tx.execute(text("INSERT INTO notes VALUES (:word)"), {"word": args.word})
        if args.word == "slow":
            await asyncio.sleep(5)
        return result()

    return note


def refuse() -> Wide:
    """Raise instead of a result."""
    raise Refused("No.")


def crash() -> Wide:
    """Have a bug instead of a result."""
    raise KeyError(HIDDEN)


async def test_a_transaction_commits_with_its_result(calls: Bench) -> None:
    """Result and writes belong together."""
    await calls.call(noting(Wide))

    assert await calls.rows("SELECT word FROM notes") == ["hi"]


@pytest.mark.parametrize(
    ("result", "word", "code"),
    [
        (refuse, "hi", Code.REFUSED),
        (crash, "hi", Code.BUG),
        (lambda: Wide(words=["x" * MAX_RESULT]), "hi", Code.TOO_LARGE),
        (lambda: {"words": 7}, "hi", Code.UNEXPECTED_RESULT),
        (Wide, "slow", Code.TIMEOUT),
    ],
    ids=["refused", "bug", "too large", "invalid", "too slow"],
)
async def test_a_transaction_that_fails_leaves_nothing(
    calls: Bench, result: Callable[[], Wide], word: str, code: Code
) -> None:
    """Whatever goes wrong after the write and before the commit, the world is as before, and the fault says so."""
    fault, _ = await calls.fails(noting(result, timeout=0.3 if word == "slow" else 30), word=word)

    assert (fault.code, fault.applied) == (code, Applied.NONE)
    assert await calls.rows("SELECT word FROM notes") == []


async def test_a_constraint_that_speaks_at_the_write_is_a_conflict(calls: Bench) -> None:
    """The second of two equal rows is an answer of the world."""
    await calls.call(noting(Wide))
    fault, _ = await calls.fails(noting(Wide))

    assert (fault.code, fault.applied) == (Code.CONFLICT, Applied.NONE)


async def test_a_failing_read_writes_nothing_either(calls: Bench) -> None:
    """A read has a transaction as well, and it is rolled back."""

    @tool.read
    async def peek(args: Word, tx: Transaction) -> Said:
        """Look, and do what a read should not."""
        await tx.execute(text("INSERT INTO notes VALUES ('x')"))
        raise Refused("No.")

    await calls.fails(peek)

    assert await calls.rows("SELECT word FROM notes") == []


# What a tool is given


async def test_a_tool_gets_the_shared_http_client(calls: Bench) -> None:
    """Its refusals need no code in the tool."""

    @tool.read
    async def price(args: Word, http: httpx2.AsyncClient) -> Said:
        """Look up a price."""
        return Said.model_validate((await http.get(args.word)).raise_for_status().json())

    async with serving(reply(200, b'{"said": "24.50"}'), reply(404, b'{"have": ["A-18"]}')) as url:
        back = await calls.call(price, word=url)
        fault, _ = await calls.fails(price, word=url)

    assert back.result == {"said": "24.50"}
    assert (fault.code, fault.observed) == (Code.NOT_FOUND, {"have": ["A-18"]})


async def test_a_tool_may_ask_for_several_things(calls: Bench, tmp_path: Path) -> None:
    """Each parameter is filled by its type, whatever its name and order."""

    @tool.transactional
    async def count(args: Word, papers: Documents, db: Transaction, *, web: httpx2.AsyncClient) -> Said:
        """Count what there is."""
        rows = await db.scalar(text("SELECT count(*) FROM notes"))
        return Said(said=f"{papers.root.name} {rows} {web.is_closed}")

    assert (await calls.call(count)).result == {"said": f"{tmp_path.name} 0 False"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Documents with a folder, a file, and a way out."""
    root = tmp_path / "documents"
    (root / "team" / "old").mkdir(parents=True)
    (root / "file.txt").write_text("x")
    (root / "out").symlink_to(tmp_path)
    return root


@pytest.mark.parametrize(
    ("below", "found"), [(None, "."), ("team", "team"), ("team/old", "team/old"), ("team/../team", "team")]
)
def test_a_folder_below_the_root_is_given(root: Path, below: str | None, found: str) -> None:
    """The whole root where the task names none."""
    assert folder(root, below) == (root / found).resolve()


@pytest.mark.parametrize(
    "below", ["..", "../documents2", "/etc", "/", "out", "nowhere", "file.txt", "team/../..", "a\0b", "x" * 5000, "~"]
)
def test_a_folder_elsewhere_needs_a_person(root: Path, below: str) -> None:
    """Outside the root, through a link, absolute, missing, no folder, no name at all: never read."""
    with pytest.raises(NeedsPerson, match=r"There is no folder '.*' below the worker's documents"):
        folder(root, below)


def test_a_root_that_is_gone_needs_a_person(root: Path) -> None:
    """The worker's own folder went away after its start."""
    with pytest.raises(NeedsPerson, match="documents"):
        folder(root / "gone", None)


async def test_a_worker_without_documents_says_how_to_give_some(tmp_path: Path) -> None:
    """The deployment is at fault, so a person is asked, with the remedy."""

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


def approved(number: int, *, run: str = "a-run", key: str = "a-key", allowed: int | None = None) -> Approval:
    """An approval of a call that spends a number."""
    shown, meant = (digest("spend", {"number": one}) for one in (number, number if allowed is None else allowed))
    return Approval(code=approval_code(run, key, shown), shown=shown, allowed=meant)


VOID: dict[str, tuple[int, Approval | None]] = {
    "none": (9, None),
    "of other arguments": (9, approved(8)),
    "of another step": (9, approved(9, key="another-key")),
    "of the run before a reset": (9, approved(9, run="another-run")),
    "of what was edited": (9, approved(9, allowed=8)),
    "for a code that nobody was shown": (9, approved(9).model_copy(update={"code": "123456123456"})),
}


@pytest.mark.parametrize(("number", "approval"), VOID.values(), ids=VOID)
async def test_a_call_that_differs_from_the_approved_one_is_refused(
    calls: Bench, number: int, approval: Approval | None
) -> None:
    """Before anything is called; it had no effect, and counts as no attempt."""
    header = CallHeader(key="a-key", approval=approval)
    fault, _ = await calls.fails(spend, run="a-run", header=header, number=number)

    assert (fault.code, fault.applied, fault.taken) == (Code.NEEDS_APPROVAL, Applied.NONE, 0)


async def test_a_workflow_is_told_of_a_missing_approval_by_the_type_of_the_failure(calls: Bench) -> None:
    """It asks a person, and takes the failure for no bug."""
    _, failure = await calls.fails(spend, header=CallHeader(key="a-key"), number=9)

    assert failure.type == "needs_approval"


@pytest.mark.parametrize(("number", "approval"), [(5, None), (9, approved(9)), (7, approved(9, allowed=7))])
async def test_the_approved_call_is_made(calls: Bench, number: int, approval: Approval | None) -> None:
    """And one for which the condition is false; what a person edited is what may be called."""
    header = CallHeader(key="a-key", approval=approval)
    back = await calls.call(spend, run="a-run", header=header, number=number)

    assert back.result == {"said": str(number)}
