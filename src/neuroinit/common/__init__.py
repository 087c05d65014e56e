"""What every other folder uses: errors, checks, files, batches, tensors; internal."""
