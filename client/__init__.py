"""Replan's client for any program: start, follow, cancel, undo, reset and export tasks, and read their histories.

Functions that call the Temporal server raise RPCError if it does not answer.
"""
