"""Makes the values of a tool's injected parameters (transaction, key, HTTP client, ...) for one call."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity

from activities.errors import NeedsPerson
from activities.providers.messages import LanguageModel
from activities.providers.metering import StepModel
from activities.storage.store import reading, transaction, writing
from activities.toolbox.declare.kind import Kind
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.http.services import Services
from activities.toolbox.injection import Documents, Key, Transaction
from activities.toolbox.servers import Servers
from activities.toolbox.texts import new_libraries
from activities.toolbox.workspace import Workspace, folder_of
from workflows.calls.header import CallHeader
from workflows.plans.catalogue import Effect


class Resources:
    """The engine, HTTP clients, folders and model that a worker gives to its tools.

    `open_parts` in `activities/registration.py` opens and closes these objects.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        http: httpx2.AsyncClient,
        documents: Path | None,
        *,
        workspace: Path | None = None,
        allow_hosts: Iterable[str] = (),
        services: Services | None = None,
        servers: Servers | None = None,
        model: LanguageModel | None = None,
    ) -> None:
        """Share one `engine` and one `http` client among all calls.

        `documents` and `workspace` are the root folders of the tasks' documents and written files; None if the worker
        has none. `allow_hosts` are names, addresses and networks that `Web` may reach although they are not public.
        `services` are the hosts that tools may send requests to, `servers` the MCP servers; by default there are none.

        Raises:
            BadReach: an entry of `allow_hosts` cannot be used.
        """
        web = Web(Reach.of(allow_hosts))
        self.engine = engine
        self.documents = documents
        self._libraries = new_libraries()
        self._workspace = workspace
        self._shared: Mapping[type, Any] = {
            httpx2.AsyncClient: http,
            Web: web,
            Services: services or Services(web),
            Servers: servers or Servers(),
        }
        self.model = model

    @asynccontextmanager
    async def values_for(self, kind: Kind, call: CallHeader) -> AsyncIterator[dict[str, Any]]:
        """Yield the values of the kind's injected parameters, by name; a transaction commits unless the block raises.

        Raises:
            NeedsPerson: a parameter needs a workspace or a model, and this worker has none.
        """
        async with AsyncExitStack() as stack:
            yield {name: await self._value_for(type, kind, call, stack) for name, type in kind.injected.items()}

    async def _value_for(self, parameter: type, kind: Kind, call: CallHeader, stack: AsyncExitStack) -> Any:
        if parameter is Transaction:
            return await stack.enter_async_context(transaction(_limited(kind, kind.datasource or self.engine)))
        if parameter is Key:
            return Key(call.key)
        if parameter is Documents:
            return Documents(self.documents, self._libraries, call.documents)
        if parameter is Workspace:
            if self._workspace is None:
                raise NeedsPerson("This worker has no workspace: start it with --workspace DIR.")
            info = activity.info()
            return Workspace(self._workspace / folder_of(info.workflow_id or info.activity_id))
        if parameter is LanguageModel:
            if self.model is None:
                reason = "This worker has no model: set a key in its environment, or name one with --planner."
                raise NeedsPerson(reason)
            return StepModel(self.model, call.calls)
        return self._shared[parameter]


def _limited(kind: Kind, engine: AsyncEngine) -> AsyncEngine:
    """The engine for the kind's effect: with transactions that only read, that lock when they begin, or as it is."""
    match kind.spec.effect:
        case Effect.READ:
            return reading(engine)
        case Effect.UNKEYED if kind.datasource is None:  # a write would wait for the lock of this call's own ledger row
            return reading(engine)
        case Effect.TRANSACTIONAL:
            return writing(engine)
        case _:
            return engine
