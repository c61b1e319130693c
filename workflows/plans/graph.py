"""The graph of a plan: which steps can start, and the check of ids and dependencies.

Runs when a proposal is checked, and whenever a step of the plan in force may start.
"""

from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from workflows.plans.proposal import Mistake, Step
from workflows.plans.references import references
from workflows.text import few, nearest

MAX_NAMED = 10
"""The most steps that a mistake names."""


def ready_steps(pending: Iterable[Step], completed: Collection[str]) -> list[Step]:
    """The `pending` steps whose dependencies are all `completed`, in the given order."""
    done = set(completed)
    # Not by `dependencies`: a long plan is searched after each of its steps, and most steps name what they need.
    return [step for step in pending if done.issuperset(step.needs) and done.issuperset(references(step.args))]


def check_graph(steps: Sequence[Step], finished: Collection[str], taken: Collection[str]) -> list[Mistake]:
    """The mistakes in the ids and needs of a proposal; `taken` are the ids of all steps that ever started."""
    ids = [step.id for step in steps]
    mistakes = [
        Mistake(text=f"step id {id!r} is used twice: give each step an id of its own", step=id)
        for id in dict.fromkeys(ids)
        if ids.count(id) > 1
    ]
    mistakes += [
        Mistake(
            text=f"step id {id!r} belongs to an earlier step of this task: choose another, e.g. {id + '-2'!r}", step=id
        )
        for id in dict.fromkeys(ids)
        if id in taken
    ]
    known = {*ids, *finished}
    for step in steps:
        for need in sorted(step.dependencies - known):
            others = sorted(known - {step.id})
            named = nearest(need, others) or (f": there are {few(others, MAX_NAMED)}" if others else ": leave it out")
            gone = "failed, or whose result is not kept any more"
            what = gone if need in taken else f"does not exist{named}"
            mistakes.append(Mistake(text=f"step {step.id!r} needs {need!r}, which {what}", step=step.id))
    return mistakes or _cycle(steps)


def _cycle(steps: Sequence[Step]) -> list[Mistake]:
    try:
        TopologicalSorter({step.id: sorted(step.dependencies) for step in steps}).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        return [Mistake(text=f"steps need each other in a circle: {circle}: remove one of these needs")]
    return []
