"""What carbontui would have saved on recorded grids: an assumed job, planned with the knowledge of the time."""
