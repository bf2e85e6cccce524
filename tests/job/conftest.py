"""Puts this folder on the path: `states` is for the tests in core/, too."""
