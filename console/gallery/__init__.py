"""The pictures of the README, from a real run: `make pictures`."""
