"""Revisions of the ledger, which each database with effects of tools has."""
