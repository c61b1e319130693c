"""Steps, beside others: the same work in Replan, in bare Temporal and in what else remembers steps."""
