"""The tools file, e.g. `shop.toml`: MCP servers, and for the tools of each what decorators declare for Python tools.

[servers.git]
command = ["uvx", "mcp-server-git"]

[servers.git.tools.git_commit]
effect = "unkeyed"
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from activities.borders.declared import CODES
from activities.borders.validation import RULE, expected
from workflows.plans.catalogue import Effect
from workflows.text import decode_text, nearest

MAX_FILE = 1024 * 1024  # bytes
SERVER_NAME = r"^[a-z][a-z0-9_-]{0,30}$"
URL = r"^https?://[^\s@]+$"
CODE_NAMES = ", ".join(CODES)

Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class CompanionTable(_Table):
    """Another tool, and where its arguments come from."""

    kind: str
    """The kind of a tool: `git.git_log`, or the name of a Python tool."""
    using: dict[str, JsonValue] = Field(default_factory=dict)
    """By argument, a path such as `args.repo_path`. With `applied_if`, a value that is no path is passed as it is."""


class ReconcileTable(CompanionTable):
    """A read that finds out whether a call with an unknown outcome was applied."""

    applied_if: str | None = None
    """A condition over `args`, `result` (of the read), `before` (the read's result ahead of the call) and
    `call.claimed_at`. Without it, the read itself decides: its result is that of the call, "not found" says that there
    was none."""
    result: str | None = None
    """The path to the result of the call in the read's result; by default the whole."""


class ApproveTable(_Table):
    """Which calls people must approve, and which people: the fields of `Approval`, which checks them."""

    when: str = "always"
    by: Any = ()
    count: Annotated[int, Strict()] = 1
    not_starter: Flag = False
    after: str = ""


TEXT, TABLE = "text", ""
"""The tags of an option's two forms; that of a table stands in the path of a mistake, where it is left out."""
Approve = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[ApproveTable, Tag(TABLE)],
    Discriminator(lambda value: TEXT if isinstance(value, str) else TABLE),
]


class ToolTable(_Table):
    """The options of one tool; an option that is left out has the default of a Python tool."""

    # Read when the worker starts, and makes a kind of the tool
    effect: Effect | None = None
    key: str | None = None
    """The argument that takes the idempotency key; for `keyed` tools."""
    mark: str | None = None
    """The name of a text argument. Replan adds a line to its end, by which `call.mark` finds the effect of the call."""
    description: str | None = None
    """Instead of the server's own description, for the planner."""
    reviewed: str | None = None
    """The digest of the tool's name, description and schemas as a person has read them; `--write-tools` writes it."""

    # Read after a call has failed, and in a rollback
    observe: CompanionTable | None = None
    reconcile: ReconcileTable | None = None
    errors: Literal["before"] | None = None
    """`before` if the tool checks before it acts: an error that it reports proves that the call changed nothing."""
    settle: Number | None = None
    undo: CompanionTable | None = None
    fallback: str | None = None

    # Read around each call
    ensure: str | None = None
    approve: Approve | None = None
    retry: str | None = None
    timeout: Number | None = None

    # Read when a proposal is compared with the contract of the task
    untrusted: Flag | None = None
    authority: tuple[str, ...] | None = None
    content: tuple[str, ...] | None = None

    # Read in each attempt, before the tool is called
    service: str | None = None
    credential: str | None = None
    limit: str | None = None


class ErrorRow(_Table):
    """The meaning of an answer of a server."""

    code: Annotated[str, Field(pattern=f"^({'|'.join(CODES)})$")]
    applied: Literal["none", "unknown"] = "unknown"
    """What the answer proves: "none" that the call changed nothing."""
    in_success: Flag = False
    """Whether the server sends this answer as a success; then the answer must begin with the text."""


class OAuthTable(_Table):
    """Client credentials (OAuth 2.1) for a server behind a URL."""

    client_id: str
    """The NAME of the worker's variable with the id, or `file:PATH`; the same for `client_secret`."""
    client_secret: str
    issuer: Annotated[str, Field(pattern=URL)] | None = None
    """The authorization server to which alone the credentials are sent; by default the server itself."""
    scope: str | None = None


class ServerTable(_Table):
    """An MCP server: a command, or a URL."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    url: Annotated[str, Field(pattern=URL)] | None = None
    env: dict[str, str] = Field(default_factory=dict)
    """By variable of the server's environment, the NAME of the worker's variable, or `file:PATH`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """By header, the NAME of a variable, or `file:PATH`; a value of `Authorization` without a blank is a token."""
    oauth: OAuthTable | None = None
    cwd: str | None = None
    trusted: Flag = True
    """Whether `readOnlyHint` of the server is believed: then the tool is a `read`."""
    trusted_results: Flag = False
    """Whether results are no untrusted content."""
    roots: tuple[str, ...] = ()
    """Folders that the server is told it may work in."""
    only: tuple[str, ...] | None = None
    """The tools that are offered; None for all."""
    reads: tuple[str, ...] = ()
    """Names of tools that only read, also as patterns: `["get_*", "list_*"]`."""
    default: Literal[Effect.READ, Effect.IDEMPOTENT, Effect.UNKEYED] | None = None
    """The effect of the tools of which neither the file nor a hint says it; without it, `unkeyed`."""
    timeout: Number | None = None
    limit: str | None = None
    credential: str | None = None
    tools: dict[str, ToolTable] = Field(default_factory=dict)
    errors: dict[str, ErrorRow] = Field(default_factory=dict)
    """By a text of the server's answers, what it means."""

    @model_validator(mode="after")
    def _check(self) -> "ServerTable":
        if (self.command is None) is (self.url is None):
            raise PydanticCustomError(RULE, 'needs either command = [...] or url = "..."')
        wrong = ("headers", "oauth") if self.command else ("env", "cwd")
        for name in wrong:
            if getattr(self, name):
                raise PydanticCustomError(RULE, f"has {name}, which is for {'a url' if self.command else 'a command'}")
        return self


class ToolsFile(_Table):
    servers: dict[Annotated[str, Field(pattern=SERVER_NAME)], ServerTable] = Field(min_length=1)


class BadToolsFile(Exception):
    """A tools file cannot be used; `mistakes` has a sentence for each mistake, with its line and what to do."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def read(path: Path) -> ToolsFile:
    """Read a tools file; raises BadToolsFile, which has all mistakes, if it cannot be used."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise BadToolsFile([f"{path} has more than {MAX_FILE} bytes: a tools file names servers, in TOML."])
        text = decode_text(path.read_bytes())
        values = tomllib.loads(text)
    except FileNotFoundError:
        raise BadToolsFile([f"There is no tools file {path}: check --tools."]) from None
    except OSError as error:
        raise BadToolsFile([f"The tools file {path} cannot be read ({error.strerror}): check --tools."]) from None
    except (ValueError, RecursionError) as error:  # tomllib also lets those of `int` through
        raise BadToolsFile([f"{path} is no TOML ({error}): correct it."]) from None
    try:
        return ToolsFile.model_validate(values)
    except ValidationError as error:
        found = [
            f"{path}{line_of(text, mistake['loc'])}: {_message(mistake)}" for mistake in error.errors(include_url=False)
        ]
        raise BadToolsFile(found) from None


def line_of(text: str, loc: Sequence[Any]) -> str:
    """`:LINE` of the entry with the path `loc`, or of the nearest entry on the way to it; empty if there is none."""
    wanted = tuple(str(part) for part in loc if part not in ("[key]", TABLE))
    best, found = 0, ""
    for entry in places(text):
        common = min(len(entry.path), len(wanted))
        if common > best and entry.path[:common] == wanted[:common]:
            best, found = common, f":{entry.line}"
    return found


_QUOTED = r"""\"(?:[^"\\]|\\.)*\"|'[^']*'"""


class TomlLine(NamedTuple):
    """A line that begins a table or a value."""

    line: int
    path: tuple[str, ...]
    is_table: bool


def places(text: str) -> Iterator[TomlLine]:
    """Yield the lines that begin a table or a value."""
    table: tuple[str, ...] = ()
    quotes = ""  # of a text of several lines
    for number, line in enumerate(text.split("\n"), start=1):
        if quotes:
            quotes = "" if quotes in line else quotes
            continue
        if header := re.match(rf"\s*\[((?:[\w\s.-]|{_QUOTED})+)\]\s*(?:#.*)?$", line):
            table = _path(header[1])
            yield TomlLine(number, table, is_table=True)
        elif value := re.match(rf"\s*((?:[\w\s.-]|{_QUOTED})+?)\s*=", line):
            yield TomlLine(number, table + _path(value[1]), is_table=False)
        quotes = next((found for found in ('"""', "'''") if line.count(found) % 2), "")


def _path(dotted: str) -> tuple[str, ...]:
    """The parts of a dotted key; empty if it is no key."""
    try:
        at: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:  # inside a text of several lines
        return ()
    path = list[str]()
    while isinstance(at, dict):
        [(name, at)] = at.items()
        path.append(name)
    return tuple(path)


def _message(mistake: Mapping[str, Any]) -> str:
    loc = [str(part) for part in mistake["loc"] if part not in ("[key]", TABLE)]
    setting = ".".join(loc)
    if mistake["type"] == "extra_forbidden":
        return f"{setting} is no setting{_instead(loc)}."
    if mistake["type"] == "missing":
        return f"{setting} is missing{': begin with [servers.NAME]' if len(loc) == 1 else ''}."
    if mistake["loc"][-1] == "[key]":
        return f"{setting} is no name of a server: use small letters, digits, _ and -, e.g. [servers.git]."
    if loc[-1] == "code" and mistake["type"] == "string_pattern_mismatch":
        return f"{setting} is no code{nearest(str(mistake['input']), CODES)}: use one of {CODE_NAMES}."
    if mistake["type"] == RULE:
        return f"{setting} {mistake['msg']}."
    if (mistake.get("ctx") or {}).get("pattern") == URL:  # which may have a password
        return (
            f"{setting} is no address: begin with http:// or https://, and put user and password into headers or oauth."
        )
    wanted = _WANTED.get(mistake["type"]) or expected(mistake)
    return f"{setting} cannot be {str(mistake['input'])[:80]!r}: {wanted}."


_A_TABLE = "write a table, i.e. names with values"
_WANTED: Mapping[str, str] = {
    "tuple_type": 'write a list, e.g. ["a", "b"]',
    "too_short": "write at least one item",
    "dict_type": _A_TABLE,
    "model_type": _A_TABLE,
    "string_type": "write a text in quotes",
}


def _instead(loc: Sequence[str]) -> str:
    """The end of a sentence about an unknown name at the end of `loc`: which names there are instead."""
    models: Mapping[int, Mapping[str, type[BaseModel]]] = {
        1: {"": ToolsFile},
        3: {"": ServerTable},
        4: {"oauth": OAuthTable},
        5: {"tools": ToolTable, "errors": ErrorRow},
        6: {
            "observe": CompanionTable,
            "reconcile": ReconcileTable,
            "undo": CompanionTable,
            "approve": ApproveTable,
        },
    }
    at = models.get(len(loc), {})
    model = at.get("") or (at.get(loc[2 if len(loc) < 6 else 4]) if len(loc) > 3 else None)
    names = list(model.model_fields) if model else []
    return nearest(loc[-1], names) or (f": there are {', '.join(names)}" if names else "")
