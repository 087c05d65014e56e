"""Every initialization of the library on the demo's networks."""
