"""Tasks with more than one life: taken back by Temporal's own reset, and new ones under the id of a closed one."""

from collections.abc import Callable, Iterable

from evals.chaos.cell import Cell, Expected
from evals.chaos.races import Race
from evals.chaos.resets import Point, reset
from evals.chaos.stage import Stage

KINDS = {
    "set_limit": "idempotent",
    "pay": "keyed",
    "pay_strictly": "keyed, second call refused",
    "transfer": "transactional",
    "pay_once": "unkeyed, with reconcile",
    "pay_blindly": "unkeyed, without",
}
COUNT = len(KINDS) * (len(Point) + 1)
"""How many cells there are."""


async def lives(stage: Stage, seed: int, changed: Callable[[], None], kinds: Iterable[str] = KINDS) -> list[Cell]:
    """All of them for these kinds, `changed` called after each."""
    cells = list[Cell]()
    async with stage.fleet("lives", 1):
        for kind in kinds:
            for point in (*Point, None):
                cells.append(await (_reset(stage, seed, kind, point) if point else _reused(stage, seed, kind)))
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
