"""What a worker says of itself: its places and what is wrong with them, its keys by name, no secret."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
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
from activities.toolbox.declare.kind import Kind
from activities.toolbox.registry import Registry
from examples import desk
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


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    opened = await open_store(sqlite_url(tmp_path))
    yield opened
    await opened.dispose()


async def said(engine: AsyncEngine, **folders: Path | None) -> WorkerCard:
    """What a worker with this store and these folders says of itself."""
    return await ActivityEnvironment().run(Host(engine, folders, KEYS, "1.2.3").card)


async def test_places_that_can_be_used_have_no_problem(tmp_path: Path, engine: AsyncEngine) -> None:
    """Each by its full path, of keys whether it has them; a folder or a store that went away is noticed."""
    card = await said(engine, state=tmp_path, documents=tmp_path, workspace=None)
    (tmp_path / "file").touch()
    folders = {"state": tmp_path / "gone", "documents": tmp_path / "gone", "workspace": tmp_path / "file"}
    (tmp_path / "store.db").unlink()
    seen, *others = (await said(engine, **folders)).places

    assert (card.version, card.keys) == ("1.2.3", KEYS)
    assert [one.problem for one in card.places] == [None] * 4
    assert [one.where for one in card.places[1:]] == [str(tmp_path), str(tmp_path), None]
    assert (seen.name, seen.problem is None) == ("store", False)
    assert others == [
        Place(name=name, where=str(folder), problem="it is not there any more") for name, folder in folders.items()
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it lacks the tables "),  # an empty database answers, and is of no use
        ("no database" * 100, "The database is damaged, or is none: restore it from a backup"),
    ],
)
async def test_a_store_that_is_of_no_use_is_noticed(tmp_path: Path, content: str, problem: str) -> None:
    assert desk.TOOLS  # whose tables are the store's
    (tmp_path / "store.db").write_text(content)
    engine = create_async_engine(sqlite_url(tmp_path))
    seen, *_ = (await said(engine)).places
    await engine.dispose()

    assert seen.problem is not None and seen.problem.startswith(problem)


URLS = {
    "postgresql+asyncpg://me:sk-secret@localhost:1/db": "postgresql+asyncpg://me:***@localhost:1/db",
    "postgresql+asyncpg://localhost:1/db?user=me&password=sk-secret": "postgresql+asyncpg://localhost:1/db",
    "postgresql+asyncpg://me:sk%2Dsecret@localhost:1/db": "postgresql+asyncpg://me:***@localhost:1/db",
    "postgresql+asyncpg://me:sk-secret@localhost:port/db": "whose URL cannot be read",
}


async def test_a_password_never_leaves_the_worker(tmp_path: Path) -> None:
    """Neither of the URL's user part nor of its query. SQLite ignores what it does not know there."""
    engine = create_async_engine(f"sqlite+aiosqlite:///file:{tmp_path}/store.db?uri=true&password=sk-secret")
    card = await said(engine)
    await engine.dispose()

    assert {url: spoken(url) for url in URLS} == URLS
    assert str(card.places[0].where).endswith("/store.db")
    assert "sk-secret" not in card.model_dump_json()


def inspector(engine: AsyncEngine, tools: Mapping[str, Kind], *ledgers: AsyncEngine, **more: Any) -> Inspector:
    """What answers the questions to a worker with these tools and ledgers."""
    return Inspector(tools, "offline", Host(engine, {}, KEYS, "1.2.3"), Vault(engine), ledgers, **more)


async def answer(inspecting: Inspector, question: Inquiry[F]) -> F:
    found: Any = await ActivityEnvironment().run(inspecting.inspect, InquiryInput.model_validate(question))
    assert type(found) is question.findings
    narrowed: F = found
    return narrowed


async def test_a_question_about_the_worker_is_answered_with_its_tools(engine: AsyncEngine) -> None:
    """One question is enough for everything; one about tools looks at nothing else, and names what is not offered."""
    registry = Registry([builtin.TOOLS[0]], builtin=builtin.TOOLS[1:])
    inspecting = inspector(engine, registry, own=registry.own, left_out=["judge"])
    everything = await answer(inspecting, WorkerInquiry())
    tools = await answer(inspecting, ToolsInquiry())
    one = await answer(inspecting, ToolsInquiry(kind="summarise"))
    told = await answer(inspecting, TranscriptInquiry(run="run"))

    assert everything.worker is not None and len(everything.tools) == len(builtin.TOOLS)
    assert "worker" not in tools.model_dump() and tools.left_out == ("judge",)
    assert [card.spec.kind for card in tools.tools if card.is_own] == [builtin.TOOLS[0].__name__]
    assert [card.spec.kind for card in one.tools] == ["summarise"]
    assert (told.transcript, told.more) == ((), False)


async def apply(engine: AsyncEngine, key: str, kind: str) -> None:
    """Write the row of an effect that did nothing."""

    async def nothing() -> None:
        pass

    async with engine.begin() as tx:
        await apply_in_transaction(tx, LedgerEntry(key, "task-1", "a", kind, "digest"), nothing)


def recorded(turn: int, told: str) -> RecordedTurn:
    """A turn of a conversation, in which a model was told this."""
    situation = Situation(turn=turn, now=datetime(2026, 1, 2, tzinfo=UTC), text="x" if turn == 1 else "")
    exchange = Exchange(UserTurn(told), AssistantTurn("ok"), StopReason.DONE, Usage())
    return RecordedTurn("run", 0, turn, situation, Proposed(proposal=Answer(result="ok"), planner="openai:x"), exchange)


async def test_a_transcript_is_told_page_by_page(engine: AsyncEngine) -> None:
    """A server takes no answer of 2 MB; a turn is never cut, and every page has one at least."""
    pages, transcript = list[TranscriptFindings](), Transcript(engine)
    for turn, size in enumerate((400_000, 400_000, 1_200_000, 10), 1):
        await transcript.write(recorded(turn, "x" * size), before=0)
    inspecting = inspector(engine, {}, engine, transcript=transcript)
    while not pages or pages[-1].more:
        skip = sum(len(page.transcript or ()) for page in pages)
        pages.append(await answer(inspecting, TranscriptInquiry(run="run", skip=skip)))

    assert [[card.turn for card in page.transcript or ()] for page in pages] == [[1, 2], [3], [4]]


async def test_a_ledger_that_cannot_be_read_is_named_beside_what_the_others_know(engine: AsyncEngine) -> None:
    """Nobody is told that a task did nothing where only half of the ledgers were looked into."""
    gone = create_async_engine("postgresql+psycopg://postgres:sk-secret@127.0.0.1:1/bank")
    await apply(engine, "run/a", "write")
    found = await answer(inspector(engine, {}, engine, gone), EffectsInquiry(task_id="task-1"))
    await gone.dispose()

    assert [effect.step for effect in found.effects or ()] == ["a"]
    assert [str(one.where).endswith("127.0.0.1:1/bank") for one in found.unread] == [True]
    assert "sk-secret" not in found.model_dump_json()


async def test_rows_are_looked_for_by_their_keys(engine: AsyncEngine) -> None:
    """Whichever task applied the effect; what another store or a tool of another worker has, nobody here can tell."""
    await apply(engine, "effect-key/a", "book_slot")
    inspecting = inspector(engine, Registry(desk.TOOLS), engine, store="here")
    asked = [("effect-key/a", "here"), ("b", "here"), ("c", "there")]
    effects = [AppliedEffect(key=key, kind="book_slot", store=id) for key, id in asked]
    other = AppliedEffect(key="d", kind="pay", store="here")
    found = await answer(inspecting, RowsInquiry(effects=(*effects, other)))
    many = tuple(AppliedEffect(key=f"{number}", kind="book_slot", store="here") for number in range(1_200))
    lacking = await answer(inspecting, RowsInquiry(effects=many))

    assert (found.lacks, len(lacking.lacks)) == (("b",), 1_200)
