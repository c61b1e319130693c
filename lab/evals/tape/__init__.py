"""A world whose every outcome is on a tape, so that each arm of an experiment meets the same one."""
