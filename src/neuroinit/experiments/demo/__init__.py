"""The demo on scikit-learn's digits."""
