"""NIO: the method, its update rules and the paper's presets."""
