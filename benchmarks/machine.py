"""The machine that a benchmark ran on, since its figures say nothing without it."""

import os
import platform
from importlib import metadata

import psutil
from pydantic import BaseModel, ConfigDict

from runtime.temporal_cli import VERSION

GIGABYTE = 2**30


class Machine(BaseModel):
    """Its size, and the versions of what was measured."""

    model_config = ConfigDict(frozen=True)

    cores: int
    memory_gb: float
    system: str
    python: str
    temporalio: str
    temporal_cli: str
    """The version that is fetched where none is installed."""

    @classmethod
    def this(cls) -> "Machine":
        """The one that we run on."""
        return cls(
            cores=psutil.cpu_count() or 0,
            memory_gb=round(psutil.virtual_memory().total / GIGABYTE, 1),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            temporalio=metadata.version("temporalio"),
            temporal_cli=VERSION,
        )

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.cores} cores, {self.memory_gb:g} GB, {self.system}, Python {self.python},"
            f" temporalio {self.temporalio}, Temporal CLI {self.temporal_cli}"
        )


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)
