"""The worker's process, where numpy lives, and the supervisor's end of it."""
