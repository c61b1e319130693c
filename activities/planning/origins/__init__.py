"""Where the literals of a proposal come from: which have no trusted source, and where untrusted content shows them."""
