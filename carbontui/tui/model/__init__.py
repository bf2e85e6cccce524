"""What the screen knows: the feed of the socket folded into a frozen picture, and its words."""
