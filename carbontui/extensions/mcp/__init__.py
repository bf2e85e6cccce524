"""`mcp`: what a job does, for an agent; with --allow-write orders that end by themselves."""
