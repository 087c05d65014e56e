"""The networks of the suites, one file a suite."""
