"""Everything that a worker registers with Temporal, made from what it was given."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.converter import StorageDriver

from activities.boundary.boundary import Boundary
from activities.boundary.effects import Finding
from activities.boundary.failpoints import Breaks
from activities.inspection import Host, Inspecting
from activities.planning.activities import Planning
from activities.planning.planner import Conversing
from activities.planning.roster import Roster
from activities.planning.transcript import Transcript
from activities.providers.prices import dearest
from activities.storage.vault import Vault
from activities.toolbox.injection import Resources
from activities.toolbox.registry import Registry


def activities(
    registry: Registry,
    roster: Roster,
    resources: Resources,
    host: Host,
    vault: Vault,
    elsewhere: Sequence[StorageDriver] = (),
    *,
    ledgers: Iterable[AsyncEngine],
    store: str,
    breaks: Breaks | None,
    searchable: bool,
    namespace: str | None = None,
) -> list[Callable[..., Any]]:
    """One activity for each kind, the planner's, and those that look into the ledgers or answer the console."""
    known, transcript, planner = tuple(ledgers), Transcript(resources.engine, namespace), roster.planner
    more: dict[str, Any] = {"documents": resources.documents, "searchable": searchable, "breaks": breaks}
    more |= {"named": roster.named, "asked": roster.prices}
    planning = Planning(planner, registry, store=store, transcript=transcript, **more)
    told: dict[str, Any] = {"transcript": transcript, "left_out": registry.left_out}
    told |= {"converses": True, "price": dearest(planner.prices.values())} if isinstance(planner, Conversing) else {}
    return [
        *planning.activities(),
        *Finding(known, store).activities(),
        *Inspecting(registry, planner.name, host, vault, known, elsewhere, **told).activities(),
        *Boundary(resources, breaks, store=store, ledgers=known).activities(registry),
    ]
