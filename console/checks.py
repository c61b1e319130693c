"""How an installation stands: one check for each thing that can be wrong with it. Pure functions of what was found."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from console.shown import starter
from console.workflow_task import FailingTask
from workflows.catalogue import Effect, ToolSpec
from workflows.inspect import Findings, Place, WorkerCard

MAX_NAMED = 5
CLOCK_SECONDS = 5.0
"""A larger difference between two clocks is worth a word; a slow answer is none."""
KEY_OF = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""The key that a planner needs, by the beginning of its name."""
OPTION_OF = {
    "store": "check --store, REPLAN_STORE and --state of the worker",
    "state": "check --state of the worker",
    "documents": "check --documents of the worker",
    "workspace": "check --workspace of the worker",
}
"""What to do about a place that cannot be used."""
WITHOUT = {
    "documents": "no tool can search or read documents: --documents of the worker names their folder",
    "workspace": "no tool can write files: --workspace of the worker names a folder for them",
}
"""What it means that a worker has no such place, and what gives it one."""
LACKING = {
    "observe": "observe= names the read that looks again when it is refused",
    "undo": "undo= names the tool that takes it back",
    "reconcile": "reconcile= names the read that finds out whether it happened",
}
"""What an option of a tool that changes the world is for."""
OF_WORKER = ("planner", "keys", "store", "state", "documents", "workspace", "clocks", "tools")
"""What only a worker can say."""


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """It works, but not all of it, or not as well as it could."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """It could not be looked at, because of a check before it."""


@dataclass(frozen=True)
class Check:
    """One thing, how it stands, and what to do about it."""

    name: str
    status: Status
    found: str
    remedy: str = ""


def skipped(names: Sequence[str], because: str) -> list[Check]:
    """What could not be looked at."""
    return [Check(name, Status.SKIPPED, because) for name in names]


def of_attributes(wanted: Mapping[str, str], present: Mapping[str, str]) -> Check:
    """Whether the namespace knows the search attributes `wanted`, name to type."""
    other = [
        f"{name} is {present[name]}, not {type}" for name, type in wanted.items() if present.get(name, type) != type
    ]
    missing = [name for name in wanted if name not in present]
    if other:
        remedy = "use a namespace of its own for Replan: a type cannot be changed"
        return Check("search attributes", Status.WARN, f"unusable: {', '.join(other)}", remedy)
    if missing:
        options = " ".join(f"--name {name} --type {wanted[name]}" for name in missing)
        remedy = f"start a worker that may register them, or `temporal operator search-attribute create {options}`"
        return Check("search attributes", Status.WARN, f"missing: {', '.join(missing)}", remedy)
    return Check("search attributes", Status.OK, f"all {len(wanted)} are registered")


def of_workflow_tasks(failing: Sequence[FailingTask], looked_at: int, running: int) -> Check:
    """Whether the tasks that run can go on, of which only the newest were looked at where there are many."""
    of = f"{looked_at} of {running} running tasks looked at" if looked_at < running else f"{looked_at} running"
    if not failing:
        return Check("workflow tasks", Status.OK, f"none fails ({of})")
    named = [f"{one.workflow_id} ({one.cause.replace('_', ' ')})" for one in failing[:MAX_NAMED]]
    more = f" and {len(failing) - MAX_NAMED} more" if len(failing) > MAX_NAMED else ""
    shows = f"`{starter('show', failing[0].task_id)}` has the ways out"
    found = f"{len(failing)} cannot go on, since their workflow task fails: {', '.join(named)}{more} ({of})"
    return Check("workflow tasks", Status.FAIL, found, f"{failing[0].cure}; {shows}")


def of_worker(found: Findings, version: str, *, restart: str, asked: datetime, answered: datetime) -> list[Check]:
    """What a worker said of itself.

    `version` is the console's, `restart` the command that starts a worker; the worker was asked and answered at these
    times of our clock.
    """
    card, old = found.worker, "the worker is too old to say"
    if card is None:
        seen = Check("worker", Status.WARN, "answers, but is older than this console", f"restart it: `{restart}`")
        return [seen, _planner(found), *skipped(OF_WORKER[1:-1], old), *of_tools(found)]
    return [
        _version(card, version, restart),
        _planner(found),
        _keys(found.planner, card.keys),
        *(_place(place) for place in card.places),
        _clocks(card, asked, answered),
        *of_tools(found),
    ]


def of_tools(found: Findings) -> list[Check]:
    """How many tools there are, and each that changes the world without all that belongs to it."""
    specs = [card.spec for card in found.tools]
    changing = sum(spec.effect is not Effect.READ for spec in specs)
    untrusted = sum(spec.untrusted for spec in specs)
    if not specs:
        return [Check("tools", Status.FAIL, "the worker has none", "give it some with --tools FILE")]
    lacking = list(_lacking_tools(specs))
    returns = "returns" if untrusted == 1 else "return"
    told = f", {untrusted} {returns} text that anybody may have written" if untrusted else ""
    return [Check("tools", Status.OK, f"{len(specs)}, of which {changing} change the world{told}"), *lacking]


def lacks(spec: ToolSpec, undoing: Collection[str]) -> list[str]:
    """The options that `spec` should have and has not; a kind that undoes another needs no `undo` itself."""
    if spec.effect is Effect.READ:
        return []
    needed = ["observe"] if spec.kind in undoing else ["observe", "undo"]
    needed += ["reconcile"] if spec.effect in (Effect.KEYED, Effect.UNKEYED) else []
    return [name for name in needed if getattr(spec, name) is None]


def _lacking_tools(specs: Sequence[ToolSpec]) -> Iterator[Check]:
    undoing = {spec.undo.kind for spec in specs if spec.undo}
    for spec in specs:
        missing = lacks(spec, undoing)
        if missing:
            remedy = "; ".join(LACKING[name] for name in missing)
            yield Check(f"tool {spec.kind}", Status.WARN, f"{spec.effect}, without {' and '.join(missing)}", remedy)


def _version(card: WorkerCard, version: str, restart: str) -> Check:
    found = f"Replan {card.version}, Python {card.python}, Temporal SDK {card.sdk}"
    if card.version == version:
        return Check("worker", Status.OK, found)
    return Check(
        "worker", Status.WARN, f"{found}; this console is {version}", f"bring both to one version: `{restart}`"
    )


def _planner(found: Findings) -> Check:
    """Who plans and, of a model, what its tokens cost; a server of one's own has no price that anybody could know."""
    if not found.converses:
        return Check("planner", Status.OK, found.planner)
    if found.price is not None:
        price = f"{found.price.input:g} USD for a million tokens of input, {found.price.output:g} of output"
        return Check("planner", Status.OK, f"{found.planner}; {price}")
    whose = "the price of at least one" if "," in found.planner else "its price"
    told, is_own = f"{found.planner}; {whose} is not known, so --usd is refused", "@" in found.planner
    remedy = "[models.prices] of the worker's settings file gives it"
    return Check("planner", Status.OK if is_own else Status.WARN, told, "" if is_own else remedy)


def _needed(planner: str) -> str | None:
    """The key that the first of several planners needs; one's own server in OpenAI's place, at a host, wants none."""
    first = planner.partition(",")[0]
    if first.startswith("openai") and "@" in first:
        return None
    return next((key for begins, key in KEY_OF.items() if first.startswith(begins)), None)


def _keys(planner: str, keys: Mapping[str, bool]) -> Check:
    found = ", ".join(f"{name} {'set' if is_set else 'not set'}" for name, is_set in keys.items()) or "none is known"
    needed = _needed(planner)
    if needed is None:
        return Check("keys", Status.OK, f"{found}; the {planner.partition(',')[0]} planner needs none")
    if keys.get(needed):
        return Check("keys", Status.OK, found)
    remedy = f"set {needed} in the environment of the worker and restart it"
    return Check("keys", Status.FAIL, f"{found}; the {planner} planner needs {needed}", remedy)


def _place(place: Place) -> Check:
    if place.where is None:
        found, _, remedy = WITHOUT.get(place.name, "not configured").partition(": ")
        return Check(place.name, Status.WARN, f"none, so {found}" if remedy else found, remedy)
    if place.problem:
        remedy = OPTION_OF.get(place.name, "check the options of the worker")
        return Check(place.name, Status.FAIL, f"{place.where}: {place.problem}", remedy)
    return Check(place.name, Status.OK, place.where)


def _clocks(card: WorkerCard, asked: datetime, answered: datetime) -> Check:
    worker = (card.clock - card.server_clock).total_seconds()
    ours = _outside(card.server_clock, asked, answered)
    wrong = {"the worker's": worker, "this machine's": ours}
    told = [f"{whose} is {seconds:+.0f} s off" for whose, seconds in wrong.items() if abs(seconds) > CLOCK_SECONDS]
    if not told:
        return Check("clocks", Status.OK, "worker, server and this machine agree")
    found = f"measured by the server's, {' and '.join(told)}"
    return Check("clocks", Status.WARN, found, "set them, e.g. with NTP: deadlines and times go by the server's")


def _outside(moment: datetime, first: datetime, last: datetime) -> float:
    """Seconds by which our clock is ahead of the other, whose `moment` lay between our `first` and `last`."""
    if moment < first:
        return (first - moment).total_seconds()
    return min(0.0, (last - moment).total_seconds())
