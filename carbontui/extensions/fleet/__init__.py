"""Starts of a cluster's jobs within a power budget and with the least CO2; Slurm itself is in carbontui/slurm."""
