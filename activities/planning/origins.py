from collections.abc import Iterable, Mapping, Sequence

from activities.planning.planner import RecordedTurn
from activities.toolbox.declare.kind import Kind
from workflows.planning.situation import Situation
from workflows.plans.contract import Origin
from workflows.plans.proposal import Step


def trace(
    steps: Iterable[Step], past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]
) -> tuple[Origin, ...]:
    return ()
