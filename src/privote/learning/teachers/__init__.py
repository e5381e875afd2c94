"""Teachers: parts of the private data, one classifier for each, and their votes."""
