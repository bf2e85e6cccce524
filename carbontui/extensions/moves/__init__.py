"""Moves of a running job to another machine, over ssh."""
