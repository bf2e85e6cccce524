"""The worker process, the only one that loads numpy, and the supervisor's handle of it."""
