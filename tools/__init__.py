"""Commands for maintainers: mutants, checks of the documents, the oldest versions, packages."""
