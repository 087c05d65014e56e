"""Character GPTs on a text, trained from every start."""
