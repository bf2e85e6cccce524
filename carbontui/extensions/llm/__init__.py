"""A language model's wording beside our own account of a run."""
