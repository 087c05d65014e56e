"""A fault injector for what the library promises to survive: ``python -m benchmarks.faults``."""
