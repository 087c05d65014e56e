"""Which parameters get a scale, and what is special about them."""
