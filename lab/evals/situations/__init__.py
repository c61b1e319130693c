"""Six situations in which an agent calls again, with `replan.effects` and as tasks: `python -m evals.situations`."""
