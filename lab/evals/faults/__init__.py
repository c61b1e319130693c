"""What one line in somebody else's worker changes: attempts that could not help, by library and situation."""
