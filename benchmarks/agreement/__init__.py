"""Measures of gradient agreement, what they say of networks, and what raising them does."""
