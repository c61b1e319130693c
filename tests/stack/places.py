"""What stands for the containers' network and file systems: ports on loopback, and one folder in place of `/`."""

import os
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.dev_server import free_port
from tests.processes import ROOT
from tests.stack import image
from tests.stack.programs import Programs
from tests.whole.deploy.composition import Service

SERVER = "temporal"
PORTS = [
    f"{part}_{what}_PORT" for part in ("FRONTEND", "HISTORY", "MATCHING", "WORKER") for what in ("GRPC", "MEMBERSHIP")
]
"""What server.yaml reads: in a container nobody else has them, here they must be free ones."""
USABLE = range(15000, 32768)
"""PostgreSQL keeps the server's ports as smallint, and the system hands out higher ones to connections."""


@dataclass(frozen=True)
class Places:
    root: Path
    programs: Programs
    database: int = field(default_factory=free_port)
    ports: Mapping[str, int] = field(default_factory=lambda: dict(zip(PORTS, free_ports(len(PORTS)), strict=True)))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports['FRONTEND_GRPC_PORT']}"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    def prepare(self) -> None:
        """Make the folders, with what is mounted and with the programs under the names that the images give them."""
        for name in ("etc", "log", "bin", "var/lib/replan"):
            (self.root / name).mkdir(parents=True)
        (self.root / "etc/replan").symlink_to(ROOT / "deploy/temporal")
        for name in ("temporal_server", "temporal_sql_tool", "temporal"):
            (self.root / "bin" / name.replace("_", "-")).symlink_to(getattr(self.programs, name))

    def command(self, service: Service, words: list[str] | None = None) -> list[str]:
        """The command line of a service, or another one for its container, as it is here."""
        folder = image.folder(self.root) if "build" in service.said else self.root
        return ["/usr/bin/env", f"--chdir={folder}", *(image.placed(word, self.root) for word in words or service.runs)]

    def environment(self, service: Service) -> dict[str, str]:
        """What its container would have, with the addresses and paths of here."""
        here = {"postgresql": "127.0.0.1", "5432": str(self.database), "temporal:7233": self.address}
        here["0.0.0.0"] = "127.0.0.1"  # noqa: S104  # a container's network is its own, this one is not
        said = {name: here.get(value, image.placed(value, self.root)) for name, value in service.environment.items()}
        ports = {name: str(port) for name, port in self.ports.items()} if service.name == SERVER else {}
        if "REPLAN_METRICS" in said:  # each container has this port
            ports["REPLAN_METRICS"] = str(free_port())
        return {**self._of_image(service), **said, **ports}

    def _of_image(self, service: Service) -> dict[str, str]:
        if "build" in service.said:
            return image.environment(self.root)
        return {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "HOME": str(self.root)}


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on, all different."""
    found = list[int]()
    for port in random.sample(USABLE, 50 * count):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            break
    return found
