"""The keeper process: standard library only, everything imported at its start."""
