"""What methods gain, with intervals, from the records of the trainability suites."""
