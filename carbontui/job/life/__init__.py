"""How a job is begun, taken up again, moved, requeued and ended."""
