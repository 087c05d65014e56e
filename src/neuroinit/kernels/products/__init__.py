"""Linear layers and convolutions."""
