"""The folder of a run: its lock and files, checkpoints, metrics."""
