"""What users pass in: checks of models, losses and batches; optimizers; random data."""
