"""Where everything of one trial is: ports on loopback, files in one folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evals.chaos import notes
from evals.chaos.databases import Databases
from evals.chaos.fleet import ROOT
from runtime.dev_server import free_port

BANK = ROOT / "evals" / "chaos" / "bank.py"
STOPPING = BANK.with_name("stopping.py")
"""The tools files of the workers."""


@dataclass(frozen=True)
class Places:
    """The places of one trial."""

    folder: Path
    server: int = field(default_factory=free_port)
    proxy: int = field(default_factory=free_port)
    payments: int = field(default_factory=free_port)

    @property
    def book(self) -> Path:
        """The payment service's."""
        return self.folder / "payments.db"

    @property
    def troubles(self) -> Path:
        """The payment service's fault plan."""
        return self.folder / "troubles.json"

    @property
    def notes(self) -> Path:
        """What the tools note of their calls."""
        return self.folder / "notes.jsonl"

    @property
    def state(self) -> Path:
        """The workers' state folder."""
        return self.folder / "state"

    def environment(self, address: str, databases: Databases) -> Mapping[str, str]:
        """What a worker finds in its environment; `address` is where it connects to."""
        return {
            "TEMPORAL_ADDRESS": address,
            "REPLAN_STATE": str(self.state),
            "REPLAN_STORE": databases.store,
            "REPLAN_CHAOS_BANK": databases.bank,
            "REPLAN_CHAOS_PAYMENTS": f"http://127.0.0.1:{self.payments}",
            notes.FILE: str(self.notes),
            "PYTHONPATH": str(ROOT),
        }

    def words(self, queue: str) -> list[str]:
        """The options of a worker."""
        return ["--tools", str(BANK), "--tools", str(STOPPING), "--queue", queue]
