"""What a development server is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.client import DEFAULT_NAMESPACE

FAST_AND_DURABLE = (
    *("--sqlite-pragma", "journal_mode=wal"),
    *("--sqlite-pragma", "synchronous=2"),
    *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=10000"),
    *("--dynamic-config-value", "history.timerProcessorMaxPollRPS=10000"),
    *("--dynamic-config-value", "history.visibilityProcessorMaxPollRPS=10000"),
    *("--dynamic-config-value", 'history.timerProcessorMaxTimeShift="10ms"'),
    *("--dynamic-config-value", "system.enableActivityEagerExecution=true"),
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
)
"""Five times the speed of the server's defaults, which are meant for many shards, and no less durable."""


@dataclass(frozen=True)
class ServerSpec:
    """What to start: where it listens, where it keeps its state, what it knows from the start."""

    folder: Path
    """Holds the database, which outlives the server, and the log, which starts anew with it."""
    host: str = "localhost"
    port: int = 7233
    ui_port: int = 8233
    namespace: str = DEFAULT_NAMESPACE
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Search attributes, name to type."""
    dynamic: Mapping[str, str] = field(default_factory=dict)
    """More dynamic config values, key to JSON, as in `{"limit.historyCount.suggestContinueAsNew": "100"}`."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://{self.host}:{self.ui_port}"

    @property
    def database(self) -> Path:
        return self.folder / "temporal.db"

    @property
    def log(self) -> Path:
        return self.folder / "temporal.log"

    @property
    def ip(self) -> str:
        return "127.0.0.1" if self.host == "localhost" else self.host

    def command(self, binary: Path) -> list[str]:
        """The command line of the server."""
        listen = ["--ip", self.ip, "--port", str(self.port), "--ui-port", str(self.ui_port)]
        keep = ["--db-filename", str(self.database), "--namespace", self.namespace, "--log-level", "warn"]
        more = [word for key, value in self.dynamic.items() for word in ("--dynamic-config-value", f"{key}={value}")]
        return [str(binary), "server", "start-dev", *listen, *keep, *FAST_AND_DURABLE, *more]
