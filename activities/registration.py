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
from activities.llm.conversing import Conversing
from activities.llm.prices import dearest
from activities.llm.roster import Roster
from activities.planning import Planning
from activities.toolbox.injection import Resources
from activities.toolbox.registry import Registry
from activities.transcript import Transcript
from activities.vault import Vault


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
