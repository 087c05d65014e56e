"""The paper's theorems, tried on small networks."""
