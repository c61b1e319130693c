"""Everything that a worker registers with Temporal, made from what it was given."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.converter import StorageDriver

from activities.boundary import Boundary
from activities.breaking import Breaks
from activities.finding import Finding
from activities.host import Host
from activities.inspecting import Inspecting
from activities.planning import Planner, Planning
from activities.toolbox.injection import Resources
from activities.toolbox.registry import Registry
from activities.vault import Vault


def activities(
    registry: Registry,
    planner: Planner,
    resources: Resources,
    host: Host,
    vault: Vault,
    elsewhere: Sequence[StorageDriver] = (),
    *,
    ledgers: Iterable[AsyncEngine],
    store: str,
    breaks: Breaks | None,
    searchable: bool,
) -> list[Callable[..., Any]]:
    """One activity for each kind, the planner's, and those that look into the ledgers or answer the console."""
    known = tuple(ledgers)
    planning = Planning(planner, registry, searchable=searchable, documents=resources.documents, store=store)
    return [
        *planning.activities(),
        *Finding(known, store).activities(),
        *Inspecting(registry, planner.name, host, vault, known, elsewhere).activities(),
        *Boundary(resources, breaks, store=store, ledgers=known).activities(registry),
    ]
