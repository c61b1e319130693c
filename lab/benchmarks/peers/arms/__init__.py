"""The arms: each a program as its own documentation has it; `steps.py` is what they share."""
