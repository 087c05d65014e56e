"""Models whose parameters are sharded over processes, and finite differences; internal."""
