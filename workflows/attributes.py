"""The search attributes that make a task findable in the web UI and in lists."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from workflows.progress import Progress

STATUS = SearchAttributeKey.for_keyword("ReplanStatus")
STRATEGY = SearchAttributeKey.for_keyword("ReplanStrategy")
PLANNER = SearchAttributeKey.for_keyword("ReplanPlanner")
TENANT = SearchAttributeKey.for_keyword("ReplanTenant")
REPLANS = SearchAttributeKey.for_int("ReplanReplans")
LAST_FAULT = SearchAttributeKey.for_keyword("ReplanLastFault")

TYPES: Mapping[str, str] = {
    STATUS.name: "Keyword",
    STRATEGY.name: "Keyword",
    PLANNER.name: "Keyword",
    TENANT.name: "Keyword",
    REPLANS.name: "Int",
    LAST_FAULT.name: "Keyword",
}
"""Name and type of each, for whoever registers them."""


Standing = tuple[object, ...]


def standing(progress: Progress) -> Standing:
    """All that the attributes say of a task."""
    last = progress.faults[-1].code if progress.faults else None
    return progress.status, progress.task.strategy, progress.planner, progress.replans, last


def publish(progress: Progress) -> None:
    """Set the attributes to how the task stands; nothing where the namespace does not have them."""
    if not progress.searchable:
        return
    updates: list[SearchAttributeUpdate[Any]] = [
        STATUS.value_set(progress.status),
        STRATEGY.value_set(progress.task.strategy),
        PLANNER.value_set(progress.planner),
        REPLANS.value_set(progress.replans),
    ]
    if progress.faults:
        updates.append(LAST_FAULT.value_set(progress.faults[-1].code))
    workflow.upsert_search_attributes(updates)
