"""Slurm: its commands and queue, the successor of an unloaded job, and a fleet of jobs within a power budget."""
