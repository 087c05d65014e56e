"""Which starts train: every method on the networks of four suites, and the records."""
