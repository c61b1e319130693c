"""The world of a run: what the servers of git, sqlite, memory and files change, and how often each effect is in it."""

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.gateway.programs import new_programs, node_programs, old_programs

SERVERS = ("git", "sqlite", "memory", "files")
SHIM = Path(__file__).with_name("shim.py")
IDENTITY = ("GIT_AUTHOR_NAME=agent", "GIT_COMMITTER_NAME=agent", "EMAIL=agent@localhost")
RULES = """
[servers.{server}.tools.{tool}]
effect = "unkeyed"
timeout = 8
"""
FINDS: Mapping[str, str] = {
    "git": """mark = "message"
settle = 1
reconcile.kind = "git.git_log"
reconcile.using = { repo_path = "args.repo_path", max_count = 1000 }
reconcile.applied_if = "call.mark in result.text"
""",
    "sqlite": """settle = 1
reconcile.kind = "sqlite.read_query"
reconcile.using = { query = "SELECT 'INSERT INTO effects VALUES (''' || token || ''')' AS made FROM effects" }
reconcile.applied_if = "args.query in result.text"

[servers.sqlite.tools.read_query]
effect = "read"
""",
    "files": """settle = 1
reconcile.kind = "files.read_text_file"
reconcile.using = { path = "args.path" }
reconcile.applied_if = "args.path in result.content"
""",
}
"""By server, how the gateway finds out whether a call was applied; for `memory` a person is asked."""


@dataclass(frozen=True)
class Call:
    """A call with an effect."""

    server: str
    tool: str
    args: Mapping[str, Any]
    result: Any
    """What a person provides as its result who sees that it was made."""


class World:
    """One folder with a repository for each agent, a database, a memory, and a file for each effect."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = {
            "git": new_programs() / "mcp-server-git",
            "sqlite": old_programs() / "mcp-server-sqlite",
            "memory": node_programs() / "mcp-server-memory",
            "files": node_programs() / "mcp-server-filesystem",
        }

    def prepare(self, agents: Sequence[str], tokens: Sequence[str]) -> None:
        """Make everything in which the effects leave their traces."""
        for name in ("holds", "held", "files"):
            (self.folder / name).mkdir(parents=True)
        for agent in agents:
            self._git("init", "--quiet", str(self.folder / agent))
        with sqlite3.connect(self._database) as database:
            database.execute("CREATE TABLE effects (token TEXT)")
        for token in tokens:
            self._file(token).write_text("END\n")

    def command(self, server: str, agent: str = "") -> list[str]:
        """The command of a server with its shim; of an agent of its own, if it cannot share what it writes."""
        program = str(self._programs[server])
        command = {
            "git": ["env", *IDENTITY, program],
            "sqlite": [program, "--db-path", str(self._database)],
            "memory": ["env", f"MEMORY_FILE_PATH={self.folder / f'memory-{agent}.jsonl'}", program],
            "files": [program, str(self.folder / "files")],
        }[server]
        return [sys.executable, "-I", "-S", str(SHIM), str(self.folder), server, *command]

    def tools_file(self, agent: str = "") -> Path:
        """The tools file of all servers, for one agent."""
        tools = {server: self.call(server, "", "").tool for server in SERVERS}
        text = "".join(
            f"[servers.{server}]\ncommand = {json.dumps(self.command(server, agent))}\n"
            + RULES.format(server=server, tool=tools[server])
            + FINDS.get(server, "")
            for server in SERVERS
        )
        file = self.folder / f"tools-{agent}.toml"
        file.write_text(text)
        return file

    def call(self, server: str, agent: str, token: str) -> Call:
        """The call that makes the effect with this token."""
        entity = {"name": token, "entityType": "effect", "observations": list[str]()}
        insert = f"INSERT INTO effects VALUES ('{token}')"  # noqa: S608  # the eval's own token
        edit = {"oldText": "END", "newText": f"{self._file(token)}\nEND"}
        calls: Mapping[str, tuple[str, dict[str, Any], Any]] = {
            "git": ("git_commit", {"repo_path": str(self.folder / agent), "message": token}, {"text": "done"}),
            "sqlite": ("write_query", {"query": insert}, {"text": "done"}),
            "memory": ("create_entities", {"entities": [entity]}, {"entities": [entity]}),
            "files": ("edit_file", {"path": str(self._file(token)), "edits": [edit]}, {"content": "done"}),
        }
        return Call(server, *calls[server])

    def executions(self) -> Counter[str]:
        """By token, how often a server made the effect, as the shims wrote down."""
        return Counter(row["token"] for row in self.journal() if row["event"] == "done")

    def journal(self) -> list[dict[str, Any]]:
        """What the shims wrote down."""
        file = self.folder / "journal.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def effects(self, agents: Sequence[str], tokens: Mapping[str, str]) -> Counter[str]:
        """How often each effect is in the world; `tokens` has the server of each. Entities with one name are one there,
        so of `memory` a second call that the server made counts, too."""
        found = Counter[str]()
        for agent in agents:
            if list((self.folder / agent / ".git" / "refs" / "heads").glob("*")):
                log = self._git("-C", str(self.folder / agent), "log", "--format=%s")
                found.update(line for line in log.splitlines() if line in tokens)
        with sqlite3.connect(self._database) as database:
            found.update(str(token) for (token,) in database.execute("SELECT token FROM effects"))
        for token, server in tokens.items():
            if server == "files":
                found[token] += self._file(token).read_text().splitlines().count(str(self._file(token)))
        remembered = {
            json.loads(line).get("name")
            for file in self.folder.glob("memory-*.jsonl")
            for line in file.read_text().splitlines()
        }
        made = self.executions()
        for token, server in tokens.items():
            if server == "memory" and token in remembered:
                found[token] += max(1, made[token])
        return found

    @property
    def _database(self) -> Path:
        return self.folder / "effects.db"

    def _file(self, token: str) -> Path:
        return self.folder / "files" / f"{token}.txt"

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607
