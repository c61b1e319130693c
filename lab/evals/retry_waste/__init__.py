"""The retry-waste experiment: the published model, and the same question asked of real workflows."""
