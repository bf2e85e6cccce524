"""Widgets; each repaints only what changed."""
