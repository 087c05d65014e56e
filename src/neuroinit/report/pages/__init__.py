"""The pages: one for a result, one for a comparison, one for the choice of ``auto_``."""
