"""Extensions of this package, each a folder that owns all of itself; see carbontui/hooks.py."""
