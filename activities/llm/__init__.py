"""Who proposes, and the models behind it."""
