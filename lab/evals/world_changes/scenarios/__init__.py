"""The scenarios: data files, one a family; `evals.world_changes.scenario` has their format."""
