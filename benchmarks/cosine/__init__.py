"""Is it the cosine? Cells of the suites with GradCosine raised, left and lowered."""
