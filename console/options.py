"""The options that every command has: the server, the task queue, and the form of the output."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client.problem import Problem
from client.text import QUEUE
from console.completion import task_ids
from extras import NotHere, part

if TYPE_CHECKING:  # the SDK takes half a second, which --help does not have
    from temporalio.client import Client
    from temporalio.converter import DataConverter

    from client.tasks import Handle
    from client.vouching import Voucher

TaskId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="The id of a task, or its beginning; else the newest task, no `call`.",
        autocompletion=task_ids,
    ),
]
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="NAME", help="Without an ID: all calls of this session of `mcp` together."),
]
Jsonl = Annotated[bool, typer.Option("--jsonl", help="While following: one JSON event per line.")]
Stream = Annotated[
    bool, typer.Option("--stream", help="While following: what models say, as it comes, unfinished and untrusted.")
]
Identity = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        envvar="REPLAN_IDENTITY",
        metavar="FILE",
        help="Your own key, which `people` makes: it signs that it is you.",
    ),
]
"""The option of each command that signs who gives it."""
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "report": ("pygal", "jinja2"),
    "mcp": ("mcp",),
    "web": ("fastapi", "uvicorn", "jinja2", "itsdangerous"),
    "provider": ("authlib",),
}
"""The packages of the extras that only some commands need."""


def require_extra(what: str, extra: str) -> None:
    """Raise Problem if a package of `extra` is not installed; `what` names the command or option that needs it."""
    absent = [package for package in EXTRAS[extra] if find_spec(package) is None]
    if absent:
        reason = f"{what} needs {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed"
        remedy = f"run `pip install 'replan[{extra}]'`, in a checkout `pip install --editable '.[{extra}]'`"
        raise Problem("not_installed", reason, remedy)


def part_of_extra(what: str, name: str) -> Any:
    """The module with a part of an extra; raises Problem if it is not here. `what` names the command or option."""
    try:
        return part(name)
    except NotHere as why:
        needed, _, remedy = str(why).partition(": ")
        raise Problem("not_installed", f"{what} needs {needed}", remedy) from why


def voucher_of(identity: Path | None, by: str | None = None) -> "Voucher | None":
    """What signs who gives a command; None without an `identity`. Raises Problem if it cannot, or `by` is not it."""
    from client.vouching import Voucher  # not at the top, for `--help`

    if identity is None:
        return None
    voucher = Voucher.of_key(identity)
    if by not in (None, voucher.person):
        reason = f"--by {by} is not {voucher.person}, whose key signs it ({identity})"
        raise Problem("usage", reason, "leave --by or --identity out")
    return voucher


def require_alone(option: str, others: Mapping[str, object]) -> None:
    """Raise Problem if one of `others`, values by name, is not None: they do not go together with `option`."""
    if used := [name for name, value in others.items() if value is not None]:
        raise Problem("usage", f"{option} goes without {used[0]}", "write one of them")


@dataclass(frozen=True)
class Common:
    queue: Annotated[
        str, typer.Option(envvar="REPLAN_QUEUE", metavar="NAME", help="The task queue that the workers serve.")
    ] = QUEUE
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The server; else TEMPORAL_ADDRESS, the profile, or that of a worker with --dev."
        ),
    ] = None
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="The namespace; else TEMPORAL_NAMESPACE or the profile.")
    ] = None
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="A profile of the Temporal configuration file.")
    ] = None

    keys: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_KEYS", metavar="FILE", help="The keyring of the workers, to read what they encrypt."
        ),
    ] = None

    def check(self) -> None:
        """Raise Problem if `queue` is a control queue, which has no worker for tasks; call this before connecting."""
        from workflows.task_queues import CONTROL  # imported here for `--help`, like the types above

        if self.queue.endswith(CONTROL):
            reason = f"--queue {self.queue} is the name of a control queue"
            raise Problem("usage", reason, f"choose one without {CONTROL!r}")

    async def connected(self) -> "Client":
        """Connect to the server that options, environment or profile name. Raises Problem if no server answers."""
        # Imported here for `--help`, like the types above.
        from client.connection import connected

        return await connected(self.address, self.namespace, self.profile, keys=self.keys)

    def data_converter(self) -> "DataConverter":
        """The data converter for histories from files, without a connection. Raises Problem for unusable keys."""
        from client.connection import data_converter

        return data_converter(self.namespace, self.keys)

    @property
    def is_interactive(self) -> bool:
        """Whether a person reads and types: stdin and stdout are terminals, and the output is not JSON."""
        return not self.json and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))

    async def at(self, task: "Handle") -> "Common":
        """The same options with the task queue of `task`."""
        # Only workers of that queue can answer for the task.
        return replace(self, queue=(await task.describe()).task_queue)
