"""The nodes of one job, and the schedulers and shells through which they are reached."""
