"""Tasks with more than one life: taken back by Temporal's own reset or by `starter.py reset`, where the planner gives
the same effect another id, and new ones under the id of a closed one."""

import json
import signal
from collections.abc import Callable, Collection

from client.problem import Exit
from evals.chaos.cell import Cell, Expected
from evals.chaos.effects import read
from evals.chaos.races import Race
from evals.chaos.resets import Point, reset
from evals.chaos.stage import Stage
from workflows.agent import AgentWorkflow
from workflows.plan import Answer, NewSteps
from workflows.task import Task

KINDS = {
    "set_limit": "idempotent",
    "pay": "keyed",
    "pay_strictly": "keyed, second call refused",
    "transfer": "transactional",
    "pay_once": "unkeyed, with reconcile",
    "pay_blindly": "unkeyed, without",
}
ANEW = {"transfer": "move_back", "pay": "refund"}
"""The kinds that a planner plans anew under another id, and what undoes them."""
COUNT = len(KINDS) * (len(Point) + 1) + 2 * len(ANEW)
"""How many cells there are."""


async def lives(stage: Stage, seed: int, changed: Callable[[], None], kinds: Collection[str] = KINDS) -> list[Cell]:
    """All of them for these kinds, `changed` called after each."""
    cells = list[Cell]()
    async with stage.fleet("lives", 1):
        for kind in kinds:
            for point in (*Point, None):
                cells.append(await (_reset(stage, seed, kind, point) if point else _reused(stage, seed, kind)))
                changed()
    for kind in ANEW.keys() & set(kinds):
        for is_undone in (False, True):
            cells.append(await _planned_anew(stage, seed, kind, is_undone=is_undone))
            changed()
    return cells


async def _reset(stage: Stage, seed: int, kind: str, point: Point) -> Cell:
    """A task that was done is taken back: it is done again, and its effect is the same one."""
    race = Race.of(stage, f"{point}-{seed}-{kind}".replace(" ", "-"), kind, "lives")
    cell = Cell(effect=KINDS[kind], point=f"reset {point}", expected=Expected(statuses=("completed",), effects=(1,)))
    async with race.told(cell):
        await race.crowd.start(race.job)
        await race.closed()
        if not await reset(stage.client, race.job.id, point):
            cell.remark = "there was nothing to go back to"
        await race.closed()
    return cell


async def _reused(stage: Stage, seed: int, kind: str) -> Cell:
    """A new task under the same id has an effect of its own."""
    race = Race.of(stage, f"reused-{seed}-{kind}", kind, "lives")
    effects = (1,) if kind == "set_limit" else (2,)  # a limit that is set twice is set
    expected = Expected(statuses=("completed",), effects=effects)
    cell = Cell(effect=KINDS[kind], point="a new task with its id", expected=expected)
    async with race.told(cell):
        for _ in range(2):
            await race.crowd.start(race.job)
            await race.closed()
    return cell


async def _planned_anew(stage: Stage, seed: int, kind: str, *, is_undone: bool) -> Cell:
    """A task is reset to before its plan, and its planner would call the effect `again`: refused, or undone first."""
    point, effects = ("reset --undo", 2) if is_undone else ("reset, refused", 1)
    cell = Cell(effect=KINDS[kind], point=point, expected=Expected(statuses=("completed",), effects=(effects,)))
    race = Race.of(stage, f"anew-{seed}-{kind}{'-undo' * is_undone}", kind)
    async with race.told(cell), stage.fleet(race.queue, 0) as fleet:
        first = await fleet.hire("--planner", _script(stage, race, "s1"))
        task = Task(text=race.job.id)
        await stage.client.start_workflow(AgentWorkflow.run, task, id=race.job.id, task_queue=race.queue)
        await race.closed()
        first.send(signal.SIGKILL)
        await fleet.hire("--planner", _script(stage, race, "again"))
        code = await fleet.starter("reset", race.job.id, "--to", "catalogue", *["--undo"] * is_undone)
        await race.closed()
        if (code == Exit.COMPLETED) is not is_undone:
            cell.remark = f"reset ended with {code}"
    happened = await read(stage.databases.bank, stage.book)
    if happened.count(ANEW[kind], race.job.reference("s1")) != is_undone:
        cell.remark = f"{cell.remark} the first effect was{' not' * is_undone} undone".strip()
    return cell


def _script(stage: Stage, race: Race, id: str) -> str:
    """A planner that gives the task's first step this id."""
    step = race.job.steps[0].model_copy(update={"id": id})
    script = [NewSteps(steps=(step,)), Answer(result="done")]
    file = stage.places.folder / f"{race.job.id}-{id}.json"
    file.write_text(json.dumps([one.model_dump(mode="json") for one in script]))
    return f"scripted:{file}"
