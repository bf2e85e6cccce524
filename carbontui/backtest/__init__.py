"""What carbontui would have saved on recorded grids: a job that does not exist, planned with what was known when."""
