"""Figures in the OpenMetrics text form (1.0), for Prometheus and what reads it: a file or a Unix socket, never TCP."""
