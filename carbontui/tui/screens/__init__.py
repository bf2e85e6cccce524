"""Screens, each with its sheet beside it."""
