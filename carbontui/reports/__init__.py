"""What a job's journal tells afterwards: one frozen RunStory, and one renderer for every form it takes."""
