"""`python -m evals.world_changes.service PORT FILE SCENARIOS`: plays scenarios on loopback, until it is killed."""

import sys
from pathlib import Path

from evals.tape.__main__ import play
from evals.tape.world import World
from evals.world_changes.scenario import Plotted, ScenarioPlot

if __name__ == "__main__":
    port, file, words = sys.argv[1:]
    plotted = Plotted.model_validate_json(Path(words).read_text())
    play(int(port), World(Path(file), ScenarioPlot(plotted.scenarios)))
