"""Makes a tool of Replan of each tool that an MCP server lists."""

import functools
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue, create_model

from activities import sends
from activities.errors import NeedsPerson, Refused, ToolError, Unreachable, unsent
from activities.storage.store import time_limit
from activities.toolbox.declare import companions, conditions
from activities.toolbox.declare.approval import Approval
from activities.toolbox.declare.conditions import Condition, Undecided
from activities.toolbox.declare.fields import Fields, NoField
from activities.toolbox.declare.tool import Companion, Tool, ToolOptions, ToolOrigin
from activities.toolbox.expressions.evaluation import Type
from activities.toolbox.injection import Key
from activities.toolbox.schemas.drafts import BadSchema
from activities.toolbox.servers import Servers
from extras.mcp import tools_file
from extras.mcp.ahead import Ahead, Noted, mark_of
from extras.mcp.answers import ToolAnswer
from extras.mcp.config import Listing, ServerTool
from extras.mcp.connections import ready_seconds
from extras.mcp.schema import (
    ANSWERS,
    ForeignArgs,
    ForeignResult,
    arguments_of,
    result_of,
    unread_arguments,
)
from extras.mcp.servers import McpServers
from workflows.json_values import canonical
from workflows.plans.catalogue import Effect
from workflows.plans.references import pick
from workflows.text import legible, nearest

MAX_DESCRIPTION = 2_000
"""The most characters of a server's description of a tool that planners see."""
_PLAIN = {"type": "object", "additionalProperties": False, "$schema": "https://json-schema.org/draft/2020-12/schema"}
"""What a schema says of itself without words of its own."""
MAX_KIND = 100
"""The most characters of a kind's name."""

Observe = Callable[[McpServers, str, Mapping[str, JsonValue]], Awaitable[Ahead]]
"""Makes the record that is stored ahead of a call with this key and these arguments."""


@dataclass(frozen=True)
class FilePlace:
    """The place of a server's table in a tools file."""

    file: str
    text: str = field(repr=False)
    server: str

    def line(self, *below: str) -> str:
        """`FILE:LINE` of the entry with the path `below` in the server's table; without `below`, of the table."""
        return f"{self.file}{tools_file.line_of(self.text, ['servers', self.server, *below])}"


@dataclass(frozen=True)
class McpServer:
    """A server of a tools file, and what the server lists."""

    name: str
    server: tools_file.ServerTable
    listing: Listing
    place: FilePlace


@dataclass
class Made:
    """The tools of some servers, and the mistakes in the tables of these tools."""

    tools: list[Tool[..., Any]] = field(default_factory=list)
    classified: list["ForeignTool"] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """The kinds that cannot be offered, each with the reason."""
    mistakes: list[str] = field(default_factory=list)


def tools_of(sources: Iterable[McpServer], others: Mapping[str, Tool[..., Any]], *, takes_unread: bool = False) -> Made:
    """Make the tools of all sources; their files may name each other's tools, and `others`: Python tools by kind.

    With `takes_unread`, a tool is also offered if its schemas cannot be read: then only the server checks arguments.
    """
    made, found, sources = Made(), dict[str, "ForeignTool"](), list(sources)
    for source in sources:
        made.left_out |= _unread_tools(source)
        made.mistakes += _unknown_tools(source)
        for listed in source.listing.tools:
            if source.server.only is not None and listed.name not in source.server.only:
                continue
            draft = ForeignTool(source, listed, source.server.tools.get(listed.name, tools_file.ToolTable()))
            if reason := draft.prepare(takes_unread=takes_unread):
                made.left_out[draft.kind] = reason
                continue
            if draft.kind in found:  # of the same server, since all others begin otherwise
                reason = "another tool of the server has this name already"
                if draft.is_in_file and listed.name != found[draft.kind].listed.name:
                    made.mistakes.append(f"{draft.place}: {draft.kind}: {reason}: leave its table out.")
                made.left_out[f"{draft.kind} ({listed.name})"] = reason
                continue
            if draft.kind in others:
                taken = "another tool has this name already: rename the server."
                made.mistakes.append(f"{draft.place}: {draft.kind}: {taken}")
                continue
            found[draft.kind] = draft
    _leave_out_dependents(found, made.left_out, [source.name for source in sources if source.listing.unread])
    known = {**others, **{kind: draft.bare for kind, draft in found.items()}}
    for draft in found.values():
        tool, extra, wrong = draft.tool(known, found)
        made.mistakes += [f"{draft.place}: {draft.kind}: {mistake}" for mistake in wrong]
        made.tools += [tool, *extra]
        made.classified.append(draft)
    return made


def _unread_tools(source: McpServer) -> dict[str, str]:
    """The tools of a server that cannot be read, by kind, each with the reason; also where the list itself is odd."""
    listing, server, found = source.listing, source.name, dict[str, str]()
    listed = {tool.name for tool in listing.tools}
    for name, reason in listing.left_out.items():
        again = " (listed twice)" if name in listed else ""
        found[f"{kind_of(server, name)}{again}" if name else f"{server} (a tool without a name)"] = reason
    for name, places in _named_in_file(source).items():
        if name in listing.left_out:
            found[kind_of(server, name)] = f"{listing.left_out[name]} (named in {source.place.line(*places[0])})"
        elif listing.unread and name not in listed:
            found[kind_of(server, name)] = listing.unread
    rest = f"{server} ({'the rest of its tools' if listing.tools else 'its tools'})"
    return found | ({rest: listing.unread} if listing.unread else {})


def _leave_out_dependents(found: dict[str, "ForeignTool"], left_out: dict[str, str], unread: Collection[str]) -> None:
    """Move the tools that name a tool which is left out, such as their undo, from `found` to `left_out`.

    `unread` are the names of the servers whose lists could not be read.
    """

    def is_lost(kind: str) -> bool:
        return kind not in found and (kind in left_out or kind.partition(".")[0] in unread)

    while lacking := {kind: lost for kind, draft in found.items() if (lost := draft.first_companion(is_lost))}:
        for kind, (option, other) in lacking.items():
            del found[kind]
            left_out[kind] = f"its {option} is {other}, which is not offered either"


def kind_of(server: str, tool: str) -> str:
    """The kind of a server's tool: `server.tool`, cut to `MAX_KIND`, with `_` for characters that no kind has."""
    return f"{server}.{re.sub('[^A-Za-z0-9_.-]', '_', tool)}"[:MAX_KIND]


@dataclass
class ForeignTool:
    """A tool of an MCP server, by its table in the tools file: its effect, and why it is taken to have this effect."""

    source: McpServer
    listed: ServerTool
    row: tools_file.ToolTable

    @functools.cached_property
    def kind(self) -> str:
        return kind_of(self.source.name, self.listed.name)

    @property
    def place(self) -> str:
        """`FILE:LINE` of the tool's table, or of the server's table if the tool has none."""
        return self.source.place.line("tools", self.listed.name)

    @property
    def is_read_by_hint(self) -> bool:
        """Whether the server declares that the tool only reads, and the file has `trusted = true`."""
        return self.listed.read_only and self.source.server.trusted

    @property
    def pattern(self) -> str | None:
        """The pattern of the file's `reads` that has the tool's name; None if none has."""
        return next((one for one in self.source.server.reads if fnmatchcase(self.listed.name, one)), None)

    @property
    def effect(self) -> Effect:
        """The effect in the file, by name or pattern; else that of the server's hint, the file's default, `unkeyed`."""
        if self.row.effect:
            return self.row.effect
        if self.pattern is not None or self.is_read_by_hint:
            return Effect.READ
        return self.source.server.default or Effect.UNKEYED

    @property
    def reason(self) -> str:
        """Why the tool is taken to have its effect, for `--check`."""
        if self.row.effect:
            return "as the file says"
        if self.pattern is not None:
            return f'as reads = ["{self.pattern}"] of the file says'
        if self.is_read_by_hint:
            return "the server says that it only reads"
        if self.source.server.default is not None:
            return "the default of its server in the file"
        if self.listed.read_only:
            return "the server says that it only reads, and trusted = false"
        return "nobody says that it only reads"

    @property
    def words_digest(self) -> str:
        """The digest of what a model is told of the tool, which the file has when a person has read that."""
        return self.listed.digest_of_words(is_described=self.row.description is not None)

    @property
    def entry(self) -> str:
        """The line of the tool's table that says that a person has read what a model is told of it."""
        return f'reviewed = "{self.words_digest}"'

    @property
    def unread(self) -> Literal["new", "changed"] | None:
        """Whether no person has read what a model is told of the tool; see `ToolSpec.unread`."""
        # Somebody who has read the server's description may replace it without reading the rest again.
        if self.row.reviewed in (self.words_digest, self.listed.digest_of_words(is_described=False)):
            return None
        return "changed" if self.row.reviewed else "new"

    def words(self) -> Iterator[str]:
        """Yield what a model is told of the tool, for a person to read: on lines without hidden characters."""
        yield legible(self.description)
        schema = dict(self.listed.schema)
        properties = schema.pop("properties", None)
        properties = properties if isinstance(properties, Mapping) else {}
        for name, part in properties.items():
            yield f"{legible(name)}: {legible(canonical(part))}"
        plain = {**_PLAIN, "required": [name for name in schema.get("required") or () if name in properties]}
        if rest := {name: part for name, part in schema.items() if name not in plain or part != plain[name]}:
            yield f"schema: {legible(canonical(rest))}"
        if self.listed.output_schema:
            yield f"returns: {legible(canonical(dict(self.listed.output_schema)))}"

    @property
    def is_in_file(self) -> bool:
        """Whether the tools file has a table for this tool."""
        return self.listed.name in self.source.server.tools

    def first_companion(self, holds: Callable[[str], bool]) -> tuple[str, str] | None:
        """The first option of the file that names a kind for which this holds, with the kind; None if none does."""
        row = self.row
        tables = {"observe": row.observe, "reconcile": row.reconcile, "undo": row.undo}
        named = {option: table.kind for option, table in tables.items() if table}
        named |= {"fallback": row.fallback} if row.fallback else {}
        return next((item for item in named.items() if holds(item[1])), None)

    @property
    def filled(self) -> list[str]:
        """The arguments that Replan fills in, which no schema shows."""
        return [self.row.key] if self.row.key else []

    def prepare(self, *, takes_unread: bool = False) -> str | None:
        """Make the models of arguments and results; return why the tool cannot be offered, or None if it can."""
        if self.listed.only_as_task:
            return "it can only be called as a task of MCP"
        self.notes = list[str]()
        """What of the tool's schemas is not checked, for `--check`."""
        schema, results = self.listed.schema, self.listed.output_schema
        try:
            self.args = arguments_of(self.kind, schema, left_out=self.filled)
        except BadSchema as bad:
            if not takes_unread:
                return f"its schema cannot be used, since {bad}"
            self.args = unread_arguments(self.kind, schema, left_out=self.filled)
            self.notes.append(f"its arguments are not checked, since {bad}")
        try:
            self.result: type[BaseModel] = ToolAnswer if results is None else result_of(f"{self.kind}.result", results)
        except BadSchema as bad:
            if not takes_unread:
                return f"its schema cannot be used, since {bad}"
            self.result = result_of(f"{self.kind}.result", {})
            self.notes.append(f"its results are not checked, since {bad}")
        if self.args.unchecked:
            self.notes.append(f"not checked of its arguments: {', '.join(self.args.unchecked)}")
        self.ahead: Observe | None = None
        self.bare = self._tool(ToolOptions())
        return None

    async def ask(self, servers: McpServers, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """Call the tool, which is a read, and return its result as JSON."""
        return await servers.call(self.source.name, self.listed.name, arguments, result=self.result, is_read=True)

    def tool(
        self, known: Mapping[str, Tool[..., Any]], drafts: Mapping[str, "ForeignTool"]
    ) -> tuple[Tool[..., Any], list[Tool[..., Any]], list[str]]:
        """Return the tool with its options, a list with the tool that reconciles it (if any), and mistakes of the file.

        `known` are all tools by kind, and `drafts` the tools of servers by kind; options may name them.
        """
        row, wrong, extra = self.row, list(self._mistakes()), list[Tool[..., Any]]()
        server = self.source.server
        shared = {"service": self.source.name, "limit": server.limit, "timeout": server.timeout}
        options: dict[str, Any] = {name: value for name, value in shared.items() if value} | {
            name: value
            for name in ("settle", "ensure", "approve", "retry", "timeout", "authority", "content", "service", "limit")
            if (value := getattr(row, name)) is not None
        }
        if isinstance(row.approve, tools_file.ApproveTable):
            options["approve"] = Approval(**dict(row.approve))
        options["untrusted"] = not server.trusted_results if row.untrusted is None else row.untrusted
        options["credential"] = row.credential or server.credential
        if self.effect not in (Effect.READ, Effect.TRANSACTIONAL):
            options["requests"] = 1  # `tools/call` is sent once
        for name in ("observe", "undo"):
            if companion := getattr(row, name):
                options[name] = self._companion(name, companion, known, wrong)
        if row.fallback:
            options["fallback"] = _named("fallback", row.fallback, known, wrong)
        if row.reconcile:
            other = _named("reconcile", row.reconcile.kind, known, wrong)
            if other is not None and row.reconcile.applied_if is None:
                options["reconcile"] = self._companion("reconcile", row.reconcile, known, wrong)
            elif other is not None and (found := self._reconciling(row.reconcile, drafts, wrong)):
                options["reconcile"], extra = found, [found.tool]
        return self._tool(ToolOptions(**options)), extra, wrong

    def _mistakes(self) -> Iterator[str]:
        row = self.row
        if row.effect is Effect.TRANSACTIONAL:
            yield 'effect = "transactional" is for Python tools, which take a Transaction: use another effect.'
        if row.effect is Effect.KEYED and row.key is None:
            yield 'effect = "keyed" needs key = "ARGUMENT", the argument that takes the idempotency key.'
        if row.effect is not Effect.KEYED and row.key is not None:
            yield 'key has a meaning only with effect = "keyed": leave it out.'
        names = list(self.args.names)
        if row.mark is not None and self.effect in (Effect.READ, Effect.TRANSACTIONAL):
            yield "mark has no meaning for a read: leave it out."
        elif row.mark is not None and not self._is_text(row.mark):
            yield f"mark = {row.mark!r} is no argument that is a text{nearest(row.mark, names)}: name one."
        if row.key is not None and row.key not in names:
            yield f"has no argument {row.key!r}{nearest(row.key, names)}: key names one of {names}."

    def _is_text(self, argument: str) -> bool:
        try:
            return Fields.of(self.args).type(f"args.{argument}") is Type.TEXT
        except NoField:
            return False

    def _tool(self, options: ToolOptions) -> Tool[..., Any]:
        """A tool with the function that calls the server."""
        server, name, result, row = self.source.name, self.listed.name, self.result, self.row
        # An unkeyed call is repeated only after it was found not to have been applied; any other one also while that is
        # unknown, and then what was before the first attempt counts.
        ahead, keeps_first = self.ahead, self.effect is not Effect.UNKEYED

        async def call(args: ForeignArgs, servers: McpServers, key: Key | None = None) -> Any:
            sent = args.as_sent()
            if row.key is not None:
                sent[row.key] = str(key)
            if ahead is not None and key is not None:
                await _note_ahead(servers, key, ahead, sent, keeps_first=keeps_first)
            if row.mark is not None and key is not None:
                sent[row.mark] = "\n\n".join(filter(None, [str(sent.get(row.mark) or ""), mark_of(key)]))
            try:
                found = await servers.call(server, name, sent, args.answers, result=result, is_read=key is None)
            except ToolError as error:
                error.requests = None  # there is no other call, so an error that proves something proves it of all
                raise
            if isinstance(found, dict) and issubclass(result, ForeignResult):
                return result.of_checked(found)
            return found

        annotations: dict[str, Any] = {"args": self.args, "servers": Servers, "return": self.result}
        function: Callable[..., Any]
        if self.effect is Effect.READ:

            async def function(args: ForeignArgs, servers: McpServers) -> Any:
                return await call(args, servers)

        else:

            async def function(args: ForeignArgs, servers: McpServers, key: Key) -> Any:
                return await call(args, servers, key)

            annotations["key"] = Key
        origin = ToolOrigin(self.place, self.reason, frozenset({ANSWERS}), unread=self.unread)
        return _declared(function, self.kind, annotations, self.description, self.effect, options, origin)

    @property
    def description(self) -> str:
        """The description for planners. A server's own words are untrusted text: on one line, and cut."""
        if self.row.description:
            return self.row.description
        text = " ".join((self.listed.description or self.listed.title or f"The tool {self.listed.name}.").split())
        return text[:MAX_DESCRIPTION]

    def _companion(
        self, option: str, companion: tools_file.CompanionTable, known: Mapping[str, Tool[..., Any]], wrong: list[str]
    ) -> Companion | None:
        """The companion that a table such as `undo` declares; None without such a tool. `wrong` gets the mistakes."""
        other = _named(option, companion.kind, known, wrong)
        odd = [name for name, path in companion.using.items() if not isinstance(path, str)]
        if odd:
            wrong.append(
                f'{option} takes {odd[0]!r} from no path: write e.g. using = {{ {odd[0]} = "args.{odd[0]}" }}.'
            )
        return Companion(other, {name: str(path) for name, path in companion.using.items()}) if other else None

    # Reconciling by a condition: a read of its own, which calls the server's read, and decides.

    def _observing(
        self, rule: tools_file.ReconcileTable, read: "ForeignTool", condition_names: Collection[str]
    ) -> "Observe | None":
        """Make the function for the record ahead of a call; `read` gets `before`. None if no name needs the record."""
        needs_before = any(name.partition(".")[0] == "before" for name in condition_names)
        if not needs_before and "call.claimed_at" not in {*condition_names, *map(str, rule.using.values())}:
            return None

        async def observe(servers: McpServers, key: str, sent: Mapping[str, JsonValue]) -> Ahead:
            now = Ahead(claimed_at=datetime.now(UTC))
            if not needs_before:
                return now
            arguments = _arguments(rule.using, {"args": sent, "call": now.noted(key)})
            return now.model_copy(update={"before": await read.ask(servers, arguments)})

        return observe

    def _reconciling(
        self, rule: tools_file.ReconcileTable, drafts: Mapping[str, "ForeignTool"], wrong: list[str]
    ) -> Companion | None:
        """Make the reconciling read: `applied_if` decides whether a call was applied. None if `wrong` gets mistakes."""
        read, kind, applied_if = drafts.get(rule.kind), f"{self.kind}.reconcile", rule.applied_if or ""
        if read is None or read.effect is not Effect.READ:
            wrong.append(f"reconcile = {rule.kind} with applied_if must be a read of a server in a tools file.")
            return None
        known = {
            "args": Fields.of(self.args),
            "result": Fields.of(read.result),
            "before": Fields.of(read.result),
            "call": Fields.of(Noted),
        }
        _, found = conditions.mistakes_over(self.kind, "applied_if", applied_if, known)
        for name, path in rule.using.items():
            root = str(path).partition(".")[0]
            if isinstance(path, str) and "." in path and root in ("args", "call"):
                try:
                    known[root].type(path)
                except NoField as missing:
                    found.append(f"{name} = {path!r} leads nowhere{missing}.")
            theirs = companions.arguments(read.args)
            if name not in theirs:
                found.append(f"{rule.kind} has no argument {name!r}{nearest(name, theirs)}.")
        needed = [name for name, info in companions.arguments(read.args).items() if info.is_required()]
        if lacks := [name for name in needed if name not in rule.using]:
            found.append(f'{rule.kind} needs {lacks[0]!r}: write using = {{ {lacks[0]} = "args...." }}.')
        if not found and rule.result is None and (differs := companions.difference(read.result, self.result)):
            found.append(f'the result of {rule.kind} becomes its result, but {differs}: say result = "result...."')
        wrong += [f"reconcile: {mistake}" for mistake in found]
        if found:
            return None
        condition = Condition.read(applied_if)
        self.ahead = self._observing(rule, read, condition.names)
        ours = {name: info.alias or name for name, info in self.args.model_fields.items() if name != ANSWERS}
        fields: dict[str, Any] = {name: (Any, Field(None, alias=alias)) for name, alias in ours.items()}
        arguments = create_model("Reconciled", __base__=ForeignArgs, replan_call_key=(str, ...), **fields)

        async def function(args: Any, servers: McpServers) -> Any:
            sent = args.as_sent()
            key = str(sent.pop("replan_call_key"))
            values: dict[str, Any] = {"args": sent, "call": {"mark": mark_of(key)}}
            if self.ahead is not None:
                if (noted := await servers.ahead(key)) is None:
                    raise Refused(f"No attempt of {self.kind} came so far that it was sent.", code="not_found")
                values |= {"call": noted.noted(key), "before": noted.before}
            values["result"] = await read.ask(servers, _arguments(rule.using, values))
            try:
                is_applied = condition.holds(values)
            except Undecided as why:
                raise NeedsPerson(f"The condition {condition.source!r} of {kind} is not decided: {why}") from None
            if not is_applied:
                raise Refused(f"{rule.kind} does not show the effect of the call.", code="not_found")
            return pick({"result": values["result"]}, rule.result, kind) if rule.result else values["result"]

        annotations = {"args": arguments, "servers": Servers, "return": self.result}
        purpose = f"Find out by {rule.kind} whether a call of {self.kind} was applied."
        options = ToolOptions(untrusted=not self.source.server.trusted_results, service=self.source.name)
        origin = ToolOrigin(self.place, is_hidden=True)
        made = _declared(function, kind, annotations, purpose, Effect.READ, options, origin)
        return Companion(made, {**{name: f"args.{name}" for name in ours.values()}, "replan_call_key": "key"})


async def _note_ahead(
    servers: McpServers, key: Key, ahead: Observe, sent: Mapping[str, JsonValue], *, keeps_first: bool
) -> None:
    """Store the record ahead of a call; with `keeps_first`, only if an earlier attempt has stored none.

    Requests for the record do not count as the call's. On failure or delay, raises ToolError; the call is not sent.
    """
    with sends.counted(sends.Sends()):
        try:
            # It ends before the attempt does, which could not say that the call was not sent.
            async with time_limit(ready_seconds()):
                if not (keeps_first and await servers.ahead(key)):
                    await servers.note_ahead(key, await ahead(servers, key, sent))
        except TimeoutError:
            reason = "What is before the call was not read in time; the call was not sent."
            raise unsent(Unreachable(reason, code="timeout")) from None
        except ToolError as error:
            error.proves_nothing = False
            raise unsent(error) from None


def _declared(
    function: Callable[..., Any],
    kind: str,
    annotations: dict[str, Any],
    description: str,
    effect: Effect,
    options: ToolOptions,
    origin: ToolOrigin,
) -> Tool[..., Any]:
    function.__name__, function.__doc__, function.__annotations__ = kind, description, annotations
    return Tool(function, effect, options, origin=origin)


def _arguments(using: Mapping[str, JsonValue], values: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The arguments of a read, as `using` declares them.

    A path over `values` is replaced by its value, and is left out if it has none; any other entry is the value itself.
    """
    found = dict[str, JsonValue]()
    for name, path in using.items():
        if not (isinstance(path, str) and path.partition(".")[0] in values and "." in path):
            found[name] = path
            continue
        at: Any = values
        for part in path.split("."):
            at = at.get(part) if isinstance(at, Mapping) else None
        if at is not None:
            found[name] = at
    return found


def _named(option: str, kind: str, known: Mapping[str, Tool[..., Any]], wrong: list[str]) -> Tool[..., Any] | None:
    """The tool of the kind that an option names; None if there is none, with a mistake appended to `wrong`."""
    if kind not in known:
        wrong.append(f"{option} names {kind!r}, which is in no tools file{nearest(kind, known)}: load it.")
    return known.get(kind)


def _named_in_file(source: McpServer) -> dict[str, list[tuple[str, ...]]]:
    """By name, the tools that the file names, with the paths of these places in the server's table."""
    found = dict[str, list[tuple[str, ...]]]()
    for name in source.server.tools:
        found[name] = [("tools", name)]
    for name in source.server.only or ():
        found.setdefault(name, []).append(("only",))
    return found


def _unknown_tools(source: McpServer) -> Iterator[str]:
    """Yield a mistake for each tool that the file names and the server does not list."""
    names = [listed.name for listed in source.listing.tools]
    if source.listing.unread:
        return  # it may be behind what was read
    for one in source.server.reads:
        if not set("*?[").intersection(one) and one not in (*names, *source.listing.left_out):
            near = nearest(one, names) or f": it has {', '.join(names[:20])}"
            yield f"{source.place.line('reads')}: {source.name} has no tool {one!r}{near}."
    for name, places in _named_in_file(source).items():
        if name not in names and name not in source.listing.left_out:
            near = nearest(name, names) or f": it has {', '.join(names[:20])}"
            for entry in places:
                yield f"{source.place.line(*entry)}: {source.name} has no tool {name!r}{near}."
