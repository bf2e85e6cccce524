"""Reports from a job's journal: one frozen RunStory, and one renderer per output format."""
