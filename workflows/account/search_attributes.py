"""The search attributes of a task, by which the web UI and `list` find it.

Runs when a worker takes a task up, when a plan is accepted, when a request to a person opens or closes, and at the end.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from workflows.account.progress import Progress

STATUS = SearchAttributeKey.for_keyword("ReplanStatus")
STRATEGY = SearchAttributeKey.for_keyword("ReplanStrategy")
PLANNER = SearchAttributeKey.for_keyword("ReplanPlanner")
TENANT = SearchAttributeKey.for_keyword("ReplanTenant")
REPLANS = SearchAttributeKey.for_int("ReplanReplans")
LAST_FAULT = SearchAttributeKey.for_keyword("ReplanLastFault")
INCIDENTS = SearchAttributeKey.for_keyword_list("ReplanIncidents")

TYPES: Mapping[str, str] = {
    **dict.fromkeys((key.name for key in (STATUS, STRATEGY, PLANNER, TENANT, LAST_FAULT)), "Keyword"),
    REPLANS.name: "Int",
    INCIDENTS.name: "KeywordList",
}
"""The name and type of each search attribute, as it is registered in a namespace."""


_UNQUOTABLE = frozenset("'\"\\")
"""Characters that the server does not find in a query, or takes for the end of a text, even if they are escaped."""


def is_quotable(text: str) -> bool:
    """Whether a text can stand between quotes in a list filter."""
    return text.isprintable() and not set(text) & _UNQUOTABLE


Values = tuple[tuple[SearchAttributeKey[Any], Any], ...]


def values(progress: Progress) -> Values:
    """The search attributes of a task, each with its value; an empty tuple as a value stands for no value."""
    last = ((LAST_FAULT, progress.faults[-1].code),) if progress.faults else ()
    had_incident = any(request.cause for request in progress.requests)
    causes = tuple(dict.fromkeys(request.cause for request in progress.open_requests if request.cause))
    return (
        (STATUS, progress.status),
        (STRATEGY, progress.task.strategy),
        (PLANNER, progress.planner),
        (REPLANS, progress.replans),
        *last,
        *(((INCIDENTS, causes),) if had_incident else ()),
    )


def publish(progress: Progress) -> None:
    """Update the search attributes of the task, if the namespace has them."""
    # To set an attribute that is not registered would fail the workflow task.
    if not progress.searchable:
        return
    updates: list[SearchAttributeUpdate[Any]] = [
        key.value_unset() if value == () else key.value_set(value) for key, value in values(progress)
    ]
    workflow.upsert_search_attributes(updates)
