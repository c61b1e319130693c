"""A person answers where the task is followed: with whole words, and never with keys that were meant for another."""

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from client.people import login_name
from runtime.dev_server import DevServer
from tests.console.desk import Desk, desk
from tests.console.terminal import PATIENCE, Terminal, starter
from tests.console.test_live import CLOSED
from tests.gate import sampled
from tests.harness import Stage, outcome, plan, staged, step
from tests.processes import ROOT
from tests.workflows import test_approvals
from tests.workflows.history import Handle, until
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.people.requests import HumanAnswer
from workflows.plans.proposal import Question

SIGN = plan(step("signed", "sign", word="b"))
TWICE = plan(step("one", "sign", word="b"), step("two", "sign", "one", word="c"))
FIRST = "  ? r1 signed: The key is missing. (until "
CHOICES = "Type retry, replan, provide, skip or abort, then Enter. Ctrl-C leaves it waiting."
VOID = "What you have typed meanwhile is not sent. Press Enter to go on."

Follow = Callable[..., AbstractContextManager[Terminal]]
Asking = Callable[..., AbstractAsyncContextManager[tuple[Desk, Handle]]]


@pytest.fixture
def follow(server: DevServer) -> Follow:
    """Opens a terminal in which a task is followed."""

    def opened(handle: Handle, *, size: tuple[int, int] = (80, 24), **environment: str) -> Terminal:
        known = {"TEMPORAL_ADDRESS": server.address, **environment}
        return Terminal(starter(ROOT, "show", handle.id, "--follow"), known, ROOT, size)

    return opened


@pytest.fixture
def asking(client: Client, tmp_path: Path) -> Asking:
    """Begins a task that waits for people, with a worker that plays these proposals."""

    @asynccontextmanager
    async def begun(*proposals: Any, **limits: int) -> AsyncIterator[tuple[Desk, Handle]]:
        async with desk(client, tmp_path, *proposals) as table:
            handle = await table.begin(Task(text="a task", on_escalation="wait", limits=Limits(**limits)))
            yield table, handle
            with suppress(RPCError):  # it has ended
                await handle.terminate()

    return begun


@pytest.fixture
async def stage(client: Client, tmp_path: Path) -> AsyncIterator[Stage]:
    """A worker of a shop, with a plan that buys a desk for 900, which a person has to approve."""
    test_approvals.SHOP.__init__()  # type: ignore[misc]
    async with staged(client, tmp_path, test_approvals.TOOLS, test_approvals.BUY) as shop:
        yield shop


async def shows(terminal: Terminal, *words: str) -> None:
    """Wait until all these words are on the screen, however its lines are broken."""
    async with asyncio.timeout(PATIENCE):
        while not all(one in " ".join(" ".join(terminal.shown.text).split()) for one in words):
            await asyncio.sleep(0.02)


async def prompts(terminal: Terminal, *words: str, typed: str = "") -> None:
    """Wait until these words are on the screen, and the line that is typed is the last."""
    await shows(terminal, *words)
    async with asyncio.timeout(PATIENCE):
        while terminal.shown.text[-1] != f"  > {typed}".rstrip():
            await asyncio.sleep(0.02)


async def answers(handle: Handle) -> list[HumanAnswer | None]:
    """The answers of all requests of a task that has ended."""
    return [one.answer for one in (await outcome(handle)).requests]


async def test_the_answer_is_typed_below_the_tree(asking: Asking, follow: Follow) -> None:
    """It is sent under the login name, the task goes on, and the end shows the tree and nothing of the prompt."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, " ".join(FIRST.split()), CHOICES)
            assert not terminal.echoes
            terminal.press("ret")
            await prompts(terminal, typed="ret")
            terminal.press("\x7fxy\x15retry")
            await prompts(terminal, typed="retry")
            terminal.press("\n")
            code = await terminal.ended()
            assert terminal.echoes
        given = await answers(handle)

    assert code == 0
    assert [(one.choice, one.by) for one in given if one] == [("retry", login_name())]
    assert not [row for row in terminal.shown.text if row.startswith("  >") or "Type " in row]


async def test_keys_typed_ahead_are_no_answer(asking: Asking, follow: Follow) -> None:
    """Neither those that came while the task ran, nor what follows the Enter of an answer."""
    slow = plan(step("first", "linger"), step("one", "sign", "first", word="b"), step("two", "sign", "one", word="c"))
    async with asking(slow) as (table, handle):
        with follow(handle) as terminal:
            await terminal.until("linger")
            terminal.press("retry\n")
            await prompts(terminal, "? r1 one: The key is missing.")
            terminal.press("retry\nretry\nret")
            await shows(terminal, "? r2 two: The key is missing.", VOID)
            terminal.press("ry\n")
            await prompts(terminal, CHOICES)
            terminal.press("abort\n")
            await prompts(terminal, "Abort: type the reason, then Enter")
            terminal.press("\n")
            code = await terminal.ended()
        given = await answers(handle)

    assert (code, [one.choice for one in given if one]) == (1, ["retry", "abort"])
    assert (table.calls["sign b"], table.calls["sign c"]) == (2, 1)


async def test_a_line_that_was_begun_answers_no_other_request(asking: Asking, follow: Follow) -> None:
    """Somebody else answers while a person types: the rest of the line, up to Enter, goes nowhere."""
    async with asking(TWICE) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, "? r1 one: The key is missing.")
            terminal.press("ab")
            await prompts(terminal, typed="ab")
            await handle.execute_update("retry", {"by": "ann", "request": "r1"}, result_type=str)
            await shows(terminal, "? r2 two: The key is missing.", "? r1 one: ann answered retry after", VOID)
            assert not [row for row in terminal.shown.text if row.startswith("  >")]
            terminal.press("skip\n")
            await prompts(terminal, "? r2 two: The key is missing.", CHOICES)
            assert VOID not in " ".join(terminal.shown.text)
            terminal.press("retry\n")
            code = await terminal.ended()
        given = await answers(handle)

    assert code == 0
    assert [(one.choice, one.by) for one in given if one] == [("retry", "ann"), ("retry", login_name())]


@pytest.mark.full
async def test_the_oldest_of_several_is_asked_first(asking: Asking, follow: Follow) -> None:
    """It says how many more there are; where nothing was typed, one that is answered elsewhere makes room at once. A
    simple terminal (TERM=dumb) cannot draw below a tree: there a second terminal answers."""
    both = plan(step("one", "sign", word="b"), step("two", "sign", word="c"))
    async with asking(both) as (_, handle):
        await until(handle, lambda now: len(now.requests) == 2)
        with follow(handle) as terminal, follow(handle, TERM="dumb") as simple:
            await prompts(terminal, "? r1 ", "1 more request after it.")
            await simple.until(f"    Answer: python starter.py answer {handle.id} retry")
            terminal.press("retry\n")
            await prompts(terminal, "r1 took the answer: retry.", "? r2 ")
            await handle.execute_update("retry", {"by": "bob"}, result_type=str)
            code, other = await terminal.ended(), await simple.ended()
        given = await answers(handle)

    assert (code, other, len(given)) == (0, 0, 2) and "Type " not in simple.raw


MEAN = "What they mean:"
WRONG = {
    "rety": f"There is no answer 'rety': did you mean retry? {MEAN}",
    "retr": "There is no answer 'retr': did you mean retry?",
    "RETRY": f"There is no answer 'RETRY'. {MEAN}",
    "extend": "retry: the cause is repaired: make the same call again",
    "retry it": "There is no answer 'retry it'",
    "\x1b[A\x1b[Z?": "There is no answer '?'.",  # keys that type nothing
    "w" * 500: "There is no answer 'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww…'.",
}


async def test_another_word_is_told_what_is_taken(asking: Asking, follow: Follow) -> None:
    """Nothing is sent, and Enter alone says nothing either; then the right word is taken."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, CHOICES)
            terminal.press("\n")
            for typed, said in WRONG.items():
                terminal.press(f"{typed}\n")
                await prompts(terminal, said, CHOICES)
            terminal.press("  retry \n")
            code = await terminal.ended()
        given = await answers(handle)

    assert (code, len(given)) == (0, 1)


BILL = "Pay by 請求書."
AS_JSON = "Provide: type the result of the step as JSON, or @FILE"
MORE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "hint": ("replan", "Replan: type a hint for the planner, then Enter", BILL, {"text": BILL}),
    "no hint": ("replan", "only Enter for none.", "", {}),
    "reason": ("skip", "Skip: type the reason", "Not now.", {"text": "Not now."}),
    "undo": ("abort --undo", "Abort: type the reason", "", {"undo": True}),
    "result": ("provide", AS_JSON, '{"word": "b"}', {}),
}


@pytest.mark.parametrize(("typed", "asked", "words", "has"), sampled(MORE, "hint"))
async def test_some_answers_take_words(
    asking: Asking, follow: Follow, typed: str, asked: str, words: str, has: Mapping[str, Any]
) -> None:
    """They are asked for in a second line, in which Enter alone means none."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, CHOICES)
            terminal.press(f"{typed}\n")
            await prompts(terminal, asked)
            terminal.press(f"{words}\n")
            await terminal.ended()
        (given,) = await answers(handle)

    assert given and given.choice == typed.split()[0]
    assert {name: getattr(given, name) for name in has} == has and (has.get("text") or not given.text)


HOW_MANY = "Extend: type how many replans more, e.g. +1, then Enter; only Enter to go back."
TYPED_AGAIN: dict[str, tuple[Any, dict[str, int], list[tuple[str, ...]]]] = {
    "a result": (
        SIGN,
        {},
        [
            ("provide", "only Enter to go back."),
            ("{", "--result is not JSON (", "only Enter to go back."),
            ("", "Nothing was sent, since provide needs words.", CHOICES),
            ("provide", "Provide: type "),
            ('{"word": 7}', "? r2 signed:", "is not accepted", CHOICES),
            ("retry",),
        ],
    ),
    "an amount": (
        plan(step("written", "write", word="taken")),
        {"replans": 0},
        [("extend", HOW_MANY), ("many", "--replans must be a whole number"), ("+2",)],
    ),
}


@pytest.mark.parametrize(("proposal", "limits", "lines"), TYPED_AGAIN.values(), ids=TYPED_AGAIN)
async def test_what_cannot_be_used_is_typed_again(
    asking: Asking, follow: Follow, proposal: Any, limits: dict[str, int], lines: list[tuple[str, ...]]
) -> None:
    """Where words are needed, Enter alone goes back to the choice; what the task refuses opens another request."""
    async with asking(proposal, **limits) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, *(["? r1 budget: ", "Type extend or abort, then Enter."] if limits else [CHOICES]))
            for typed, *said in lines:
                terminal.press(f"{typed}\n")
                if said:
                    await prompts(terminal, *said)
            code = await terminal.ended()
        ended = await outcome(handle)

    assert (code, [one.extended for one in ended.extensions]) == (0, [{"replans": 2}] if limits else [])


SLOTS, FREE = Question(text="Which slot?", options=("14:30", "15:00")), Question(text="Which slot?")
CLASSES = Question(text="Which slot?", options=("14:30", "first  class"))
NUMBERS = Question(text="How many?", options=("2", "1"), free_text=False)
QUESTIONS: dict[str, tuple[Question, tuple[str, ...], str]] = {
    "by its number": (SLOTS, ("2",), "15:00"),
    "by its text": (CLASSES, ("first class",), "first class"),
    "in other words": (SLOTS, ("reply", "At noon."), "At noon."),
    "without options": (FREE, ("reply", "At noon."), "At noon."),
    "with numbers as options": (NUMBERS, ("1",), "1"),
}


@pytest.mark.parametrize(("question", "lines", "said"), sampled(QUESTIONS, "by its number"))
async def test_a_question_takes_an_option_or_words(
    asking: Asking, follow: Follow, question: Question, lines: tuple[str, ...], said: str
) -> None:
    """Words that are no option are no reply before `reply` was typed: they may be meant for another window."""
    async with asking(question) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, f"? r1 The planner asks: {question.text}")
            terminal.press("ls\n")
            await prompts(terminal, "There is no answer 'ls'")
            for line in lines:
                terminal.press(f"{line}\n")
                if line == "reply":
                    await prompts(terminal, "Reply: type your answer")
            code = await terminal.ended()
        (given,) = await answers(handle)

    assert given and (code, given.choice, given.text) == (0, "reply", said)
    assert ("1) " in terminal.raw) == (len(question.options) > 1 and question.free_text)


async def test_ctrl_c_leaves_it_waiting(asking: Asking, follow: Follow) -> None:
    """Whatever was typed: nothing is sent, and the last lines say how to answer later."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, CHOICES)
            terminal.press("retr")
            await prompts(terminal, typed="retr")
            terminal.press("\x03")
            code = await terminal.ended()
            assert terminal.echoes
        progress = await until(handle, lambda now: bool(now.open_requests))

    assert code == 130
    assert terminal.shown.text[-5:] == [
        "",
        "detached; still waiting for an answer.",
        f"Answer: python starter.py answer {handle.id}",
        f"Follow: python starter.py show {handle.id} --follow",
        f"Stop:   python starter.py cancel {handle.id}",
    ]
    assert [one.id for one in progress.open_requests] == ["r1"]


@pytest.mark.parametrize("flag", ["--json", pytest.param("--jsonl", marks=pytest.mark.full)])
async def test_a_program_is_asked_nothing(asking: Asking, server: DevServer, flag: str) -> None:
    """Also at a terminal: the command ends, with the request in its document."""
    async with asking(SIGN) as (_, handle):
        await until(handle, lambda now: bool(now.open_requests))
        command = starter(ROOT, "show", handle.id, "--follow", flag)
        with Terminal(command, {"TEMPORAL_ADDRESS": server.address}, ROOT) as terminal:
            code = await terminal.ended()

    assert code == 3
    assert "The key is missing." in terminal.raw and "Type " not in terminal.raw and "\x1b" not in terminal.raw


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(None, marks=pytest.mark.full)], ids=["killed", "closed"])
async def test_a_killed_prompt_gives_the_terminal_back(asking: Asking, follow: Follow, how: int | None) -> None:
    """One that shows what is typed, line by line; a closed terminal leaves no orphan that reads on. Nothing is sent;
    the task waits."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, CHOICES)
            terminal.press("retr")
            await prompts(terminal, typed="retr")
            assert not terminal.is_by_line
            if how is None:
                terminal.close()
                assert await terminal.ended() in CLOSED
            else:
                terminal.process.send_signal(how)
                code = await terminal.ended()
                assert (code, terminal.echoes, terminal.is_by_line) == (-how, True, True)
        progress = await until(handle, lambda now: bool(now.open_requests))

    assert [one.id for one in progress.open_requests] == ["r1"]


@pytest.mark.full
async def test_a_stopped_prompt_goes_on_below(asking: Asking, follow: Follow) -> None:
    """After Ctrl-Z and `fg`, with what the shell has made of the terminal meanwhile."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, CHOICES)
            terminal.press("ret")
            await prompts(terminal, typed="ret")
            terminal.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.5)
            terminal.set_by_line()
            terminal.shown.write("\r\n$ fg\r\n")
            terminal.process.send_signal(signal.SIGCONT)
            await prompts(terminal, typed="ret")
            terminal.press("ry\n")
            code = await terminal.ended()
            assert terminal.echoes and terminal.is_by_line

    assert code == 0
    assert "$ fg" in terminal.shown.text


@pytest.mark.full
async def test_another_size_is_drawn_anew(asking: Asking, follow: Follow) -> None:
    """No line is wider than the terminal; of a long line that is typed, the end is shown."""
    async with asking(SIGN) as (_, handle):
        with follow(handle) as terminal:
            await prompts(terminal, CHOICES)
            terminal.resize(40, 12)
            terminal.press("会議室" + "x" * 100 + "end")
            await prompts(terminal, typed="x" * 32 + "end")
            terminal.press("\x15retry\n")
            code = await terminal.ended()

    assert code == 0


@pytest.mark.full
async def test_without_a_worker_it_says_so(client: Client, tmp_path: Path, follow: Follow) -> None:
    """The answer is not lost in silence; the worker that starts next takes it."""
    queue = f"queue-{uuid.uuid4().hex[:8]}"
    with ExitStack() as opened:
        async with desk(client, tmp_path, SIGN, queue=queue) as table:
            handle = await table.begin(Task(text="a task", on_escalation="wait"))
            terminal = opened.enter_context(follow(handle))
            await prompts(terminal, CHOICES)
        await prompts(terminal, f"no worker answers on queue {queue}")
        terminal.press("retry\n")
        await shows(terminal, "Sending retry for r1 ...")
        await prompts(terminal, f"No worker has taken the answer to task '{handle.id}' yet", CHOICES)
        async with desk(client, tmp_path, SIGN, queue=queue, calls=table.calls):
            code = await terminal.ended()

    assert code == 0


CALL = "Call: buy item desk, amount 900"
APPROVAL = "Type approve, reject, edit or abort, then Enter. Ctrl-C leaves it waiting."
DECIDED = {
    "approve": (("approve\n",), [("desk", 900)]),
    "edit": (("edit\n", '{"amount": 400}\n'), [("desk", 400)]),
    "reject": (("reject\n", "Too dear.\n"), []),
    "in part": (("appr\n", "yes\n", "approve\n"), [("desk", 900)]),
}


@pytest.mark.parametrize(("lines", "sold"), sampled(DECIDED, "approve", "edit"))
async def test_a_call_is_approved_where_it_is_shown(
    stage: Stage, follow: Follow, lines: tuple[str, ...], sold: list[tuple[str, int]]
) -> None:
    """The whole call is shown, and the answer names it; one that is not shown whole is not approved."""
    handle = await stage.start(Task(text="a task", on_escalation="wait"))
    with follow(handle, size=(80, 14)) as terminal:
        await prompts(terminal, "The call is longer than this terminal, so it is not approved here")
        terminal.press("approve\n")
        await asyncio.sleep(1)
        assert not test_approvals.SHOP.sold
        terminal.resize(80, 24)
        for line in lines:
            await prompts(terminal, CALL)
            terminal.press(line)
            await shows(terminal, *{"edit\n": ["Edit: type the arguments"], "yes\n": ["'yes'"]}.get(line, []))
        code = await terminal.ended()

    assert (code, test_approvals.SHOP.sold) == (0, sold)
    assert APPROVAL in " ".join(terminal.raw.split())
