"""How a worker is configured to reach a server, and what the server lists."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.schemas.drafts import BadSchema
from extras.mcp import tools_file
from workflows.faults.fault import Code
from workflows.json_values import digest
from workflows.text import decode_text


@dataclass(frozen=True)
class ServerTool:
    """A tool as a server lists it."""

    name: str
    schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    title: str = ""
    description: str = ""
    read_only: bool = False
    """Whether the server declares that the tool only reads (`readOnlyHint`)."""
    idempotent: bool = False
    """Whether the server declares that a repeated call changes nothing more (`idempotentHint`); never relied on."""
    only_as_task: bool = False
    """Whether the tool can only be called as a task of MCP, which Replan does not support."""
    listed: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The tool as JSON, as the server listed it, but without fields that are odd; empty where no server listed it."""
    oddities: Sequence[str] = ()
    """What of the tool is odd, and not used: a sentence for each such field."""

    def as_listed(self, left_out: Collection[str] = ()) -> dict[str, Any]:
        """The tool as JSON, as the server listed it, but without the arguments `left_out`."""
        whole = dict(self.listed)
        if left_out:
            whole["inputSchema"] = _without(whole["inputSchema"], left_out)
        return whole

    @cached_property
    def digest(self) -> str:
        """A digest of the name and the schemas, which changes when a call may send or return something else."""
        return digest([self.name, dict(self.schema), dict(self.output_schema) if self.output_schema else None])

    def digest_of_words(self, *, is_described: bool) -> str:
        """A digest of all that a model is told of the tool; `is_described`: the file has a description of its own."""
        said: JsonValue = None if is_described else [self.title, self.description]
        return digest([self.name, said, dict(self.schema), dict(self.output_schema) if self.output_schema else None])

    @cached_property
    def checks(self) -> JsonSchema | None:
        """The schema that checks the tool's structured results; None without one that can be read."""
        try:
            return None if self.output_schema is None else JsonSchema.foreign(self.output_schema)
        except BadSchema:  # its tool is only offered behind a gateway
            return None


def _without(schema: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A copy of a schema without the properties `names`, also in the branches at its root."""
    made = dict(schema)
    if isinstance(properties := made.get("properties"), Mapping):
        made["properties"] = {name: part for name, part in properties.items() if name not in names}
    if isinstance(required := made.get("required"), list):
        made["required"] = [name for name in required if name not in names]
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(branches := made.get(keyword), list):
            made[keyword] = [_without(part, names) if isinstance(part, Mapping) else part for part in branches]
    for keyword in ("if", "then", "else"):
        if isinstance(part := made.get(keyword), Mapping):
            made[keyword] = _without(part, names)
    return made


@dataclass(frozen=True)
class Listing:
    """What a server offers."""

    tools: Sequence[ServerTool]
    server_name: str
    """The name that the server gives itself."""
    protocol: str
    introduction: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    """What the server reported about itself on connection: `info`, `capabilities`, `instructions` and `protocol`."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The tools that cannot be read, each with the reason: by name, all tools without a name under the empty name."""
    unread: str = ""
    """Why the list of tools, or its rest, cannot be read; empty if all of it was."""


class JsonRpcError(Exception):
    """A JSON-RPC error in answer to a request; the exception has the message of the error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """`data` is any JSON value; None for an error without data."""
        super().__init__(message)
        self.code = code
        self.data = data


class CannotOpen(Exception):
    """A server cannot be started, reached or asked for its tools; the message says why, without the server's name.

    The attribute `words` has the server's own words, which are untrusted; `why` is the message without them.
    """

    def __init__(self, why: str, words: str = "", code: Code = Code.UNREACHABLE) -> None:
        """`code` is the code of the fault that a call gets; a transient code, unless a person has to fix something."""
        super().__init__(f"{why}: {words}" if words else why)
        self.why = why
        self.words = words
        self.code = code


@dataclass(frozen=True)
class Config:
    """How to connect to one server, with the values of its secrets."""

    name: str
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    issuer: str = ""
    """The authorization server of the client; empty for the server itself."""
    scope: str | None = None
    cwd: str | None = None
    roots: Sequence[str] = ()
    errors: Mapping[str, tools_file.ErrorRow] = field(default_factory=dict)
    checks_first: frozenset[str] = frozenset()
    """The tools that report an error only before they change anything, as the file says."""

    @classmethod
    def of(cls, name: str, server: tools_file.ServerTable, environment: Mapping[str, str], folder: Path) -> "Config":
        """Make the Config of the server `name`, with the values of the variables and files that its table names.

        Relative paths are below `folder`, that of the tools file. Raises CannotOpen for a missing variable or file.
        """

        def value(source: str) -> str:
            if source.startswith("file:"):
                path = folder / source.removeprefix("file:")
                try:
                    return decode_text(path.read_bytes()).strip()
                except (OSError, ValueError):
                    raise CannotOpen(f"the file {path} cannot be read") from None
            if source not in environment:
                raise CannotOpen(f"the variable {source} is not set")
            return environment[source]

        headers = {header: value(source) for header, source in server.headers.items()}
        for header in [found for found in headers if found.lower() == "authorization"]:
            headers[header] = headers[header] if " " in headers[header] else f"Bearer {headers[header]}"
        return cls(
            name,
            server.command or (),
            server.url or "",
            {variable: value(source) for variable, source in server.env.items()},
            headers,
            value(server.oauth.client_id) if server.oauth else "",
            value(server.oauth.client_secret) if server.oauth else "",
            (server.oauth.issuer if server.oauth else None) or "",
            server.oauth.scope if server.oauth else None,
            str(folder / server.cwd) if server.cwd else None,
            [str((folder / root).resolve()) for root in server.roots],
            server.errors,
            frozenset(name for name, tool in server.tools.items() if tool.errors == "before"),
        )
