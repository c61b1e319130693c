"""The parts of a worker: its planner and tools, the databases and clients that they need, and its activities."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from temporalio.converter import StorageDriver

from activities import deadline, tracing
from activities.borders.described import UnknownClass, describe
from activities.boundary.approved import Verifier
from activities.boundary.boundary import Boundary
from activities.boundary.breakers.rows import Breakers
from activities.boundary.effects import EffectFinder
from activities.boundary.failpoints import BadBreak, FaultInjection
from activities.boundary.step_spans import ContextOf, StepSpans
from activities.boundary.threads import Threads
from activities.boundary.tool_loop import ToolLoop
from activities.inspection import Host, Inspector
from activities.notification import BadReceiver, Notifier, Receiver, page_base, receiver_of
from activities.planning.activities import Planning
from activities.planning.model_planner import why_not_strict
from activities.planning.planner import ConversationalPlanner
from activities.planning.published import Catalogues
from activities.planning.selection import PlannerSelection
from activities.planning.transcript import Transcript
from activities.providers.adapter import AdapterOptions
from activities.providers.prices import PriceList, highest_price
from activities.providers.registry import PROVIDERS, UnknownPlanner
from activities.resolving import RESOLVING
from activities.storage.store import Cipher, Datasources, StoreUnavailable, open_store, sqlite_url, store_id
from activities.storage.vault import Vault
from activities.toolbox import builtin
from activities.toolbox.declare.tool import Tool
from activities.toolbox.foreign import SUFFIX, ForeignTools, load_foreign
from activities.toolbox.http.network import BadReach, Reach, Web
from activities.toolbox.http.services import Services
from activities.toolbox.registry import Registry, ToolMistakes, load_all
from activities.toolbox.resources import Resources
from workflows.plans.catalogue import Price

if TYPE_CHECKING:  # at run time only where a trace is recorded
    from opentelemetry.trace import Tracer

log = structlog.get_logger("replan.worker")
BAD_OPTIONS = (*(BadBreak, BadReach, BadReceiver, StoreUnavailable, ToolMistakes, UnknownClass, UnknownPlanner),)
"""The exceptions that are raised here for an option that cannot be used; each message says what to do."""

PEOPLE = "give it the file of `replan people` with --people, docs/approvers.md"


# A protocol, since `activities` never imports `runtime`.
class WorkerOptions(Protocol):
    """The fields of `runtime.settings.Settings` that are read here."""

    @property
    def queue(self) -> str: ...
    @property
    def planner(self) -> str | None: ...
    @property
    def tools(self) -> Sequence[str]: ...
    @property
    def check(self) -> bool: ...
    @property
    def write_tools(self) -> Path | None: ...
    @property
    def classify(self) -> str | None: ...
    @property
    def breaks(self) -> Sequence[str]: ...
    @property
    def state(self) -> Path: ...
    @property
    def store(self) -> str | None: ...
    @property
    def documents_root(self) -> Path | None: ...
    @property
    def workspace_root(self) -> Path | None: ...
    @property
    def allow_hosts(self) -> Sequence[str]: ...
    @property
    def allow_requests(self) -> Sequence[str]: ...
    @property
    def http_headers(self) -> Sequence[str]: ...
    @property
    def people(self) -> Path | None: ...
    @property
    def notify(self) -> str | None: ...
    @property
    def page(self) -> str | None: ...
    @property
    def slots(self) -> int: ...
    @property
    def log_values(self) -> bool: ...


class ModelOptions(Protocol):
    """The fields of `runtime.settings_file.Models` that are read here."""

    @property
    def known_prices(self) -> Mapping[str, Price]: ...
    @property
    def windows(self) -> Mapping[str, int]: ...
    @property
    def compact_at(self) -> float: ...
    @property
    def idle_timeout(self) -> float: ...
    @property
    def wires(self) -> Mapping[str, str]: ...
    @property
    def reasoning_effort(self) -> Mapping[str, str]: ...
    @property
    def strict(self) -> Mapping[str, bool]: ...
    @property
    def calls(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Abilities:
    """What the options give to a worker: planner, tools, and faults to inject. Nothing is opened yet."""

    selection: PlannerSelection
    registry: Registry
    faults: FaultInjection
    environment: Mapping[str, str]
    receiver: Receiver | None = None
    """The receiver of notifications about requests to people; None if there is none."""
    page_base: str | None = None
    """The base URL of the page on which people answer; None if it is not known."""
    foreign: ForeignTools = field(default_factory=ForeignTools)
    """The MCP servers of the tools files."""

    @classmethod
    def of(
        cls,
        options: WorkerOptions,
        environment: Mapping[str, str],
        models: ModelOptions,
        demo: Iterable[Tool[..., Any]] = (),
        own: Iterable[Tool[..., Any]] = (),
    ) -> "Abilities":
        """Find the planner, and load the tools: the built-in ones, the user's, and the `demo` tools.

        `own` are tools of the user beside those that the options name. Raises one of BAD_OPTIONS for a wrong option.
        """
        prices = PriceList(models.known_prices, models.windows, models.compact_at)
        adapters = AdapterOptions(
            models.wires, models.reasoning_effort, models.idle_timeout, models.strict, calls=models.calls
        )
        selection = PlannerSelection(options.planner, environment, prices, adapters)
        has_model = selection.step_model is not None
        offered = builtin.tools(has_model=has_model)
        files = [name for name in options.tools if name.endswith(SUFFIX)]
        loaded = {**dict.fromkeys(own, ""), **load_all(name for name in options.tools if name not in files)}
        foreign = load_foreign(files, environment, [*offered, *loaded], Reach.of(options.allow_hosts))
        registry = Registry({**loaded, **foreign.tools}, builtin=offered, demo=demo, has_model=has_model)
        if unknown := [name for name, kind in registry.items() if kind.spec.approvers and options.people is None]:
            raise ToolMistakes(
                [f"{name}: approve= says who must approve, and this worker knows nobody: {PEOPLE}." for name in unknown]
            )
        faults = FaultInjection(options.breaks, {name: kind.spec for name, kind in registry.items()})
        receiver, base = receiver_of(options.notify, environment), page_base(options.page)
        return cls(selection, registry, faults, environment, receiver, base, foreign)

    def answer(self, options: WorkerOptions) -> str | None:
        """What the worker prints instead of serving tasks: for `--classify` and `--check`; None without them.

        Raises UnknownClass for no such class, and ToolMistakes if the file of `--write-tools` cannot be written.
        """
        if options.classify is not None:
            return describe(options.classify, {name: kind.raises for name, kind in self.registry.items()})
        if not options.check:
            return None
        lines = [f"Requests to people are told to {self.receiver.name}."] if self.receiver else []
        lines.append(self.registry.catalogue(self._notes()))
        lines += [f"Not offered: {kind}: {reason}." for kind, reason in self.foreign.left_out.items()]
        if options.write_tools is not None:
            lines.append(self.foreign.write(options.write_tools))
        else:
            lines += self.foreign.unread_lines(options.tools)
        return "\n".join(lines)

    def _notes(self) -> dict[str, str]:
        """For some kinds one more line of `--check`."""
        notes = {kind: [note] for kind, note in why_not_strict(self.registry).items()}
        for kind, line in self.foreign.notes():
            notes.setdefault(kind, []).append(line)
        return {kind: "; ".join(lines) for kind, lines in notes.items()}


@dataclass(frozen=True)
class WorkerParts:
    """A worker's abilities, with the databases, clients and storage drivers that are open for them."""

    abilities: Abilities
    databases: Datasources
    """The store and the tools' databases, connected for the worker's own event loop; tools have other connections."""
    resources: Resources
    boundary: Boundary
    host: Host
    vault: Vault
    buckets: Sequence[StorageDriver]
    """Storage drivers of buckets: if there are any, they store large payloads, and not the vault (a table)."""
    store_id: str
    namespace: str
    """The id of the Temporal namespace, not its name."""
    is_searchable: bool
    """Whether the namespace has Replan's search attributes."""
    catalogues: Catalogues
    """What the workers of the queue have."""

    @property
    def storage(self) -> list[StorageDriver]:
        """The drivers for large payloads; the first driver stores new payloads, the others only read."""
        return [*self.buckets, self.vault]

    def step_spans(self, tracer: "Tracer", context_of: ContextOf, captures_content: bool) -> StepSpans:
        """Make the interceptor that records attempts, and start to record the SQL statements of the tools' databases.

        With `captures_content`, spans have arguments, results and prompts.
        """
        datasources = [kind.datasource for kind in self.abilities.registry.values()]
        for engine in {self.resources.engine, *filter(None, datasources)}:
            tracing.watch(engine)
        return StepSpans(tracer, context_of, captures_content)

    def activities(self) -> list[Callable[..., Any]]:
        """All activities: Replan's own, one for each kind, and one for all unknown kinds."""
        selection, registry, faults = self.abilities.selection, self.abilities.registry, self.abilities.faults
        transcript = Transcript(self.databases.store, self.namespace)
        planning = Planning(
            selection.planner,
            registry,
            searchable=self.is_searchable,
            documents=self.resources.documents,
            store=self.store_id,
            transcript=transcript,
            planner_for_task=selection.for_task,
            breaks=faults,
            step_prices=selection.prices,
            notifies=self.abilities.receiver is not None,
            page=self.abilities.page_base,
            catalogues=self.catalogues,
        )
        conversing = selection.planner if isinstance(selection.planner, ConversationalPlanner) else None
        inspector = Inspector(
            registry,
            selection.planner.name,
            self.host,
            self.vault,
            self.databases,
            self.buckets,
            transcript=transcript,
            store=self.store_id,
            left_out=registry.left_out,
            unusable=self.abilities.foreign.left_out,
            own=registry.own,
            described=lambda: selection.described,
            converses=conversing is not None,
            price=highest_price(conversing.prices.values()) if conversing else None,
            price_date=selection.price_date,
        )
        receiver = self.abilities.receiver
        return [
            *planning.activities(),
            EffectFinder(self.databases, self.store_id).find_effect,
            inspector.inspect,
            *RESOLVING,
            *([Notifier(receiver, self.abilities.page_base).notify_people] if receiver else []),
            *self.boundary.activities(registry, self.catalogues.is_elsewhere),
        ]


@asynccontextmanager
async def _opened(options: WorkerOptions, registry: Registry, cipher: Cipher | None) -> AsyncIterator[Datasources]:
    async with AsyncExitStack() as stack:
        store = await open_store(options.store or sqlite_url(options.state), cipher)
        stack.push_async_callback(store.dispose)
        databases = Datasources(store, [kind.datasource for kind in registry.values()])
        await databases.open(stack)
        yield databases


@asynccontextmanager
async def open_parts(
    abilities: Abilities,
    options: WorkerOptions,
    namespace: str,
    is_searchable: bool,
    buckets: Sequence[StorageDriver],
    version: str,
    on_unusable: Callable[[str], None],
    cipher: Cipher | None = None,
    people: Verifier | None = None,
) -> AsyncIterator[WorkerParts]:
    """Open the databases and the HTTP client of a worker; they are closed when the block ends.

    `namespace` is the id of the Temporal namespace; `is_searchable`: the namespace has Replan's search attributes.
    `buckets` store large payloads instead of the vault. `version` is the version of Replan.
    `on_unusable` is called with a sentence when this process cannot call tools any more. `cipher` encrypts what is
    written into the databases. `people` verifies who has approved a call.

    Raises:
        StoreUnavailable: a database cannot be opened.
        BadReach: an option that allows hosts or sets headers cannot be used.
    """
    if options.log_values:
        log.warning("values_logged", remedy="leave out --log-values in production")
    async with AsyncExitStack() as stack:
        # A connection belongs to the event loop that opened it: tools have theirs on a loop of their own.
        loop = await stack.enter_async_context(ToolLoop(on_unusable))
        of_tools = await stack.enter_async_context(loop.entered(_opened(options, abilities.registry, cipher)))
        databases = await stack.enter_async_context(of_tools.twins())
        web = Web(Reach.of(options.allow_hosts))
        servers = abilities.foreign.servers(of_tools.store, web)
        resources = Resources(
            of_tools.store,
            await stack.enter_async_context(loop.entered(deadline.client())),
            options.documents_root,
            workspace=options.workspace_root,
            allow_hosts=options.allow_hosts,
            services=Services.of(options.allow_requests, options.http_headers, abilities.environment, web),
            servers=await stack.enter_async_context(loop.entered(servers.opened())),
            model=abilities.selection.step_model,
        )
        folders = {"state": options.state, "documents": options.documents_root, "workspace": options.workspace_root}
        keys = {
            provider.key: bool(abilities.environment.get(provider.key, "").strip()) for provider in PROVIDERS.values()
        }
        boundary = Boundary(
            resources,
            abilities.faults,
            store=(id := await store_id(databases.store)),
            ledgers=of_tools,
            loop=loop,
            threads=Threads(options.slots, on_unusable),
            breakers=Breakers(databases.store),
            people=people,
        )
        yield WorkerParts(
            abilities,
            databases,
            resources,
            boundary,
            host=Host(
                databases.store,
                folders,
                keys,
                version,
                databases,
                lambda: boundary.capacity(options.slots),
                abilities.receiver.name if abilities.receiver else "",
                boundary.breakers,
                people,
            ),
            vault=Vault(databases.store, namespace),
            buckets=buckets,
            store_id=id,
            namespace=namespace,
            is_searchable=is_searchable,
            catalogues=Catalogues(databases.store, namespace, options.queue, abilities.registry),
        )
