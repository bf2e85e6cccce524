"""The keeper's process: standard library alone, everything imported at its start."""
