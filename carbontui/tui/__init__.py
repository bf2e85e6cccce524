"""The screen: a stateless viewer of job.sock."""
