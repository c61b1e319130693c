"""What only the store has."""
