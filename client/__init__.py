"""Replan's client for any program: start, follow, cancel, undo, reset and export tasks, and read their histories.

Runs in the process of a command, a server or a user's program; in a worker only before it serves. Functions that call
the Temporal server raise RPCError if it does not answer.
"""
