"""The tasks in the pictures of the page, in each of the states in which a person meets them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from client.client import Client, TaskHandle
from client.problem import Problem
from workflows.account.task import Task

SECONDS = 60.0
"""How long the tasks may take to come to their states."""


def _step(id: str, kind: str, *needs: str, **args: Any) -> dict[str, Any]:
    return {"id": id, "kind": kind, "needs": needs, "args": args}


def _room(id: str, at: str) -> dict[str, Any]:
    return _step(id, "book_room", room="garden room", day="2026-12-03", at=at, seats=12, catering=True)


def _deposit(room: str) -> dict[str, Any]:
    return _step("pay", "pay", room, payee="Garden Hall", iban="AT02 2050 3021 0102", amount="120.00", due="2026-12-02")


LETTER = "Dear Ms. Brandt,\n\nwe end the lease of the garden room by 31 March.\n\nKind regards\nThe office"
WAITING: Mapping[str, dict[str, Any]] = {
    "chairs-114": {
        "text": "Pay invoice 2026-114 for the new chairs",
        "plan": [
            _step("invoice", "read_invoice", number="2026-114"),
            _step(
                "pay",
                "pay",
                "invoice",
                **{name: {"$from": "invoice", "path": name} for name in ("payee", "iban", "amount", "due")},
                reference="Chairs",
            ),
        ],
    },
    "letter-landlord": {
        "text": "Tell the landlord that we move out at the end of March",
        "plan": [_step("letter", "send_letter", to="Ms. Brandt, Hauptstr. 5, 1010 Wien", text=LETTER)],
        "approve": "effects",
    },
    "garden-summer": {
        "text": "Book the garden room for the summer party",
        "plan": [_step("room", "book_room", room="attic", day="2026-12-10", at="18:30", seats=40)],
        "approve": "effects",
    },
    "room-thursday": {
        "text": "Book the garden room for twelve on Thursday",
        "plan": [_room("room", "14:00")],
        "revisions": [
            {"type": "question", "text": "14:00 is taken. Which time shall I take?", "options": ["14:30", "16:00"]}
        ],
    },
    **{
        f"check-{number}": {
            "text": f"Check whether {name} is still registered",
            "plan": [_step("company", "look_up_company", name=name)],
        }
        for number, name in enumerate(("Stoll Chairs", "Brandt Estates", "Nordlicht Energy"), 1)
    },
}
"""By their ids, tasks that come to wait for a person."""
RUNNING: Mapping[str, dict[str, Any]] = {
    "archive-stoll": {
        "text": "Search the archive for Stoll Chairs, and post what is found",
        "plan": [
            _step("room", "book_room", room="library", day="2026-12-04", at="10:00", seats=2),
            _step("search", "search_archive", "room", name="Stoll Chairs"),
            _step("letter", "send_letter", "search", to="The board", text={"$from": "search", "path": "text"}),
        ],
    },
}
ENDED: Mapping[str, dict[str, Any]] = {
    "room-friday": {
        "text": "Book the garden room on Friday and pay the deposit",
        "plan": [_room("room", "14:00"), _deposit("room")],
        "revisions": [
            {
                "type": "steps",
                "because": "14:00 is taken; 14:30 is the next free time.",
                "steps": [_room("room-2", "14:30"), _deposit("room-2")],
            },
            {"type": "answer", "result": "The garden room is booked for Friday 14:30, and the deposit is paid."},
        ],
    },
    "library-monday": {
        "text": "Book the library on Monday",
        "plan": [_step("room", "book_room", room="library", day="2026-12-07", at="09:00", seats=4)],
        "revisions": [{"type": "answer", "result": "The library is booked on Monday at 9:00."}],
    },
    "letters-all": {
        "text": "Post the newsletter to everybody",
        "plan": [
            _step(f"letter-{number}", "send_letter", to=f"member {number}", text="News") for number in range(1, 4)
        ],
        "limits": {"tool_calls": 2},
        "on_escalation": "end",
    },
}
UNDONE = "library-monday"
"""Of the tasks that end, the one that is undone."""


async def play(client: Client) -> None:
    """Start all of these tasks, and return when each has come to its state. Raises TimeoutError if one does not."""
    async with asyncio.timeout(SECONDS):
        tasks = {id: await _start(client, id, fields) for id, fields in {**WAITING, **RUNNING, **ENDED}.items()}
        while not await _is_played(client, tasks):  # noqa: ASYNC110  # what is played is on a server
            await asyncio.sleep(0.1)
        await tasks[UNDONE].undo()


async def _is_played(client: Client, tasks: Mapping[str, TaskHandle]) -> bool:
    ended = [(await tasks[id].outcome()).ended_at for id in ENDED]
    asked = [await tasks[id].requests() for id in WAITING]
    listed = len(await client.waiting())  # the server's list is a moment behind
    return all(ended) and all(asked) and listed >= len(WAITING)


async def _start(client: Client, id: str, fields: Mapping[str, Any]) -> TaskHandle:
    task = Task.model_validate({"on_escalation": "wait", "by": "ann", **fields})
    try:
        return await client.start(task, id=id)
    except Problem as problem:
        raise SystemExit(f"{id}: {problem}") from problem


PAGES: Mapping[str, str] = {
    "inbox": "/ui/inbox",
    "inbox-filter": "/ui/inbox?kind=question",
    "approval": "/ui/tasks/chairs-114",
    "question": "/ui/tasks/room-thursday",
    "fault": "/ui/tasks/check-1",
    "running": "/ui/tasks/archive-stoll",
    "completed": "/ui/tasks/room-friday",
    "undone": "/ui/tasks/library-monday",
    "failed": "/ui/tasks/letters-all",
    "explain": "/ui/tasks/room-friday/explain",
    "effects": "/ui/tasks/library-monday/effects",
    "cancel": "/ui/tasks/archive-stoll/cancel",
    "undo": "/ui/tasks/room-friday/undo",
    "tasks": "/ui/tasks",
    "incidents": "/ui/incidents",
    "new": "/ui/new",
    "login": "/login",
    "problem": "/ui/tasks/unknown",
}
"""The pages that show these states."""
