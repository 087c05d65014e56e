"""State of the whole process: signals, random generators, the accelerator, switches of torch."""
