"""Statistics of gradients at one point, as users see them."""
