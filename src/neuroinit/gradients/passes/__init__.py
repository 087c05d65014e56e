"""Forward and backward passes: losses and gradients of pieces, and tests of the model; internal."""
