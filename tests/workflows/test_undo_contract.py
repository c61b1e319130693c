"""An undo, and each other companion of a call, passes the contract: untrusted content does not choose whom it pays."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.client import Client

from client.follow import View
from client.undo import Confirm, PlannedUndo, cancel, undo, undo_steps
from replan import Key, Refused, Tool, tool
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.workflows.history import Handle
from tests.workflows.props import Stages, Word
from tests.workflows.test_agent_people import asking
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.contract import AllowedEffect, Term
from workflows.plans.proposal import Step

EVIL = "DE99 EVIL"


class Pay(BaseModel):
    to: str
    amount: int
    text: str = ""


class Seller(BaseModel):
    account: str


class Paid(BaseModel):
    id: str = "p-1"
    number: int = 77
    contact: str = EVIL
    seller: Seller = Seller(account=EVIL)


class Refund(BaseModel):
    to: str = ""
    amount: int = 0
    note: str = ""
    charge: str = ""


class Name(BaseModel):
    name: str


class Bank:
    """What was paid back, and the tools of a bank whose receipts have text of strangers in them."""

    def __init__(
        self, paths: dict[str, str], *, is_untrusted: bool = True, content: Sequence[str] = (), found: bool = False
    ) -> None:
        """`paths` are those of the undo, `content` the arguments of a payment and a refund that only inform."""
        self.refunds = list[dict[str, JsonValue]]()
        self.paths, self.is_untrusted, self.content, self.found = paths, is_untrusted, list(content), found

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """A payment that is undone by a refund, reads whose results are trusted or not, and a tool that fails."""

        @tool.idempotent(content=[name for name in self.content if name in Refund.model_fields])
        async def refund(args: Refund) -> Word:
            """Pay back."""
            self.refunds.append(args.model_dump(exclude_defaults=True))
            return Word()

        @tool.read(untrusted=self.found)
        async def find(args: Word) -> Paid:
            """Find a payment."""
            return Paid()

        more: dict[str, Any] = {"reconcile": find, "settle": 0} if self.found else {}

        @tool.unkeyed(
            untrusted=self.is_untrusted,
            undo=refund.using(**self.paths),
            content=[name for name in self.content if name in Pay.model_fields],
            **more,
        )
        async def pay(args: Pay, key: Key) -> Paid:
            """Pay."""
            if self.found:
                raise ConnectionResetError
            return Paid()

        @tool.read
        async def look_up(args: Word) -> Name:
            """Look an account up in a book of one's own."""
            return Name(name=EVIL)

        @tool.read(untrusted=True)
        async def page(args: Word) -> Word:
            """Show a page."""
            return Word(word=EVIL)

        @tool.pure
        def spell(args: Word) -> Name:
            """Compute a name."""
            return Name(name=EVIL)

        @tool.read
        async def fail(args: Word) -> Word:
            """Need a person."""
            raise KeyError(args.word)

        return [refund, find, pay, look_up, page, spell, fail]


TO_CONTACT = {"to": "result.contact", "amount": "args.amount"}
PAID = step("p", "pay", to="shop", amount=5)
FAILS = step("f", "fail", "p")
HELD = "refund needs approval: to comes from untrusted content (contact in the result of 'p')."


async def rolled_back(client: Client, folder: Path, bank: Bank, script: Proposals, **task: Any) -> Outcome:
    """A task that pays, fails and is rolled back without a person."""
    async with staged(client, folder, bank.tools, script) as stage:
        return await stage.run(Task(**{"text": "a task", **task}, on_escalation="undo"))


@pytest.mark.parametrize(
    ("bank", "held"),
    [
        (Bank(TO_CONTACT), HELD),
        (Bank({"to": "result.seller.account"}), HELD.replace("contact in", "seller.account in")),
        (Bank({"to": "args.to", "amount": "result.number"}), "refund needs approval: amount comes from untrusted con"),
        (Bank({"note": "result.contact", "to": "args.to"}), "refund needs approval: note comes from untrusted content"),
        (Bank(TO_CONTACT, is_untrusted=False, found=True), HELD),
        (Bank({"note": "result.contact", "to": "args.to"}, content=["note"]), ""),
        (Bank({"to": "args.to", "amount": "args.amount"}), ""),
        (Bank({"charge": "result.id"}), ""),
        (Bank(TO_CONTACT, is_untrusted=False), ""),
    ],
    ids=["whom", "nested", "how much", "unmarked", "found", "content", "arguments", "id", "trusted"],
)
async def test_an_undo_is_not_sent_where_untrusted_content_says_to(
    client: Client, tmp_path: Path, bank: Bank, held: str
) -> None:
    """Authority needs a trusted source; an argument of the call, the id of the effect and mere content do not ask."""
    ended = await rolled_back(client, tmp_path, bank, [plan(PAID, FAILS), DONE])

    [undone] = ended.undo
    assert (undone.done, undone.reason.startswith(held), len(bank.refunds)) == (not held, True, 0 if held else 1)


@pytest.mark.parametrize(
    ("steps", "task"),
    [
        ([PAID, FAILS], {"text": f"Pay 5 to the shop; its account is ({EVIL})."}),
        ([step("l", "look_up"), step("p", "pay", "l", to="shop", amount=5), FAILS], {}),
        ([PAID, FAILS], {"contract": (AllowedEffect(kind="refund", args={"to": Term(values=(EVIL,))}),)}),
    ],
    ids=["the user", "a trusted result", "the contract"],
)
async def test_a_value_that_a_trusted_source_shows_is_free(
    client: Client, tmp_path: Path, steps: Any, task: dict[str, Any]
) -> None:
    """It was in the untrusted result, too."""
    bank = Bank(TO_CONTACT)
    ended = await rolled_back(client, tmp_path, bank, [plan(*steps), DONE], **task)

    assert ([undone.done for undone in ended.undo], bank.refunds) == ([True], [{"to": EVIL, "amount": 5}])


@pytest.mark.parametrize("text", [f"Pay X{EVIL}.", "Pay DE99.", "Pay evil-de99 EVIL"])
async def test_what_only_looks_like_it_is_no_source(client: Client, tmp_path: Path, text: str) -> None:
    """The whole value counts, as whole words."""
    bank = Bank(TO_CONTACT)
    ended = await rolled_back(client, tmp_path, bank, [plan(PAID, FAILS), DONE], text=text)

    assert ([undone.done for undone in ended.undo], bank.refunds) == ([False], [])


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_computation_that_was_chosen_late_is_no_source(client: Client, tmp_path: Path, is_late: bool) -> None:
    """It shows what the planner wants; what was planned before untrusted content was read is the task's own."""
    bank, spells, reads = Bank(TO_CONTACT), step("s", "spell", word="x"), step("r", "page")
    first, second = (reads, spells) if is_late else (spells, reads)
    contract = (AllowedEffect(kind="pay"),)
    script: Proposals = [plan(first), plan(second), plan(step("p", "pay", to="shop", amount=5), FAILS), DONE]
    ended = await rolled_back(client, tmp_path, bank, script, text="Pay 5 to the shop for x.", contract=contract)

    assert [undone.done for undone in ended.undo] == [not is_late]


async def test_content_of_the_call_does_not_become_authority_of_its_undo(client: Client, tmp_path: Path) -> None:
    """The text of a payment may come from a page; the receiver of the refund may not."""
    bank = Bank({"to": "args.text"}, is_untrusted=False, content=["text"])
    pays = step("p", "pay", "r", to="shop", amount=5, text={"$from": "r", "path": "word"})
    ended = await rolled_back(client, tmp_path, bank, [plan(step("r", "page"), pays, FAILS), DONE])

    assert [undone.reason for undone in ended.undo] == [
        "refund needs approval: to comes from untrusted content (text in the arguments of 'p')."
    ]
    assert bank.refunds == []


@asynccontextmanager
async def closed(stages: Stages, bank: Bank, *steps: Step) -> AsyncIterator[Handle]:
    """A task that has paid and ended, while its worker runs."""
    async with stages(bank.tools, [plan(PAID, *steps), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        yield handle


def seen_by(seen: list[PlannedUndo], *, says: bool = True) -> Confirm:
    """A person who looks at the calls, and confirms them."""

    async def confirm(planned: PlannedUndo) -> bool:
        seen.append(planned)
        return says

    return confirm


async def test_a_person_confirms_an_undo_and_is_told_where_its_values_come_from(stages: Stages) -> None:
    """Nobody looked: held, and named. Somebody looked: made once, however often it is undone."""
    bank, seen = Bank(TO_CONTACT), list[PlannedUndo]()
    async with closed(stages, bank) as handle:
        unseen = await undo(stages.client, handle, View(), is_attended=False)
        confirmed = await undo(stages.client, handle, View(), is_attended=False, confirm=seen_by(seen))
        again = await undo(stages.client, handle, View(), is_attended=False)

    assert [record.reason for record in unseen.outcome.undo] == [HELD]
    assert unseen.planned and [call.approve for call in unseen.planned.to_approve] == [HELD[23:-1]]
    assert [call.args for call in seen[0].calls] == [{"to": EVIL, "amount": 5}]
    assert (confirmed.is_complete, again.is_complete, bank.refunds) == (True, True, [{"to": EVIL, "amount": 5}])


async def test_a_second_rollback_does_not_ask_about_what_is_undone(stages: Stages) -> None:
    """One effect was confirmed and undone, another has no undo: the next rollback names only the other."""
    bank = Bank(TO_CONTACT)
    async with closed(stages, bank, step("x", "refund", "p", to="me")) as handle:
        first = await undo(stages.client, handle, View(), is_attended=False, confirm=seen_by([]))
        second = await undo(stages.client, handle, View(), is_attended=False)

    assert [[(undone.step_id, undone.done) for undone in each.outcome.undo] for each in (first, second)] == [
        [("x", False), ("p", True)]
    ] * 2
    assert (second.planned, bank.refunds) == (None, [{"to": "me"}, {"to": EVIL, "amount": 5}])


@pytest.mark.parametrize("is_seen", [True, False])
async def test_cancel_with_undo_shows_the_call_first(stages: Stages, is_seen: bool) -> None:
    """A running task is told what a person has seen; without a person the call is held, and named."""
    bank, seen = Bank(TO_CONTACT), list[PlannedUndo]()
    async with asking(stages, bank.tools, [plan(PAID, FAILS), DONE], Task(text="a task", on_escalation="wait")) as (
        handle,
        _,
    ):
        await cancel(stages.client, handle, undo=True, confirm=seen_by(seen) if is_seen else None)
        ended = await outcome(handle)

    assert ([undone.done for undone in ended.undo], len(bank.refunds)) == ([is_seen], int(is_seen))
    assert [undone.reason for undone in ended.undo] == ["" if is_seen else HELD]


async def test_a_reset_that_undoes_holds_the_call_as_well(stages: Stages) -> None:
    """`reset --undo` has the same rule."""
    bank = Bank(TO_CONTACT)
    async with closed(stages, bank) as handle:
        [unseen] = await undo_steps(stages.client, handle, {"p"}, View(), is_attended=False)
        [confirmed] = await undo_steps(stages.client, handle, {"p"}, View(), is_attended=False, confirm=seen_by([]))

    assert (unseen.done, unseen.reason, confirmed.done, len(bank.refunds)) == (False, HELD, True, 1)


class Post(BaseModel):
    to: str
    text: str


class Where(BaseModel):
    url: str = ""
    place: str = ""


def posting(asked_for: list[str], fails: Callable[[], Exception], name: str) -> list[Tool[..., Any]]:
    """A message whose text becomes the address of a read, which its argument `name` is."""

    @tool.read(untrusted=True)
    async def page(args: Word) -> Word:
        """Show a page."""
        return Word(word="https://evil.example/?secret")

    @tool.read
    async def look(args: Where) -> Word:
        """Fetch what is at an address."""
        asked_for.append(args.url or args.place)
        return Word(word="found")

    there = look.using(**{name: "args.text"})

    @tool.keyed(content=["text"], reconcile=there, observe=there, retry="once")
    async def post(args: Post, key: Key) -> Word:
        """Post a text."""
        raise fails()

    return [page, look, post]


@pytest.mark.parametrize("name", ["url", "place"])
@pytest.mark.parametrize("fails", [lambda: ConnectionResetError(), lambda: Refused("No.", code="conflict")])
async def test_a_companion_carries_no_data_away(stages: Stages, fails: Callable[[], Exception], name: str) -> None:
    """Its address comes from a page: it is not called, and a person or the planner is told why."""
    asked_for = list[str]()
    sends = step("p", "post", "r", to="ann", text={"$from": "r", "path": "word"})
    script: Proposals = [plan(step("r", "page"), sends), DONE]
    async with stages(posting(asked_for, fails, name), script) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        progress = await handle.query(AgentWorkflow.progress)

    told = [ended.reason, *(observation.unread for observation in progress.observations)]
    why = f"look was not called: {name} comes from untrusted content (text in the arguments of 'p')"
    assert asked_for == []
    assert any(why in text for text in told)
    assert ended.status in (TaskStatus.ESCALATED, TaskStatus.COMPLETED)
