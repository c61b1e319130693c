"""WHAT ANY TEMPORAL HISTORY SAYS about retries and effects: read only, from files or from a server.

The histories need not be Replan's: `sources` reads their events one by one, `record` reduces a history to what the
findings need, `errors` classifies failures by whether a retry could help, `findings` is the table of possible findings,
and `report` adds up the results.
"""
