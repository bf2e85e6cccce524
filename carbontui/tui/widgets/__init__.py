"""Drawings, each a widget that repaints only what changed."""
