"""Metrics in the OpenMetrics text format (1.0), for Prometheus and compatible readers: a file or a Unix socket, never
TCP."""
