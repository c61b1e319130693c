"""Scenarios in which the world changes while a task runs, and what must hold in each."""
