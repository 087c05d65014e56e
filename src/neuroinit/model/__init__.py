"""A model and its loss as functions of the scaled parameters; internal."""
