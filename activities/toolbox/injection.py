"""The types of a tool's injected parameters, which the worker fills; `resources.py` makes their values."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy.ext.asyncio import AsyncConnection as Transaction

from activities.effects.key import Key
from activities.errors import NeedsPerson
from activities.providers.messages import LanguageModel
from activities.toolbox.http.network import Web
from activities.toolbox.http.services import Services
from activities.toolbox.pages import DocumentText
from activities.toolbox.servers import Servers
from activities.toolbox.texts import new_libraries, reader
from activities.toolbox.workspace import Workspace

__all__ = ["INJECTABLE", "Documents", "Key", "LanguageModel", "Servers", "Services", "Transaction", "Web", "Workspace"]


@dataclass(frozen=True)
class Documents:
    """The task's folder of documents, below the worker's root."""

    of_worker: Path | None  # the worker's root; None for a worker without documents
    libraries: Any = field(default_factory=new_libraries, repr=False, compare=False)  # the indexes of its folders
    below: str | None = None  # the task's folder, relative to the root; None for the root itself

    @property
    def root(self) -> Path:
        """The task's folder; raises NeedsPerson as `folder`."""
        return folder(self.of_worker, self.below)

    @property
    def library(self) -> Any:
        """The full-text index of the task's folder, a `Library` of extras/documents; raises NeedsPerson as `root`."""
        reader("The index of documents")
        return self.libraries.of(self.root)

    def read(self, name: str, page: int = 1, also: Sequence[str] = ()) -> DocumentText:
        """Read a document of the folder from the page number `page` on.

        If there is no document `name`, the rejection suggests similar names from the folder and from `also`.
        """
        found: DocumentText = reader("Reading documents").read_from(self.root, name, page, also)
        return found


INJECTABLE: Mapping[type, str] = {
    Key: "Key",
    Transaction: "Transaction",
    httpx2.AsyncClient: "httpx2.AsyncClient",
    Web: "Web",
    Services: "Services",
    Servers: "Servers",
    Documents: "Documents",
    Workspace: "Workspace",
    LanguageModel: "LanguageModel",
}
"""The types of parameters that the worker can fill, with their names in messages."""

ASYNC_ONLY = (Transaction, httpx2.AsyncClient, Web, Services, Servers, LanguageModel)
"""Types that only an `async def` can use: their methods need the event loop, and a plain `def` runs in a thread."""


def folder(root: Path | None, below: str | None) -> Path:
    """Find the folder `below` inside the worker's documents `root`; without `below`, return `root` itself.

    Raises:
        NeedsPerson: the worker has no documents (`root` is None), or there is no such folder inside them.
    """
    if root is None:
        raise NeedsPerson("This worker has no documents: start it with --documents DIR.")
    name = below or "."
    with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, has a zero byte, or is a loop of links
        # Resolved before the comparison: `..` and links must not lead out of `root`.
        chosen = (root / name).resolve()
        if chosen.is_relative_to(root.resolve()) and chosen.is_dir():
            return chosen
    raise NeedsPerson(f"There is no folder {name[:80]!r} below the worker's documents: choose one that exists there.")
