"""What runs inside the training process. Standard library only; parses on Python 3.9."""
