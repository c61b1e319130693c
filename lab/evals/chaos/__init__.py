"""Promises that hold while workers, servers, connections and databases are killed: `python -m evals.chaos`."""
