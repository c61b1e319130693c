"""The live view at a terminal where a person types: the keyboard answers the oldest open request."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from temporalio.service import RPCError

from client import people
from client.lines import wrap
from client.people import given_with
from client.problem import Problem
from client.remedy import as_command
from client.snapshot import Snapshot
from client.text import cut, one_line, printable
from client.wording import count
from console import answers
from console.options import Common
from console.render import requests
from console.render.command import starter
from console.render.live import LiveView, call_frame
from workflows.account.outcome import Outcome
from workflows.people.card import Asker
from workflows.people.requests import CHOICES, Choice, HumanRequest
from workflows.text import nearest

UNREAD_SECONDS = 0.5
"""Keys that are typed this soon after a request appears are dropped, since nobody has read the request yet."""
MAX_TYPED = 40
"""The most cells of a typed line that a message quotes because the line is no answer."""
VOID = "    What you have typed meanwhile is not sent. Press Enter to go on."
STAYS = "Ctrl-C leaves it waiting."
ROOM_BESIDE_CALL = 12
"""The rows that the frame needs beside the call that is to be approved."""
TOO_LONG = "    The call is longer than this terminal, so it is not approved here: make it larger, or use `{}`."
SIGN = "  > "
"""The text in front of the line that a person types."""

Answer = Callable[..., Awaitable[str | None]]
"""Sends an answer to the task, with the choice and the fields as arguments: `people.answer` without its handle."""


class PromptView(LiveView):
    """Draws a task in place, with its oldest open request below the tree, and sends the answer that a person types.

    An answer is a whole word and Enter. It is sent to the request that was shown when the person began the line; if
    this request is over by then, nothing is sent.
    """

    def __init__(self, common: Common, id: str, ui_url: str | None, out: TextIO, answer: Answer) -> None:
        super().__init__(common, id, ui_url, out)
        self._answer = answer
        self._requests: Sequence[HumanRequest] = ()
        self._shown: HumanRequest | None = None
        self._shown_at = 0.0
        self._waiting = 0
        """How many more requests are open."""
        self._chosen: tuple[Choice, dict[str, Any]] | None = None
        """The chosen answer, with its options so far, for which words are still asked; None if there is none."""
        self._is_cut = False
        """Whether the terminal is too small for the call that is to be approved, so that nobody has seen all of it."""
        self._reply_lines: list[str] = []
        self._is_void = False
        """Whether Enter will not send the line that is being typed, because the request it was meant for is over."""
        self._sending: asyncio.Task[None] | None = None
        self._answered = set[str]()
        """The ids of the requests that were answered from here, but are still open in the last snapshot of the task."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._sending:
            self._sending.cancel()
        super().__exit__(kind, error, trace)

    def see(self, snapshot: Snapshot) -> None:
        """Draw the snapshot, with the oldest request that is open and not answered from here."""
        self._requests = snapshot.outcome.requests
        self._answered &= {request.id for request in self._requests if request.is_open}  # a reset may open it again
        self._show_oldest()
        super().see(snapshot)

    def tick(self) -> None:
        """Begin to read the keyboard UNREAD_SECONDS after a request appeared, or leave it to the shell; then draw."""
        if self._sending and self._sending.done():
            self._sending.result()  # raises what is neither a Problem nor an RPCError
        if not (self._shown or self._is_void or self._sending):
            self._keyboard.leave()
        elif self._shown and not self._keyboard.is_read and time.monotonic() - self._shown_at >= UNREAD_SECONDS:
            self._keyboard.read(self._take_line, self._draw)
        super().tick()

    @property
    def _takes_keys(self) -> bool:
        return bool(self._shown and self._keyboard.is_read and not self._is_void and not self._sending)

    def _show_oldest(self) -> None:
        if self._sending:
            return  # until it is known what became of the answer
        opened = [request for request in self._requests if request.is_open and request.id not in self._answered]
        self._waiting = len(opened) - 1
        oldest = opened[0] if opened else None
        if oldest == self._shown:
            return
        if self._shown:
            self._report_closed(self._shown)
        self._shown, self._shown_at, self._chosen = oldest, time.monotonic(), None
        if not self._is_void:
            self._keyboard.leave()

    def _report_closed(self, request: HumanRequest) -> None:
        now = next((current for current in self._requests if current.id == request.id), request)
        self._reply_lines = requests.answered(now) or requests.endorsed(now)
        self._is_void = self._is_void or bool(self._keyboard.text or self._chosen)

    def _take_line(self, line: str) -> None:
        if self._sending:
            return
        self._reply_lines = []
        if self._is_void or self._shown is None:
            self._is_void = False
        elif self._chosen:
            self._take_text(self._shown, *self._chosen, line.strip())
        elif line.strip():
            self._take_choice(self._shown, one_line(line))

    def _take_choice(self, request: HumanRequest, typed: str) -> None:
        taken = answers.typed_answers(request)
        if typed not in taken:
            unknown = f"There is no answer {cut(typed, MAX_TYPED)!r}{nearest(typed, taken) or '.'}"
            meanings = [f"    {choice.value}: {CHOICES[choice].says}" for choice in request.choices]
            self._reply_lines = [f"    {unknown} What they mean:", *meanings]
            return
        choice, options = taken[typed]
        if CHOICES[choice].needs_code and self._is_cut:
            return  # the frame says why
        option = answers.text_option(request, choice)
        if option and option.name not in options:
            self._chosen = choice, options
        else:
            self._start_sending(request, choice, options)

    def _take_text(self, request: HumanRequest, choice: Choice, options: dict[str, Any], typed: str) -> None:
        option = answers.text_option(request, choice)
        if option and CHOICES[choice].needs_option and not typed:
            self._chosen, self._reply_lines = None, [f"    Nothing was sent, since {choice.value} needs words."]
            return
        try:
            values = answers.given_of(choice, {**options, option.name: typed} if option and typed else options)
            given_with(choice, values)
        except Problem as problem:
            self._reply_lines = [f"    {one_line(problem.sentence(as_command))}"]
        else:
            self._start_sending(request, choice, values)

    def _start_sending(self, request: HumanRequest, choice: Choice, values: dict[str, Any]) -> None:
        self._chosen, self._reply_lines = None, [f"    Sending {choice.value} for {request.id} ..."]
        self._sending = asyncio.create_task(self._deliver(request, choice, values))

    async def _deliver(self, request: HumanRequest, choice: Choice, values: dict[str, Any]) -> None:
        try:
            reply = await self._answer(choice, **values, **people.reference_to(request, choice))
        except Problem as problem:
            self._reply_lines = [f"    {one_line(problem.sentence(as_command))}"]
        except RPCError as error:
            self._reply_lines = [f"    The server did not take it ({error.status.name.lower()}): try again."]
        else:
            self._answered.add(request.id)
            self._shown = None
            checked = "" if reply else "; it is still being checked"
            self._reply_lines = [f"    {request.id} took the answer: {choice.value}{checked}."]
        self._sending, self._is_void = None, bool(self._keyboard.text)
        self._show_oldest()
        self._draw()

    def _request_lines(self, outcome: Outcome, width: int, height: int) -> list[str]:
        if self._shown is None:
            # Others must answer them, too.
            waiting = [request for request in self._requests if request.is_open and request.id in self._answered]
            given = [line for request in waiting for line in requests.endorsed(request)[-1:]]
            return [*self._reply_lines, *given, *([VOID] if self._is_void else [])]
        lines: list[str] = [requests.asked_line(self._shown, with_numbers=answers.are_numbered(self._shown))]
        lines += self._call_rows(self._shown, requests.asker(outcome), width, height - ROOM_BESIDE_CALL)
        lines += [f"    {count(self._waiting, 'more request')} after it."] if self._waiting else []
        lines += self._reply_lines
        if self._sending or self._is_void:
            return [*lines, *([VOID] if self._is_void else [])]
        hint = f"    {self._hint(self._shown)}"
        lines += [f"{hint} {STAYS}"] if cell_len(f"{hint} {STAYS}") <= width else [hint, f"    {STAYS}"]
        return [*lines, SIGN + _end_of(self._keyboard.text, width - len(SIGN))] if self._takes_keys else lines

    def _call_rows(self, request: HumanRequest, task: Asker, width: int, most: int) -> list[str]:
        """The rows of the call to approve; if there are more than `most`, the first ones and a note."""
        rows = [row for line in requests.call_lines(request, task) for row in wrap(line, width)]
        self._is_cut = len(rows) > max(most, 1)
        return [*rows[: max(most - 2, 0)], TOO_LONG.format(starter("answer", self._id))] if self._is_cut else rows

    def _hint(self, request: HumanRequest) -> str:
        if self._chosen is None:
            return f"Type {answers.takes(request)}, then Enter."
        choice, _ = self._chosen
        option = answers.text_option(request, choice)
        assert option is not None  # noqa: S101  # for the type checker: only such an answer is kept
        empty = "to go back" if CHOICES[choice].needs_option else "for none"
        return f"{choice.value.capitalize()}: type {option.asks}, then Enter; only Enter {empty}."


class CallView(PromptView):
    """Draws the step of a `call` while it runs, and its open request; at the end it removes all that it has drawn."""

    def end(self, outcome: Outcome) -> None:
        self._screen.clear()

    def _running(self, snapshot: Snapshot, below: Sequence[str], width: int, height: int) -> list[str]:
        return call_frame(snapshot, below, width)


def _end_of(text: str, width: int) -> str:
    last = printable(text[-width:])
    while cell_len(last) > width:
        last = last[1:]
    return last
