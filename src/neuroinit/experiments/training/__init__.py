"""Training runs as in the paper's Appendix B, and a short loop for small networks."""
