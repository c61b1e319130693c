"""Everything that a worker registers with Temporal, made from what it was given."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio.converter import StorageDriver

from activities.boundary import Boundary
from activities.breaking import Breaks
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
    breaks: Breaks | None,
    searchable: bool,
) -> list[Callable[..., Any]]:
    """One activity for each kind, the planner's, and the one that answers the console."""
    return [
        *Planning(planner, registry, searchable=searchable, documents=resources.documents).activities(),
        *Inspecting(registry, planner.name, host, vault, resources.engine, elsewhere).activities(),
        *Boundary(resources, breaks).activities(registry),
    ]
