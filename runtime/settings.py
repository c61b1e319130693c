"""The settings of a worker: from its command line, else from the environment, else the defaults in this module."""

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer
from typer.models import OptionInfo

from runtime import process, state_folder
from runtime.options import HELP, Version
from runtime.usage import mistake
from workflows.commands import WORKER
from workflows.task_queues import CONTROL

DEFAULT_QUEUE, QUEUE_VARIABLE = "replan", "REPLAN_QUEUE"
OTHERS = 0o027
"""The umask: other users read and write nothing, the group writes nothing."""
EXAMPLES = Path(__file__).parent.parent / "examples" / "documents"


class WithRemedy(Exception):
    """An error whose message is one sentence: `reason` says what is wrong, `remedy` what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}.")
        self.reason, self.remedy = reason, remedy


class BadSetting(ValueError):
    """An option cannot be used; the message says what to do."""


class LogStyle(StrEnum):
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True)
class Variable:
    """Says of a setting that only a variable of the environment sets it; no command has an option for it."""

    envvar: str


@dataclass(frozen=True)
class Settings:
    """The options of `worker.py`, in the order of its `--help`, and its variables; a new one is a new field."""

    # Read when the worker starts
    dev: Annotated[bool, typer.Option("--dev", help="Run a server and a demo world in the state folder.")] = False
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            metavar="PORT",
            help="With --dev: the server's port, its web UI 1000 above; else 7233, or a free one.",
        ),
    ] = None
    desk: Annotated[
        bool, typer.Option("--desk", help="Serve the tools of the demo desk, with its data in the store; --dev does.")
    ] = False
    fresh: Annotated[bool, typer.Option("--fresh", help="With --dev: begin with an empty world.")] = False
    tools: Annotated[
        list[str],
        typer.Option(
            "--tools",
            metavar="FILE|MODULE",
            help="Your own tools: my_tools.py, shop.tools or servers.toml; may be repeated.",
        ),
    ] = field(default_factory=list)

    # Read in place of serving tasks
    check: Annotated[bool, typer.Option("--check", help="Load the tools, print the catalogue, exit.")] = False
    strict: Annotated[
        bool,
        typer.Option("--strict", help="With --check: exit with 1 if open tasks do not fit, with 6 if nobody knows."),
    ] = False
    write_tools: Annotated[
        Path | None,
        typer.Option(
            "--write-tools",
            metavar="FILE",
            help="With --check: write a tools file in which you say what each tool of your MCP servers changes.",
        ),
    ] = None
    classify: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Say which fault an exception becomes, e.g. requests.ReadTimeout; exit."),
    ] = None

    # Read when a tool is called
    documents: Annotated[Path | None, typer.Option(help="The root of the folders that tasks may search.")] = None
    allow_hosts: Annotated[
        list[str],
        typer.Option("--allow-host", help="A private host or network that fetch_page and http_request may reach."),
    ] = field(default_factory=list)
    allow_requests: Annotated[
        list[str],
        typer.Option(
            "--allow-request", metavar="HOST[:PORT]", help="A host that http_request may send to; may be repeated."
        ),
    ] = field(default_factory=list)
    http_headers: Annotated[
        list[str],
        typer.Option(
            "--http-header",
            metavar="HOST=NAME:VARIABLE",
            help="A header that http_request sends to that host, from the environment.",
        ),
    ] = field(default_factory=list)
    workspace: Annotated[
        Path | None, typer.Option(help="The root below which each task gets a folder to write in.")
    ] = None

    # Read when the worker opens what it needs
    state: Annotated[
        Path, typer.Option(envvar=state_folder.VARIABLE, help="The folder where this worker keeps its state.")
    ] = state_folder.DEFAULT
    store: Annotated[
        str | None, typer.Option(envvar="REPLAN_STORE", help="URL of the store, else SQLite in --state.")
    ] = None
    payloads: Annotated[str | None, Variable("REPLAN_PAYLOADS")] = None
    """The bucket for large payloads, as `s3://BUCKET`; else they are in the store."""
    keys: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_KEYS",
            metavar="FILE",
            help="A keyring, which `keys new` writes: encrypt with its first key, read with all.",
        ),
    ] = None
    accept_clear: Annotated[
        bool,
        typer.Option(
            "--accept-clear",
            help="With --keys: also accept tasks and answers that were sent without the key, for a change-over.",
        ),
    ] = False
    codec: Annotated[str | None, Variable("REPLAN_CODEC")] = None
    """The MODULE:OBJECT of a payload codec of the user's, e.g. with a KMS."""

    # Read when a task asks a person
    people: Annotated[
        Path | None,
        typer.Option(
            envvar="REPLAN_PEOPLE",
            metavar="FILE",
            help="The people file, which `people` writes: who may approve, and the keys that vouch for them.",
        ),
    ] = None
    notify: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_NOTIFY",
            metavar="URL|COMMAND",
            help="Who is told when a task waits for a person: JSON is posted there, or is the command's input.",
        ),
    ] = None
    page: Annotated[str | None, Variable("REPLAN_PAGE")] = None
    """The URL where people open the page of `serve`: Temporal's web UI and what is told link to it."""

    # Read when the worker begins to serve
    queue: Annotated[str, typer.Option(envvar=QUEUE_VARIABLE, help="The task queue to serve.")] = DEFAULT_QUEUE
    slots: Annotated[int, typer.Option(min=1, help="Calls of tools that run at the same time.")] = 100

    # Read when a task is planned
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Who plans: anthropic:MODEL, openai:MODEL, ollama:MODEL, lmstudio:MODEL, offline, several in the order"
            " to try, or scripted:FILE. Without it a model, where its provider's key is set.",
        ),
    ] = None

    # Read at the failpoints of calls
    breaks: Annotated[
        list[str],
        typer.Option(
            "--break",
            metavar="KIND=FAULT[:N]",
            help="With --dev: break a tool on purpose, e.g. search=503:2, or pay=die@after_commit:1.",
        ),
    ] = field(default_factory=list)

    # Read from the start of the worker to its end
    settings_file: Annotated[
        Path | None,
        typer.Option(
            "--settings", envvar="REPLAN_SETTINGS", metavar="FILE", help="Prices of models; else replan.toml."
        ),
    ] = None
    log: Annotated[LogStyle | None, typer.Option(help="How to log; JSON where stderr is no terminal.")] = None
    log_values: Annotated[
        bool,
        typer.Option("--log-values", help="Log arguments, results, and messages of exceptions, too: to find a bug."),
    ] = False
    metrics: Annotated[
        str | None,
        typer.Option(envvar="REPLAN_METRICS", metavar="[IP:]PORT", help="Serve metrics to Prometheus there."),
    ] = None

    @property
    def has_desk(self) -> bool:
        """Whether the worker has the tools of the demo desk and their data."""
        # `--dev` alone makes no tables in a store that the user named.
        return self.desk or (self.dev and self.store is None)

    @property
    def dev_address(self) -> str | None:
        """The `host:port` where the server of `--dev` listens, by `--port`; None without `--port`."""
        return f"localhost:{self.port}" if self.port else None

    @property
    def documents_root(self) -> Path | None:
        """The root of the folders that tasks may search; by default the examples' folder with `--dev`, else None."""
        return self.documents or (EXAMPLES if self.dev else None)

    @property
    def workspace_root(self) -> Path | None:
        return self.workspace or (self.state / "workspace" if self.dev else None)

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served; None without `--metrics`, or with `--check` or `--classify`: they serve nothing."""
        return None if self.check or self.classify is not None else self.metrics or None

    def prepare(self) -> None:
        """Make the folders; with `--fresh` delete the embedded store and the server's database.

        This sets the umask: other users cannot read what this process and its children write from now on.

        Raises:
            BadSetting: a folder cannot be used, options do not go together, or a server still uses the databases.
        """
        os.umask(os.umask(0) | OTHERS)
        self.make_folders()

    def make_folders(self) -> None:
        """Do the same as `prepare`, but leave the umask of the process as it is."""
        if self.queue.endswith(CONTROL):
            raise BadSetting(f"--queue {self.queue} is the name of a control queue: choose one without {CONTROL!r}.")
        if self.write_tools is not None:  # with --check, no folder is made
            raise BadSetting("--write-tools writes what --check finds: give both.")
        if self.strict and not self.check:
            raise BadSetting("--strict is about what --check finds: give both.")
        if (self.fresh or self.breaks) and not self.dev:
            typed = "--fresh" if self.fresh else f"--break {self.breaks[0]}"
            raise BadSetting(f"{typed} is for the demo world of --dev: give --dev too, or leave it out.")
        if self.port and not self.dev:
            raise BadSetting("--port is for the server of --dev: name another server with TEMPORAL_ADDRESS.")
        if self.documents_root is not None and not self.documents_root.is_dir():
            raise BadSetting(f"There is no folder {str(self.documents_root)!r}: give --documents one that exists.")
        try:
            self.state.mkdir(0o700, parents=True, exist_ok=True)
            # An earlier version let others read them. A folder that exists is left as it is: it may hold other things.
            for database in self._databases():
                with suppress(PermissionError):  # of another user
                    database.chmod(0o600)
            if self.workspace_root is not None:
                self.workspace_root.mkdir(parents=True, exist_ok=True)
            if self.fresh:
                self._delete_databases()
        except OSError as error:
            raise BadSetting(
                f"The state folder {str(self.state)!r} cannot be used ({error.strerror}): choose another with --state."
            ) from error

    def _databases(self) -> list[Path]:
        return [*self.state.glob("store.db*"), *self.state.glob("temporal.db*")]

    def _delete_databases(self) -> None:
        try:
            with state_folder.lock(self.state):
                for database in self._databases():
                    database.unlink()
        except BlockingIOError:
            reason = f"A server still runs on {str(self.state)!r}: stop its worker before --fresh."
            raise BadSetting(reason) from None


def of_program(environment: Mapping[str, str], **options: Any) -> Settings:
    """The Settings of a worker inside a user's program.

    An option that is left out or None comes from its environment variable, as for `worker.py`, else from its default.
    """
    found = _from_variables(environment, (OptionInfo, Variable))
    known = {**found, **{name: value for name, value in options.items() if value is not None}}
    paths = ("documents", "state", "workspace", "settings_file", "write_tools")
    chosen: dict[str, Any] = {name: Path(value) if name in paths else value for name, value in known.items()}
    return Settings(**chosen)


def _from_variables(environment: Mapping[str, str], marks: tuple[type[OptionInfo | Variable], ...]) -> dict[str, Any]:
    """The values of the settings that have one of these marks, and whose variable is set."""
    found = dict[str, Any]()
    for setting in fields(Settings):
        for mark in get_args(setting.type)[1:]:
            if isinstance(mark, marks) and (value := environment.get(str(mark.envvar or ""))):
                found[setting.name] = value
    return found


class _CommandLine(typer.Typer):
    """A Typer command line that says a mistake as the console does: in one sentence, with exit code 2."""

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        try:
            raise SystemExit(super().__call__(*args, **options, standalone_mode=False))
        except typer.TyperException as error:
            found = mistake(error, WORKER)
            typer.echo(f"{found.reason}: {found.remedy}.", err=True)
            raise SystemExit(process.BAD_USAGE) from error


def with_settings(main: Callable[[Settings], None]) -> typer.Typer:
    """The command line that calls `main` with the Settings: an option for each field, and `--version`."""

    def command(*, version: bool, **options: Any) -> None:
        given = {name: value for name, value in options.items() if value is not None}
        main(Settings(**_from_variables(os.environ, (Variable,)), **given))

    command.__doc__ = main.__doc__
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            setting.name,
            keyword,
            default=None if setting.default is MISSING else setting.default,
            annotation=setting.type,
        )
        for setting in fields(Settings)
        if not any(isinstance(mark, Variable) for mark in get_args(setting.type))
    ]
    parameters.append(inspect.Parameter("version", keyword, default=False, annotation=Version))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    app = _CommandLine(add_completion=False, context_settings=HELP)
    app.command()(command)
    return app
