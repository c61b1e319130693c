"""WHAT ANY TEMPORAL HISTORY SAYS about retries and effects: read only, from files or from a server.

The histories need not be Replan's: `sources` reads their events one by one, `record` keeps of a history what the
findings need, `errors` says of a failure whether a retry could help, `findings` is the table of what can be found, and
`report` adds it all up.
"""
