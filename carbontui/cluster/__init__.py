"""The nodes of one job, and access to them through schedulers and ssh."""
