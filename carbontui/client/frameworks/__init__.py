"""What a framework's own loop says that a hook cannot see. One file each, loaded only where its framework has been."""
