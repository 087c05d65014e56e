"""The loop that runs a method: batches, steps, errors, checkpoints, and the result at the end."""
