"""The ledger, where a tool's effects are."""
