"""The terminal itself: what it can show, its colours and glyphs, keys, and what is written to it."""
