"""Training runs as in the paper's Appendix B."""
