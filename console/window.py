"""What matters of a task that is too long for a terminal: what runs, what failed, what was finished last."""

from collections import Counter
from collections.abc import Sequence

from console.tree import Block
from workflows.record import StepStatus

GIVE_UP = 6
"""Blocks in a row that find no room, after which no further one is tried."""
WORDS = {StepStatus.COMPLETED: "finished"}
FIRST = (StepStatus.RUNNING, StepStatus.WAITING)


def fitted(blocks: Sequence[Block], room: int) -> list[str]:
    """The lines of `blocks`, in order and at most `room` of them, with `... 143 finished above` for what is left out.

    Every block that is shown stands below its plan's line; one that finds no room for all its lines shows the first.
    """
    if sum(len(block.lines) for block in blocks) <= room:
        return [line for block in blocks for line in block.lines]
    chosen, misses = dict[int, int](), 0
    for index in _ranked(blocks):
        taken = _try(blocks, chosen, index, room)
        misses = 0 if taken else misses + 1
        if misses > GIVE_UP:
            break
    return _lines(blocks, chosen)[: max(room, 0)]


def _try(blocks: Sequence[Block], chosen: dict[int, int], index: int, room: int) -> bool:
    header = max(at for at in range(index + 1) if blocks[at].step is None)
    count = len(blocks[index].lines)
    ways = [{header: 1, **chosen, index: max(lines, chosen.get(index, 0))} for lines in (count, 1)]
    ways += [] if chosen else [{index: 1}]  # a tiny terminal shows at least one step that runs
    for way in ways:
        if _height(blocks, way) <= room:
            chosen.update(way)
            return True
    return False


def _height(blocks: Sequence[Block], chosen: dict[int, int]) -> int:
    gaps = sum(1 for at in range(len(blocks)) if at not in chosen and (at == 0 or at - 1 in chosen))
    return sum(chosen.values()) + gaps


def _ranked(blocks: Sequence[Block]) -> list[int]:
    """Indices, the most important first: what runs, the newest plan, failures, the last finished, the next pending."""
    newest = max((block.revision for block in blocks), default=0)
    ended = [at for at in range(len(blocks)) if _status(blocks[at]) is StepStatus.COMPLETED]
    ended.sort(key=lambda at: _ended(blocks[at]), reverse=True)
    age = {at: place for place, at in enumerate(ended)}
    pending = [at for at in range(len(blocks)) if _status(blocks[at]) is StepStatus.PENDING]
    turn = {at: place for place, at in enumerate(pending)}

    def rank(at: int) -> float:
        block, status = blocks[at], _status(blocks[at])
        if status in FIRST:
            return 0
        if status is None:
            return 1 if block.revision == newest else len(blocks) + 1
        if status is StepStatus.COMPLETED:
            return 3 + age[at] - (2 if len(block.lines) > 1 and block.revision == newest else 0)
        return 4 + 2 * turn[at] if status is StepStatus.PENDING else 2 + newest - block.revision

    return sorted(range(len(blocks)), key=rank)


def _ended(block: Block) -> float:
    return block.step.ended.timestamp() if block.step and block.step.ended else 0.0


def _status(block: Block) -> StepStatus | None:
    return block.step.status if block.step else None


def _lines(blocks: Sequence[Block], chosen: dict[int, int]) -> list[str]:
    lines, hidden = list[str](), list[int]()
    steps = [at for at in chosen if blocks[at].step]
    for at in range(len(blocks) + 1):
        if at < len(blocks) and at not in chosen:
            hidden.append(at)
            continue
        if len(hidden) == 1:
            lines.append(blocks[hidden[0]].lines[0])  # a line that says what is hidden would be as long
        elif hidden:
            lines.append(_gap([blocks[one] for one in hidden], _where(hidden, steps)))
        hidden = []
        if at < len(blocks):
            lines += blocks[at].lines[: chosen[at]]
    return lines


def _where(hidden: Sequence[int], shown: Sequence[int]) -> str:
    if hidden[-1] < min(shown, default=0):
        return " above"
    return " below" if hidden[0] > max(shown, default=0) else ""


def _gap(hidden: Sequence[Block], where: str) -> str:
    counts = Counter(block.step.status for block in hidden if block.step)
    plans = sum(block.step is None and block.lines[0].startswith("Plan") for block in hidden)
    said = [f"{plans} plan{'' if plans == 1 else 's'}"] if plans else []
    said += [f"{number} {WORDS.get(one, one.value)}" for one, number in counts.items()]
    return f"  ... {', '.join(said) or 'more'}{where}"
