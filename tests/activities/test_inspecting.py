"""What a worker says of itself: its places and what is wrong with them, its keys by name, no secret."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from temporalio.testing import ActivityEnvironment

from activities.effects.ledger import LedgerEntry, apply_in_transaction
from activities.inspection import Host, Inspector
from activities.planning.planner import Exchange, RecordedTurn
from activities.planning.transcript import Transcript
from activities.providers.messages import AssistantTurn, StopReason, Usage, UserTurn
from activities.storage.store import open_store, spoken, sqlite_url
from activities.storage.vault import Vault
from activities.toolbox import builtin
from activities.toolbox.registry import Registry
from examples import desk
from replan import tool
from workflows.inquiries import (
    AppliedEffect,
    EffectsInquiry,
    F,
    Inquiry,
    InquiryInput,
    Place,
    RowsInquiry,
    ToolsInquiry,
    TranscriptFindings,
    TranscriptInquiry,
    WorkerCard,
    WorkerInquiry,
)
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, Proposed

KEYS = {"ANTHROPIC_API_KEY": True, "OPENAI_API_KEY": False}


@asynccontextmanager
async def store(folder: Path) -> AsyncIterator[AsyncEngine]:
    """An embedded store in a folder."""
    engine = await open_store(sqlite_url(folder))
    try:
        yield engine
    finally:
        await engine.dispose()


async def said(engine: AsyncEngine, **folders: Path | None) -> WorkerCard:
    """What a worker with this store and these folders says of itself."""
    return await ActivityEnvironment().run(Host(engine, folders, KEYS, "1.2.3").card)


async def place(name: str, engine: AsyncEngine, **folders: Path | None) -> Place:
    """What it says of one place."""
    return next(one for one in (await said(engine, **folders)).places if one.name == name)


async def test_a_worker_names_its_version_and_its_keys(tmp_path: Path) -> None:
    """Of keys it says whether it has them."""
    async with store(tmp_path) as engine:
        card = await said(engine)

    assert (card.version, card.keys) == ("1.2.3", KEYS)


async def test_places_that_can_be_used_have_no_problem(tmp_path: Path) -> None:
    """Each by its full path; one that the worker does not have by its name alone."""
    async with store(tmp_path) as engine:
        card = await said(engine, state=tmp_path, documents=tmp_path, workspace=None)

    assert [one.problem for one in card.places] == [None] * 4
    assert [one.where for one in card.places[1:]] == [str(tmp_path), str(tmp_path), None]


@pytest.mark.parametrize("name", ["state", "documents", "workspace"])
async def test_a_folder_that_went_away_is_noticed(tmp_path: Path, name: str) -> None:
    """It was there when the worker started."""
    async with store(tmp_path) as engine:
        seen = await place(name, engine, **{name: tmp_path / "gone"})

    assert seen == Place(name=name, where=str(tmp_path / "gone"), problem="it is not there any more")


async def test_a_file_in_the_place_of_a_folder_is_noticed(tmp_path: Path) -> None:
    """A name that is there is no folder yet."""
    (tmp_path / "file").touch()
    async with store(tmp_path) as engine:
        seen = await place("documents", engine, documents=tmp_path / "file")

    assert seen.problem == "it is not there any more"


async def test_a_store_whose_file_was_deleted_is_noticed(tmp_path: Path) -> None:
    """Whoever has it open could go on reading and writing what nobody will find again."""
    async with store(tmp_path) as engine:
        (tmp_path / "store.db").unlink()
        seen = await place("store", engine)

    assert seen.problem is not None


async def test_a_store_without_its_tables_is_noticed(tmp_path: Path) -> None:
    """An empty database answers, and is of no use."""
    assert desk.TOOLS  # whose tables are the store's
    (tmp_path / "store.db").touch()
    engine = create_async_engine(sqlite_url(tmp_path))
    seen = await place("store", engine)
    await engine.dispose()

    assert seen.problem is not None and seen.problem.startswith("it lacks the tables ")


async def test_a_store_that_is_no_database_is_noticed(tmp_path: Path) -> None:
    """In words of ours, and none of the driver's."""
    (tmp_path / "store.db").write_text("no database" * 100)
    engine = create_async_engine(sqlite_url(tmp_path))
    seen = await place("store", engine)
    await engine.dispose()

    assert seen.problem == "The database is damaged, or is none: restore it from a backup"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+asyncpg://me:sk-secret@localhost:1/db", "postgresql+asyncpg://me:***@localhost:1/db"),
        ("postgresql+asyncpg://localhost:1/db?user=me&password=sk-secret", "postgresql+asyncpg://localhost:1/db"),
        ("postgresql+asyncpg://me:sk%2Dsecret@localhost:1/db", "postgresql+asyncpg://me:***@localhost:1/db"),
        ("postgresql+asyncpg://me:sk-secret@localhost:port/db", "whose URL cannot be read"),
    ],
)
def test_a_store_is_named_without_its_password(url: str, shown: str) -> None:
    """Neither from the URL's user part nor from its query."""
    assert spoken(url) == shown


async def test_a_password_never_leaves_the_worker(tmp_path: Path) -> None:
    """SQLite ignores what it does not know in a query; the answer has nothing of it."""
    engine = create_async_engine(f"sqlite+aiosqlite:///file:{tmp_path}/store.db?uri=true&password=sk-secret")
    card = await said(engine)
    await engine.dispose()

    assert str(card.places[0].where).endswith("/store.db")
    assert "sk-secret" not in card.model_dump_json()


async def asked(question: Inquiry[F], folder: Path) -> F:
    """The answer of a worker with the built-in tools."""
    async with store(folder) as engine:
        inspecting = Inspector(
            Registry(builtin.TOOLS), "offline", Host(engine, {}, KEYS, "1.2.3"), Vault(engine), [engine]
        )
        return await answer(inspecting, question)


async def answer(inspecting: Inspector, question: Inquiry[F]) -> F:
    """What the activity returns."""
    found: Any = await ActivityEnvironment().run(inspecting.inspect, InquiryInput.model_validate(question))
    assert type(found) is question.findings
    narrowed: F = found
    return narrowed


async def test_a_question_about_the_worker_is_answered_with_its_tools(tmp_path: Path) -> None:
    """One question is enough for everything."""
    found = await asked(WorkerInquiry(), tmp_path)

    assert found.worker is not None and len(found.tools) == len(builtin.TOOLS)


async def test_a_question_about_tools_looks_at_nothing_else(tmp_path: Path) -> None:
    """It tells nothing of the worker itself."""
    assert "worker" not in (await asked(ToolsInquiry(), tmp_path)).model_dump()


async def test_what_is_not_offered_is_named(tmp_path: Path) -> None:
    """An author who looks for a kind of his file finds out why it is not there."""
    async with store(tmp_path) as engine:
        host, vault = Host(engine, {}, KEYS, "1.2.3"), Vault(engine)
        inspecting = Inspector(Registry(builtin.TOOLS), "offline", host, vault, [], left_out=["judge"])
        found = await answer(inspecting, ToolsInquiry())

    assert found.left_out == ("judge",)


async def test_the_users_own_tools_are_marked(tmp_path: Path) -> None:
    """`doctor` warns only about what its reader can change."""
    async with store(tmp_path) as engine:
        registry = Registry([builtin.TOOLS[0]], builtin=builtin.TOOLS[1:])
        host, vault = Host(engine, {}, KEYS, "1.2.3"), Vault(engine)
        found = await answer(Inspector(registry, "offline", host, vault, [], own=registry.own), ToolsInquiry())

    assert [card.spec.kind for card in found.tools if card.is_own] == [builtin.TOOLS[0].__name__]


async def test_one_tool_may_be_asked_for(tmp_path: Path) -> None:
    """By its name."""
    found = await asked(ToolsInquiry(kind="search"), tmp_path)

    assert [card.spec.kind for card in found.tools] == ["search"]


def recorded(turn: int, told: str) -> RecordedTurn:
    """A turn of a conversation, in which a model was told this."""
    situation = Situation(turn=turn, now=datetime(2026, 1, 2, tzinfo=UTC), text="x" if turn == 1 else "")
    exchange = Exchange(UserTurn(told), AssistantTurn("ok"), StopReason.DONE, Usage())
    return RecordedTurn("run", 0, turn, situation, Proposed(proposal=Answer(result="ok"), planner="openai:x"), exchange)


async def test_a_transcript_is_told_page_by_page(tmp_path: Path) -> None:
    """A server takes no answer of 2 MB; a turn is never cut, and every page has one at least."""
    pages = list[TranscriptFindings]()
    async with store(tmp_path) as engine:
        transcript = Transcript(engine)
        for turn, size in enumerate((400_000, 400_000, 1_200_000, 10), 1):
            await transcript.write(recorded(turn, "x" * size), before=0)
        host, vault = Host(engine, {}, KEYS, "1.2.3"), Vault(engine)
        inspecting = Inspector({}, "openai:x", host, vault, [engine], transcript=transcript)
        while not pages or pages[-1].more:
            skip = sum(len(page.transcript or ()) for page in pages)
            pages.append(await answer(inspecting, TranscriptInquiry(run="run", skip=skip)))

    assert [[card.turn for card in page.transcript or ()] for page in pages] == [[1, 2], [3], [4]]


async def test_a_task_without_a_conversation_has_an_empty_transcript(tmp_path: Path) -> None:
    """And a worker that keeps none says the same."""
    found = await asked(TranscriptInquiry(run="run"), tmp_path)

    assert (found.transcript, found.more) == ((), False)


async def test_a_ledger_that_cannot_be_read_is_named_beside_what_the_others_know(tmp_path: Path) -> None:
    """Nobody is told that a task did nothing where only half of the ledgers were looked into."""
    gone = create_async_engine("postgresql+psycopg://postgres:sk-secret@127.0.0.1:1/bank")
    async with store(tmp_path) as engine:
        tx_entry = LedgerEntry("run/a", "task-1", "a", "write", "digest")
        async with engine.begin() as tx:
            await apply_in_transaction(tx, tx_entry, _nothing)
        inspecting = Inspector({}, "offline", Host(engine, {}, KEYS, "1.2.3"), Vault(engine), [engine, gone])
        found = await answer(inspecting, EffectsInquiry(task_id="task-1"))
    await gone.dispose()

    assert [effect.step for effect in found.effects or ()] == ["a"]
    assert [str(one.where).endswith("127.0.0.1:1/bank") for one in found.unread] == [True]
    assert "sk-secret" not in found.model_dump_json()


class Word(BaseModel):
    """A word."""

    word: str


async def test_rows_are_looked_for_by_their_keys(tmp_path: Path) -> None:
    """Whichever task applied the effect; what another store or a tool of another worker has, nobody here can tell."""

    @tool.unkeyed
    async def post(args: Word) -> Word:
        """Post a word."""
        return args

    async with store(tmp_path) as engine:
        async with engine.begin() as tx:
            await apply_in_transaction(tx, LedgerEntry("effect-key/a", "task-1", "a", "post", "digest"), _nothing)
        host, vault = Host(engine, {}, KEYS, "1.2.3"), Vault(engine)
        inspecting = Inspector(Registry([post]), "offline", host, vault, [engine], store="here")
        asked = [("effect-key/a", "post", "here"), ("b", "post", "here"), ("c", "post", "there"), ("d", "pay", "here")]
        effects = tuple(AppliedEffect(key=key, kind=kind, store=id) for key, kind, id in asked)
        found = await answer(inspecting, RowsInquiry(effects=effects))
        many = tuple(AppliedEffect(key=f"{number}", kind="post", store="here") for number in range(1_200))
        lacking = await answer(inspecting, RowsInquiry(effects=many))

    assert (found.lacks, len(lacking.lacks)) == (("b",), 1_200)


async def _nothing() -> None:
    """Do nothing."""
