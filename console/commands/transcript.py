"""`transcript`: the conversation of a task with its model, turn by turn, from the store of a worker."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Annotated

import typer
from pydantic import JsonValue
from temporalio.client import Client

from client import document, tasks
from client.encrypted import require_key
from client.explain.prose import moment
from client.lines import Line
from client.text import cut, one_line, printable
from client.wording import count
from client.workers import ask
from console.exits import Exit
from console.options import Common, TaskId
from console.render.command import starter
from console.render.terminal import print_lines
from workflows.inquiries import CallCard, ResultCard, TranscriptInquiry, TurnCard
from workflows.json_values import canonical, text_of

MAX_TEXT, MAX_ROWS = 600, 8
"""How many characters and lines of a text to the model, or of a call, are shown without `--full`."""
MAX_SAID = 4_000
"""How many characters of a text that the model wrote are shown without `--full`."""
MAX_NAME = 60
MAX_INLINE = 100
"""Characters; arguments up to this size are shown on one line."""
INDENT = " " * 6
FENCE = re.compile(r'<data from="[^"\n]*">\n|\n</data>')
"""The marks around untrusted content; they are escaped in the content itself."""
SIGN_COLOURS = {">": "cyan", "←": "cyan", "<": "green", "→": "green", "✗": "red", "≡": "yellow", "·": "yellow"}
STOPPED = {"cut": "cut off at its limit, so nothing of it was used", "refused": "declined to answer"}
"""By stop reason, the words for a reply of the model that did not end normally."""


def turn_lines(cards: Sequence[TurnCard], names: Mapping[str, str], *, full: bool) -> Iterator[str]:
    """The lines of all turns, the oldest first; `names` has the id of a task for the run id of its first run."""
    before: TurnCard | None = None
    for index, card in enumerate(cards):
        if before is not None and card.task != before.task:
            yield Line(f"Continued by {printable(names.get(card.task, card.task))}", "bold")
        yield _heading(card, before)
        yield from _turn(card, cards[:index], full=full)
        before = card


def is_conversation(cards: Sequence[TurnCard]) -> bool:
    """Whether at least one of these turns asked a model."""
    return any(card.told or card.said or card.calls or card.results for card in cards)


def tally(cards: Sequence[TurnCard]) -> str:
    """The counts of turns, summaries and tokens: `12 turns, 2 summaries, 48,120 tokens`."""
    summaries = sum(card.upto > 0 for card in cards)
    counts = [count(len(cards) - summaries, "turn")]
    counts += [count(summaries, "summary", "summaries")] if summaries else []
    return ", ".join([*counts, f"{sum(card.tokens for card in cards):,} tokens"])


def _heading(card: TurnCard, before: TurnCard | None) -> str:
    """The heading of a turn: `Turn 7  openai:...  2026-11-21 12:04:11Z  2,301 tokens`."""
    what = f"Turn {card.turn}"
    if card.upto:
        what = f"Summary of the oldest {'turn' if card.upto == 1 else f'{card.upto} turns'}"
    elif before is not None and (card.task, card.branch) != (before.task, 0) and card.branch != before.branch:
        what += f", branch {card.branch}, after a reset"
    elif card.branch:
        what += f", branch {card.branch}"
    tokens = f"{card.tokens:,} tokens" if card.tokens else ""
    when = moment(card.at)
    # The date is shown only where it changes.
    if before is not None and card.at.astimezone(UTC).date() == before.at.astimezone(UTC).date():
        when = when.rpartition(" ")[2]
    return Line(printable("  ".join(filter(None, [what, card.planner, when, tokens]))), "bold", 0, len(what))


def _turn(card: TurnCard, earlier: Sequence[TurnCard], *, full: bool) -> Iterator[str]:
    if not is_conversation([card]):
        yield _signed_heading("·", "no model was asked")
    calls = _answered(card, earlier)
    for result in card.results:
        yield _result_heading(result, calls, full=full)
        yield from _text(result.text, full=full)
    if card.told:
        yield _signed_heading(">", "asked to summarise" if card.upto else "told")
        yield from _text(card.told, full=full)
    if card.aside:
        yield _signed_heading("<", "thought")
        yield from _text(card.aside, full=full)
    if card.said:
        yield _signed_heading("≡", "in their place") if card.upto else _signed_heading("<", "said")
        # No limit of rows: a text has at most as many rows as characters.
        yield from _text(card.said, full=full, most=MAX_SAID, rows=len(card.said))
    for call in card.calls:
        yield _signed_heading("→", _call_name(call, card.calls, full=full))
        yield from _args_lines(call, full=full)
    if card.stop in STOPPED:
        yield _signed_heading("✗", STOPPED[card.stop])
    for reason in card.rejected:
        yield _signed_heading("✗", "could not be used")
        yield from _text(reason, full=full)


def _signed_heading(sign: str, text: str) -> Line:
    """A heading in the colour of its sign, e.g. `  > told`; `>` stands for Replan, `<` for the model."""
    return Line(f"  {sign} {text}", SIGN_COLOURS[sign], start=2)


def _answered(card: TurnCard, earlier: Sequence[TurnCard]) -> tuple[CallCard, ...]:
    """The calls to which the results in `card` belong: all calls of the newest earlier turn that made one of them."""
    call_ids = {result.call_id for result in card.results}
    # From the newest turn back, since a provider may use a call id again.
    for turn in reversed(earlier):
        if call_ids & {call.id for call in turn.calls}:
            return turn.calls
    return ()


def _result_heading(result: ResultCard, calls: Sequence[CallCard], *, full: bool) -> str:
    call = next((call for call in calls if call.id == result.call_id), None)
    name = _call_name(call, calls, full=full) if call else cut(one_line(result.call_id), MAX_NAME)
    if not result.is_error:
        return _signed_heading("←", name)
    return _signed_heading("✗", f"{name} {'was rejected' if result.is_rejected else 'failed'}")


def _call_name(call: CallCard, calls: Sequence[CallCard], *, full: bool) -> str:
    """The name of the called tool; also the call's id, with `full` or if several of `calls` have this name."""
    name = cut(one_line(call.name), MAX_NAME)
    alike = sum(other.name == call.name for other in calls) > 1
    return f"{name}  {cut(one_line(call.id), MAX_NAME)}" if alike or full else name


def _args_lines(call: CallCard, *, full: bool) -> Iterator[str]:
    inline = _args_on_one_line(call.args)
    if len(inline) <= MAX_INLINE:
        yield from _text(inline, full=full)
        return
    rows = list[str]()
    for name, value in call.args.items():
        if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            rows += [f"{name}:", *(f"  {canonical(item) if full else _item(item)}" for item in value)]
        else:
            rows.append(f"{name}={text_of(value)}")
    yield from _text("\n".join(rows), full=full)


def _item(item: JsonValue) -> str:
    """An element of a list as text; a step as `book-2  book_slot at=14:30, needs=["price"]`."""
    args = item.get("args") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(args, dict) or "id" not in item or "kind" not in item:
        return canonical(item)
    more = {name: value for name, value in item.items() if name not in ("id", "kind", "args")}
    return f"{text_of(item['id'])}  {text_of(item['kind'])} {_args_on_one_line({**args, **more})}".rstrip()


def _args_on_one_line(args: Mapping[str, JsonValue]) -> str:
    return ", ".join(f"{name}={text_of(value)}" for name, value in args.items())


def _text(text: str, *, full: bool, most: int = MAX_TEXT, rows: int = MAX_ROWS) -> Iterator[str]:
    """The indented lines of an untrusted text; with `full` all of it, with the marks around untrusted content.

    Else at most `most` characters and `rows` lines, without the marks, and a line about how much is left out.
    """
    whole = text if full else FENCE.sub("", text).strip("\n")
    shown = whole if full else "\n".join(whole[:most].splitlines()[:rows])
    yield from (f"{INDENT}{printable(row)}".rstrip() for row in shown.splitlines())
    if len(shown) < len(whole):
        yield f"{INDENT}… {len(whole) - len(shown):,} more characters of {len(whole):,}: --full"


async def transcript_command(
    *,
    id: TaskId = None,
    full: Annotated[
        bool, typer.Option("--full", help="Long texts unfolded, with the marks around untrusted content.")
    ] = False,
    common: Common,
) -> int:
    """Print the conversation of a task; first come those of the earlier tasks that it continues (`--continue`)."""
    client = await common.connected()
    handle = await tasks.find_task(client, id)
    await require_key(await handle.describe())
    common = await common.at(handle)
    run = await tasks.first_run(handle)
    cards = await _fetch_turns(client, common, run)
    names = await _names(client, {*(card.task for card in cards)} - {run}) | {run: handle.id}
    if common.json:
        print(document.of_anything({"task_id": handle.id, "run": run, "tasks": names, "turns": cards}))
    else:
        print_lines(_lines(handle.id, cards, names, full=full))
    return Exit.COMPLETED


async def _fetch_turns(client: Client, common: Common, first_run: str) -> list[TurnCard]:
    cards = list[TurnCard]()
    while True:
        found = await ask(client, common.queue, TranscriptInquiry(run=first_run, skip=len(cards)))
        cards += found.transcript
        if not found.more:
            return cards


async def _names(client: Client, first_runs: set[str]) -> dict[str, str]:
    """The workflow ids of tasks by their first runs; a task that the server has deleted is missing."""
    if not first_runs:
        return {}
    query = f"{tasks.TASKS} AND RunId IN ({', '.join(repr(run) for run in sorted(first_runs))})"
    return {workflow.run_id: workflow.id async for workflow in client.list_workflows(query)}


def _lines(id: str, cards: Sequence[TurnCard], names: dict[str, str], *, full: bool) -> list[str]:
    if not is_conversation(cards):
        why = "no model has planned it, or none has answered yet"
        where = "has no conversation in the store of its worker"
        return [printable(f"{id} {where}: {why}. `{starter('show', id)}` has its plans.")]
    first = names.get(cards[0].task, cards[0].task)
    continued = f"; it continues {first}" if first != id else ""
    return [printable(f"{id}  {tally(cards)}{continued}"), *turn_lines(cards, names, full=full)]
