"""Measured from outside: what holds when things break, run with `python -m evals.NAME`."""
