"""`tools`: list the tools of a worker."""

import sys
from typing import Annotated, Any

import typer

from client import document
from client.lines import wrap
from client.problem import Problem
from client.schemas import DEFINITIONS, decimal_part
from client.text import printable
from client.workers import ask
from console.commands import show
from console.completion import kinds
from console.exits import Exit
from console.options import Common
from console.render.command import starter
from console.render.terminal import terminal_size
from workflows.faults import retries
from workflows.inquiries import ToolCard, ToolsInquiry
from workflows.plans.catalogue import ALWAYS, UNREAD
from workflows.text import nearest

MIN_ROOM = 20
"""Cells: if the second column of the list is narrower, its text is not wrapped."""


async def tools_command(
    *,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Only this tool, with its arguments.", autocompletion=kinds)
    ] = None,
    common: Common,
) -> int:
    """Print the tools of a worker that answers, or one tool with its arguments and its result."""
    found = await ask(await common.connected(), common.queue, ToolsInquiry())
    cards = {card.spec.kind: card for card in found.tools}
    if kind is not None and kind not in cards and (why := found.unusable.get(kind)):
        raise Problem("unknown_kind", f"The worker cannot offer {kind!r}: {why}", "correct the tool at its server")
    if kind is not None and kind not in cards:
        reason = f"The worker has no tool {kind!r}{nearest(kind, cards)}"
        raise Problem("unknown_kind", reason, f"`{starter('tools')}` lists them")
    chosen = [cards[kind]] if kind else list(cards.values())
    if common.json:
        print(document.of_anything({"tools": chosen, "unusable": found.unusable}))
    else:
        for card in chosen:
            _print_head(card)
            for line in _detail_lines(card) if kind else ():
                show.say(printable(line))
        if found.left_out and kind is None:
            show.say(f"Not offered, since this worker has no model: {printable(', '.join(found.left_out))}")
        for name, reason in found.unusable.items():
            if kind is None:
                show.say(printable(f"Not offered: {name}: {reason}"))
    return Exit.COMPLETED


def _print_head(card: ToolCard) -> None:
    name, does = printable(f"{card.spec.kind:<16} {card.spec.effect:<14} "), printable(card.description.splitlines()[0])
    room = terminal_size(sys.stdout)[0] - len(name) if sys.stdout.isatty() else 0
    rows = wrap(does, room) if room >= MIN_ROOM else [does]
    print("\n".join([name + rows[0], *(" " * len(name) + row for row in rows[1:])]))


def _detail_lines(card: ToolCard) -> list[str]:
    spec, lines = card.spec, list[str]()
    related = {"observes with": spec.observe, "is reconciled by": spec.reconcile, "is undone by": spec.undo}
    lines += [f"  {label} {other.kind}" for label, other in related.items() if other]
    if spec.approve == ALWAYS:
        lines.append("  asks a person before each call")
    elif spec.approve:
        lines.append(f"  asks a person before a call if {spec.asks or spec.approve}")
    lines += [f"  an approval needs {spec.approvers.text()}"] if spec.approvers else []
    lines += [f"  settles within {spec.settle:g} s"] if spec.reconcile else []
    lines += [f"  falls back to {spec.fallback}"] if spec.fallback else []
    lines += ["  is pure: it only computes, in the worker that has the task"] if spec.pure else []
    lines += ["  returns untrusted content"] if spec.untrusted else []
    lines += [f"  {UNREAD[spec.unread]}"] if spec.unread else []
    lines += [f"  asks a model: {spec.tokens:,} tokens at the most"] if spec.tokens else []
    lines += ["  has no circuit breaker"] if card.breaker is None and not spec.pure else []
    lines += [f"  has a circuit breaker with {card.breaker}"] if card.breaker and str(card.breaker) else []
    lines += [f"  shares a breaker as a tool of {card.service}"] if card.service not in ("", spec.kind) else []
    lines += [f"  its service gets at most {card.limit} calls"] if card.limit else []
    extra = f" and up to {more:g} s more, in a thread" if (more := retries.overtime(spec)) else ""
    lines += [f"  retries: {spec.retry}; {spec.timeout:g} s an attempt{extra}", "  takes"]
    authority = spec.authority_of(card.args_schema.get("properties", ()))
    for name, part in card.args_schema.get("properties", {}).items():
        needed = " (required)" if name in card.args_schema.get("required", ()) else ""
        needed += " (authority)" if name in authority else ""
        lines.append(f"{_field_line(name, part, card.args_schema)}{needed}  {part.get('description', '')}")
    returned = card.result_schema.get("properties", {})
    return [*lines, "  returns", *(_field_line(name, part, card.result_schema) for name, part in returned.items())]


def _field_line(name: str, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    return f"    {name}: {type_text(schema, whole)}"


def type_text(schema: dict[str, Any], whole: dict[str, Any]) -> str:
    """What a JSON schema takes, in a few words; `whole` has the definitions that it refers to."""
    reference = str(schema.get("$ref", ""))
    if reference.startswith(DEFINITIONS):
        return type_text(whole.get("$defs", {}).get(reference.removeprefix(DEFINITIONS), {}), {})
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return " | ".join(map(str, values))
    parts = schema.get("anyOf") or schema.get("oneOf") or ()
    if decimal_part(schema):
        return "decimal" + " | null" * any(part.get("type") == "null" for part in parts)
    if parts:
        return " | ".join(dict.fromkeys(type_text(part, whole) for part in parts))
    if schema.get("type") == "array" and schema.get("items"):
        return f"list of {type_text(schema['items'], whole)}"
    return str(schema.get("format") or schema.get("type", "any"))
