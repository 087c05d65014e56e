"""What a step costs: time, memory, operators, and imports."""
