"""Revisions of the tables that only the store has."""
