"""The specs of Replan's own activities, which the workflow schedules as it schedules the activities of tools.

Read when a worker registers its activities, and whenever a task schedules one of them.
"""

from workflows.plans.catalogue import Effect, ToolSpec

# The reply of a model may take minutes, and its provider may be overloaded for minutes.
PLAN = ToolSpec(kind="plan", effect=Effect.READ, timeout=300, retry="patient")
REPLAN = ToolSpec(kind="replan", effect=Effect.READ, timeout=300, retry="patient")
COMPACT = ToolSpec(kind="compact", effect=Effect.READ, timeout=300, retry="patient")
CATALOGUE = ToolSpec(kind="catalogue", effect=Effect.READ, timeout=30)
INSPECT = ToolSpec(kind="inspect", effect=Effect.READ, timeout=10)
PRUNE = INSPECT.model_copy(update={"timeout": 600.0})
"""The spec of the activity `inspect` when it answers the inquiry `prune`: with a longer timeout, because it asks the
server about many tasks and deletes their data."""
FIND_EFFECT = ToolSpec(kind="find_effect", effect=Effect.READ, timeout=10)
NOTIFY = ToolSpec(kind="notify_people", effect=Effect.READ, timeout=10)
FIND_WAITING = ToolSpec(kind="find_waiting", effect=Effect.READ, timeout=60, retry="patient")
LOOK_AT_CANARY = ToolSpec(kind="look_at_canary", effect=Effect.READ, timeout=20, retry="patient")
# One batch operation of the server at a time: another one may have to be waited for.
SIGNAL_WAITING = ToolSpec(kind="signal_waiting", effect=Effect.READ, timeout=3600, retry="patient")
PLANNING = (PLAN, REPLAN, COMPACT)
"""The activities that may ask a model as the planner."""
SPECS = (*PLANNING, CATALOGUE, INSPECT, FIND_EFFECT, NOTIFY, FIND_WAITING, LOOK_AT_CANARY, SIGNAL_WAITING)
"""No tool may have one of their kinds."""
KINDS = frozenset(spec.kind for spec in SPECS)


def inquiry_spec(about: str) -> ToolSpec:
    """The spec of the activity that answers a question of the console; `about` names it, as in `Inquiry.about`."""
    return PRUNE if about == "prune" else INSPECT
