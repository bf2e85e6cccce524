"""What carbontui would have saved on recorded grids: an assumed job, planned with what was known at the time."""
