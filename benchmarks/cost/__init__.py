"""What a step costs: time, memory, operators, imports, several processes, finite differences."""
