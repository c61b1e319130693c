"""Errors of libraries, raised by the libraries themselves: what is right and what is wrong, by library."""

LINE = "right and wrong"
"""The name under which a test records its line for the end of the run."""
