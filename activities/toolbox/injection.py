"""What a tool gets besides its arguments, by the type of the parameter."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from sqlalchemy.ext.asyncio import AsyncConnection as Transaction
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity

from activities.errors import NeedsPerson
from activities.providers.messages import LanguageModel
from activities.storage.store import begun, reading, writing
from activities.toolbox.documents.excerpt import DocumentText, read_from
from activities.toolbox.documents.library import Libraries, Library
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.http.services import Services
from activities.toolbox.workspace import Workspace, folder_of
from workflows.catalogue import Effect, Price
from workflows.header import CallHeader

if TYPE_CHECKING:
    from activities.toolbox.declare.kind import Kind  # which asks here what can be given

__all__ = [
    "INJECTABLE",
    "Documents",
    "Key",
    "LanguageModel",
    "Resources",
    "Services",
    "Transaction",
    "Web",
    "Workspace",
]


class Key(str):
    """The idempotency key of the call, to be sent downstream: the same over retry, crash, replay and reset."""

    __slots__ = ()


@dataclass(frozen=True)
class Documents:
    """The task's folder of documents, below the worker's root."""

    of_worker: Path | None
    """The worker's root; None for a worker without documents."""
    libraries: Libraries = field(default_factory=Libraries, repr=False, compare=False)
    below: str | None = None
    """The folder that the task chose below it."""

    @property
    def root(self) -> Path:
        """The folder itself.

        Raises:
            NeedsPerson: the worker has no root, the folder is not below it, or does not exist.
        """
        return folder(self.of_worker, self.below)

    @property
    def library(self) -> Library:
        """The index of the folder, shared by all calls of the worker."""
        return self.libraries.of(self.root)

    def read(self, name: str, page: int = 1, also: Sequence[str] = ()) -> DocumentText:
        """Read a document of the folder from a page on; a rejection may suggest the names in `also`, too.

        Raises:
            Refused: there is none of this name, or it cannot be read.
            NeedsPerson: there is no folder.
        """
        return read_from(self.root, name, page, also)


INJECTABLE: Mapping[type, str] = {
    Key: "Key",
    Transaction: "Transaction",
    httpx2.AsyncClient: "httpx2.AsyncClient",
    Web: "Web",
    Services: "Services",
    Documents: "Documents",
    Workspace: "Workspace",
    LanguageModel: "LanguageModel",
}
"""The types that a parameter may have, with the name that messages use."""

ASYNC_ONLY = (Transaction, httpx2.AsyncClient, Web, Services, LanguageModel)
"""The types that a plain `def`, which runs in a thread, cannot use."""


class Resources:
    """What this worker has to give; opened by `worker.py`, closed with it."""

    def __init__(
        self,
        engine: AsyncEngine,
        http: httpx2.AsyncClient,
        documents: Path | None,
        *,
        workspace: Path | None = None,
        allow_hosts: Iterable[str] = (),
        services: Services | None = None,
        model: LanguageModel | None = None,
        price: Price | None = None,
    ) -> None:
        """Share one engine and one HTTP client among all calls; `documents` is the root that `--documents` named.

        `workspace` is the root below which each task gets a folder to write in, named by `--workspace`.
        `allow_hosts` are the names, addresses and networks that `Web` may reach although they are not public;
        `services` are those that may be sent to, by default none. `model` is for tools that ask one, and
        `price` what its tokens cost.

        Raises:
            ValueError: one of them is none of these.
        """
        self.engine = engine
        self._http = http
        self.documents = documents
        self._libraries = Libraries()
        self._workspace = workspace
        self._web = Web(Reach.of(allow_hosts))
        self._services = services or Services(self._web)
        self.model = model
        self.price = price

    @asynccontextmanager
    async def given(self, kind: "Kind", call: CallHeader, model: LanguageModel | None) -> AsyncIterator[dict[str, Any]]:
        """Provide the parameters of one call, which may ask `model`.

        A transaction, which is one of the kind's datasource or else of the store, commits when the block ends without
        an exception.
        """
        async with AsyncExitStack() as stack:
            yield {name: await self._give(type, kind, call, model, stack) for name, type in kind.injected.items()}

    async def _give(
        self, wanted: type, kind: "Kind", call: CallHeader, model: LanguageModel | None, stack: AsyncExitStack
    ) -> Any:
        if wanted is Transaction:
            engine = _meant_for(kind, kind.datasource or self.engine)
            return await stack.enter_async_context(begun(engine))
        if wanted is Key:
            return Key(call.key)
        if wanted is Documents:
            return Documents(self.documents, self._libraries, call.documents)
        if wanted is Workspace:
            info = activity.info()
            return self._workspace_of(info.workflow_id or info.activity_id)
        if wanted is Web:
            return self._web
        if wanted is Services:
            return self._services
        if wanted is LanguageModel:
            return _there(model)
        return self._http

    def _workspace_of(self, task: str) -> Workspace:
        if self._workspace is None:
            raise NeedsPerson("This worker has no workspace: start it with --workspace DIR.")
        return Workspace(self._workspace / folder_of(task))


def _there(model: LanguageModel | None) -> LanguageModel:
    if model is None:
        raise NeedsPerson("This worker has no model: set a key in its environment, or name one with --planner.")
    return model


def _meant_for(kind: "Kind", engine: AsyncEngine) -> AsyncEngine:
    """The same engine for transactions that may do no more than the effect of their tool."""
    match kind.spec.effect:
        case Effect.READ:
            return reading(engine)
        case Effect.UNKEYED if kind.datasource is None:  # the row of its claim would wait there for the tool
            return reading(engine)
        case Effect.TRANSACTIONAL:
            return writing(engine)
        case _:
            return engine


def folder(root: Path | None, below: str | None) -> Path:
    """Find the folder `below` the worker's root of documents.

    Raises:
        NeedsPerson: the worker has no root, the folder is not below it, or does not exist.
    """
    if root is None:
        raise NeedsPerson("This worker has no documents: start it with --documents DIR.")
    name = below or "."
    with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, has a zero byte, or is a loop of links
        chosen = (root / name).resolve()
        if chosen.is_relative_to(root.resolve()) and chosen.is_dir():
            return chosen
    raise NeedsPerson(f"There is no folder {name[:80]!r} below the worker's documents: choose one that exists there.")
