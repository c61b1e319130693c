"""Stands in for `replan` in an agent that is to run without it."""
