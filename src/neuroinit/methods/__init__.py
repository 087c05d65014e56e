"""One paper a file: what to maximize, and what bounds it."""
