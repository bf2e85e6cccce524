"""`web`: the screen in a browser of this machine."""
