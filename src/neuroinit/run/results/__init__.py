"""What a run returns: its result, the summary, the table of tensors, and data frames."""
