"""`python -m benchmarks.flames SAMPLES PICTURE`: a flame graph of a worker under load.

`py-spy record --pid PID --gil --function --threads --format raw --output SAMPLES` writes the samples, while the worker
is busy with `benchmarks.crowd`. The graph begins where an event loop runs something.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

ROOTS = {"MainThread": "the worker's loop", "temporal_workflow": "threads of workflows", "tools": "the tools' loop"}
"""The threads that are drawn, by the beginning of their names."""
RUN = "Handle._run (asyncio/events.py"
"""The frame of an event loop below which its callbacks are."""
FRAME = re.compile(r"(?P<name>.*) \((?P<file>[^():]+)(:\d+)?\)$")
OWNERS = {
    "Replan": ("tab:orange", re.compile(r"^(activities|workflows|runtime|benchmarks)/")),
    "Temporal's SDK": ("tab:blue", re.compile(r"^(temporalio|protobuf)/")),
    "pydantic, logging and other packages": ("tab:green", re.compile(r"^(pydantic|structlog|logging|json|typer)/")),
    "asyncio and threads": ("lightgrey", re.compile("")),
}
"""The colour of a frame, by the first pattern that matches its file."""
DEPTH = 16
NARROWEST, NAMED = 0.002, 0.03
"""The parts of the whole from which on a frame is drawn, and has its name."""


@dataclass
class Node:
    """A frame with what it called."""

    samples: int = 0
    called: dict[str, "Node"] = field(default_factory=dict)

    def add(self, frames: Iterable[str], samples: int) -> None:
        """Count the samples of one stack."""
        node = self
        node.samples += samples
        for frame in frames:
            node = node.called.setdefault(frame, Node())
            node.samples += samples


def read(lines: Iterable[str]) -> Node:
    """The tree of all stacks in which an event loop ran something."""
    tree = Node()
    for line in lines:
        stack, _, samples = line.rstrip().rpartition(" ")
        thread, *frames = stack.split(";")
        root = next((title for name, title in ROOTS.items() if f": {name}" in thread), None)
        start = next((at for at, frame in enumerate(frames, 1) if frame.startswith(RUN)), None)
        if root and start:
            tree.add([root, *(re.sub(r":\d+\)$", ")", frame) for frame in frames[start:])], int(samples))
    return tree


def draw(tree: Node, file: Path) -> None:
    """Draw the tree as a PNG: each frame as wide as its samples, below the frame that called it."""
    canvas = Canvas(figsize=(12, 6), layout="constrained")
    axes = canvas.subplots()
    for frame, left, depth, width in _placed(tree, 0.0, 0):
        _bar(axes, frame, left, depth, width / tree.samples)
    axes.set(xlim=(0, 1), ylim=(DEPTH, 0), xticks=[], yticks=[])
    canvas.legend(
        handles=[Patch(color=color, label=owner) for owner, (color, _) in OWNERS.items()],
        loc="outside upper left",
        ncols=4,
    )
    canvas.savefig(file, dpi=100)


def _placed(node: Node, left: float, depth: int, whole: int = 0) -> Iterator[tuple[str, float, int, int]]:
    """Each frame with its left edge, its depth and its samples."""
    whole = whole or node.samples
    for frame, one in sorted(node.called.items(), key=lambda item: -item[1].samples):
        if depth < DEPTH and one.samples / whole >= NARROWEST:
            yield frame, left, depth, one.samples
            yield from _placed(one, left, depth + 1, whole)
        left += one.samples / whole


def _bar(axes: Axes, frame: str, left: float, depth: int, width: float) -> None:
    found = FRAME.match(frame)
    file, name = (found["file"], found["name"]) if found else ("", frame)
    color = next(color for color, pattern in OWNERS.values() if pattern.match(file))
    axes.broken_barh([(left, width)], (depth + 0.04, 0.92), facecolors=color, edgecolor="white", linewidth=0.4)
    if width >= NAMED:
        room = max(3, int(width * 190))  # characters of this size
        axes.text(left + 0.002, depth + 0.5, name.rpartition("<locals>.")[2][:room], fontsize=7, va="center")


if __name__ == "__main__":
    draw(read(Path(sys.argv[1]).read_text().splitlines()), Path(sys.argv[2]))
