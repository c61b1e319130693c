"""Writes a tools file in which a person classifies and reads the tools of MCP servers: for `--check --write-tools`."""

import json
import re
import shlex
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from activities.toolbox.registry import ToolMistakes
from extras.mcp import guesses, tools_file
from workflows.commands import WORKER
from workflows.plans.catalogue import Effect
from workflows.text import few

if TYPE_CHECKING:  # at run time only where a server is named: it imports the SDK
    from extras.mcp.kinds import ForeignTool, McpServer

HEAD = (
    "# Say of each tool what a call changes (docs/mcp.md#effects). What is written here is what holds without a word:\n"
    '# a call of an "unkeyed" tool is never repeated while nobody knows whether it was applied.\n'
    "# `reviewed`: a person has read what the server tells a model of the tool, which stands above its table.\n"
)
READS = "These only read, as their server or this file says."
LOOKS_READ = "These look like reads by their names. Nothing follows from that before you have written it: check them."
LOOKS_EFFECT = "These look like effects by their names."
LOOKS_NEITHER = "Of these, the names do not say it."
_REVIEWED = re.compile(r"""reviewed["']?\s*=\s*(?:"[^"]*"|'[^']*')""")
MAX_NAMED = 10
WIDTH = 118
"""The width of the comments."""


def write(path: Path, texts: Mapping[str, str], classified: Sequence["ForeignTool"]) -> str:
    """Write a tools file at `path`, and return what a person must know of it: what to read, and what to do.

    A new file has the `texts` of the worker's tools files, by name, and a table for each tool of `classified` that has
    none. If `path` is one of the tools files, it keeps all that it says, and gets the tables of its own servers' tools
    that have none. Each table gets the digest of what a model is told of its tool, since a person reads that now.

    Raises ToolMistakes if there is nothing to write, `path` is another file or not beside the tools files, or it cannot
    be written.
    """
    if not texts:
        raise ToolMistakes(["--write-tools has nothing to write: name a tools file with MCP servers by --tools."])
    own = next((file for file in texts if Path(file).resolve() == path.resolve()), None)
    if own is not None:
        return _update(path.resolve(), texts[own], [found for found in classified if found.source.place.file == own])
    if elsewhere := [file for file in texts if Path(file).resolve().parent != path.resolve().parent]:
        raise ToolMistakes(
            [f"{path} is not beside {elsewhere[0]}, whose paths are relative to its folder: write it there."]
        )
    text = _with_tables("\n".join([HEAD, *(f"{text.strip()}\n" for text in texts.values())]), classified)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ToolMistakes([f"{path} exists already: name another file, or name it by --tools, too."]) from None
    except OSError as error:
        raise ToolMistakes([f"{path} cannot be written ({error.strerror}): name another file."]) from None
    try:
        _require_digests(path, classified)
    except ToolMistakes:
        path.unlink()
        raise
    missing = [found for found in classified if not found.is_in_file]
    return (
        f"{path} has a table for each of {len(classified)} tools, {len(missing)} of them new: correct their effects,"
        f" and start the worker with --tools {path}.{_to_read(classified)}{_error_reports(classified)}"
    )


def unread_lines(classified: Sequence["ForeignTool"], tools: Sequence[str]) -> Iterator[str]:
    """Yield a line for each tools file with tools of which no person has read what a model is told of them.

    `tools` are all tools files and modules of the worker, for the command.
    """
    unread = [found for found in classified if found.unread]
    for file in dict.fromkeys(found.source.place.file for found in unread):
        kinds = [found.kind for found in unread if found.source.place.file == file]
        loaded = shlex.join(part for name in tools for part in ("--tools", name))
        command = f"{WORKER} --check {loaded} --write-tools {shlex.quote(file)}"
        yield (
            f"No person has read what servers of {file} tell a model of {len(kinds)} tools ({few(kinds, MAX_NAMED)})."
            " A task that a model plans begins as if it had read untrusted content. To read what they say, and to"
            f" write down that you have: {command}"
        )


def _update(path: Path, text: str, classified: Sequence["ForeignTool"]) -> str:
    """Write the tables and digests that a tools file lacks into it; the rest of the file stays as it is."""
    missing = [found for found in classified if not found.is_in_file]
    if not missing and all(found.row.reviewed == found.words_digest for found in classified):
        return f"{path} has a table for each tool, and a person has read what their servers say: nothing was changed."
    whole = _with_tables(text, classified)
    new = path.with_name(f".{path.name}.new")
    try:
        ends = "\r\n" if b"\r\n" in path.read_bytes() else "\n"
        new.write_text(whole, encoding="utf-8", newline=ends)
        new.chmod(path.stat().st_mode)
        _require_digests(new, classified)
        new.replace(path)
    except ToolMistakes as wrong:
        raise ToolMistakes([mistake.replace(new.name, path.name) for mistake in wrong.mistakes]) from None
    except OSError as error:
        raise ToolMistakes([f"{path} cannot be written ({error.strerror}): check who may write there."]) from None
    finally:
        new.unlink(missing_ok=True)
    tables = f" It has {len(missing)} new tables: correct their effects." if missing else ""
    return f"{path} was updated; restart the worker.{tables}{_to_read(classified)}{_error_reports(classified)}"


def _to_read(classified: Iterable["ForeignTool"]) -> str:
    """What a model is told of each tool that no person has read until now, for the person who reads the answer."""
    unread = [found for found in classified if found.unread]
    if not unread:
        return ""
    lines = [f"It now says that you have read what their servers tell a model of {len(unread)} tools. Read it:"]
    for found in unread:
        lines.append(f"  {found.kind} ({found.unread}):")
        lines += [f"    {line}" for line in found.words()]
    return "\n".join(
        [f" {lines[0]}", *lines[1:], "If one of them gives orders, do not serve the file: delete its server."]
    )


def _error_reports(classified: Iterable["ForeignTool"]) -> str:
    """Which tools may report an error as a success, and what of it is noticed; a line each, or for a server."""
    lines, silent = list[str](), dict[str, int]()
    for found in classified:
        if found.effect is Effect.READ:  # what a read returns may speak of the errors of others
            continue
        if found.listed.output_schema is None:
            silent[found.source.name] = silent.get(found.source.name, 0) + 1
        elif errors := _errors_of(found.listed.output_schema):
            lines.append(f"  {found.kind} {errors}.")
    for server, count in silent.items():
        lines.append(
            f"  {server} has tools that are no reads and have no output schema ({count}). An error that is plain text,"
            " and no error by the protocol, counts as a success, unless a row of"
            f" [servers.{server}.errors] has its first words, with in_success = true."
        )
    return "\n".join(["\nA success may be an error (docs/mcp.md#what-errors-mean):", *lines]) if lines else ""


def _errors_of(schema: Mapping[str, Any]) -> str:
    """What counts as an error of a tool with this output schema; empty if no field of it speaks of errors."""
    from extras.mcp.answers import FAILED, MESSAGES

    properties = schema.get("properties")
    fields = properties if isinstance(properties, Mapping) else {}
    says = [f"{name} = {json.dumps(value)}" for name in FAILED if name in fields for value in FAILED[name]]
    why = sorted(MESSAGES & fields.keys())
    if says:
        beside = " or ".join(why or sorted(MESSAGES))
        return f"failed if its result has {' or '.join(says)}, and {beside}: any other result counts as a success"
    errors = [name for name in why if name.startswith("error")]
    return f"returns {' and '.join(errors)}, which alone counts as a success" if errors else ""


def _require_digests(path: Path, classified: Iterable["ForeignTool"]) -> None:
    """Raise ToolMistakes if the file that was written lacks the digest of a tool, or is no tools file."""
    remedy = "Write the tools of each server in tables of their own, [servers.NAME.tools.NAME]."
    try:
        servers = tools_file.read(path).servers
    except tools_file.BadToolsFile as bad:
        raise ToolMistakes([f"{mistake} {remedy}" for mistake in bad.mistakes]) from None
    for found in classified:
        row = servers[found.source.name].tools.get(found.listed.name)
        if row is None or row.reviewed != found.words_digest:
            raise ToolMistakes([f"{found.place}: {found.kind} has no table to write into. {remedy}"])


def _with_tables(text: str, classified: Sequence["ForeignTool"]) -> str:
    """A tools file with the digest of each tool in its table, and with a new table for each tool that has none."""
    new = list["ForeignTool"]()
    for found in classified:
        changed = _with_digest(text, found) if found.is_in_file else None
        if changed is None:
            new.append(found)
        text = changed or text
    groups = _groups(new)
    for source in {found.source.name: found.source for found in groups[LOOKS_READ]}.values():
        chosen = [found.listed.name for found in groups[LOOKS_READ] if found.source is source]
        effects = [one for one in classified if one.source is source and one.effect is not Effect.READ]
        text = _with_proposal(text, source, chosen, {found.listed.name for found in effects} - {*chosen})
    tables = [
        part for heading, group in groups.items() if group for part in (f"# ---- {heading}\n", *map(_table, group))
    ]
    return "\n".join([f"{text.rstrip()}\n", *tables]) if new else text


def _groups(tools: Iterable["ForeignTool"]) -> Mapping[str, Sequence["ForeignTool"]]:
    """The tools by the headings under which they stand in the file; likely reads come first."""
    groups = {heading: list["ForeignTool"]() for heading in (READS, LOOKS_READ, LOOKS_EFFECT, LOOKS_NEITHER)}
    looks = dict[str, Mapping[str, guesses.Guess]]()
    of_look = {guesses.Guess.READ: LOOKS_READ, guesses.Guess.EFFECT: LOOKS_EFFECT, guesses.Guess.NEITHER: LOOKS_NEITHER}
    for found in tools:
        server = found.source.name
        if server not in looks:
            looks[server] = guesses.guessed([listed.name for listed in found.source.listing.tools])
        look = guesses.Guess.READ if found.listed.read_only else looks[server][found.listed.name]
        groups[READS if found.effect is Effect.READ else of_look[look]].append(found)
    return groups


def _with_proposal(text: str, source: "McpServer", chosen: Sequence[str], others: Collection[str]) -> str:
    """A tools file with a comment in a server's table: patterns for its tools `chosen`, and for none of `others`."""
    head = next((entry for entry in tools_file.places(text) if entry.path == ("servers", source.name)), None)
    if head is None or not head.is_table:
        return text
    lines, reads = text.split("\n"), [*source.server.reads, *guesses.patterns(chosen, others)]
    finding = f"{len(chosen)} {'tool looks like a read' if len(chosen) == 1 else 'tools look like reads'} by the name"
    remedy = "check, and delete `effect` in the tables below"
    lines.insert(head.line, f"# reads = {json.dumps(reads, ensure_ascii=False)}  # {finding}: {remedy}")
    return "\n".join(lines)


def _with_digest(text: str, found: "ForeignTool") -> str | None:
    """A tools file with the digest of a tool's words in its table; None if the file has no lines for the table."""
    lines, path = text.split("\n"), ("servers", found.source.name, "tools", found.listed.name)
    entry = found.entry
    places = [row for row in tools_file.places(text) if row.path[:4] == path]
    for row in places:
        if row.path == (*path, "reviewed"):
            lines[row.line - 1] = _REVIEWED.sub(entry, lines[row.line - 1], count=1)
            return "\n".join(lines)
    for row in places:
        if row.path == path and row.is_table:
            lines.insert(row.line, entry)
            return "\n".join(lines)
    for row in places:
        head, dot, _ = lines[row.line - 1].partition("=")[0].rstrip().rpartition(".")
        if len(row.path) == 5 and not row.is_table and dot:  # tools.NAME.effect = "read"
            lines.insert(row.line - 1, f"{head}.{entry}")
            return "\n".join(lines)
    return None


def _table(found: "ForeignTool") -> str:
    """A table for a tool, with what the server tells a model of it, its effect, and the digest."""
    said = [f"# {line}\n" for words in found.words() for line in textwrap.wrap(words, WIDTH, break_on_hyphens=False)]
    table = ".".join(["servers", found.source.name, "tools", _key(found.listed.name)])
    effect = "" if found.is_in_file else f'effect = "{found.effect.value}"  # {_reason(found)}\n'
    return "".join([*said, f"[{table}]\n{effect}{found.entry}\n"])


def _reason(found: "ForeignTool") -> str:
    """Why a tool has its effect, as a comment in the file."""
    if found.effect is Effect.UNKEYED and found.listed.idempotent:
        return f'{found.reason}; the server says that a repeat changes nothing more: if that is true, "idempotent"'
    return found.reason


def _key(name: str) -> str:
    """A tool's name as a key of TOML, in quotes if it needs them."""
    is_bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if is_bare else json.dumps(name, ensure_ascii=False).replace("\x7f", r"\u007f")
