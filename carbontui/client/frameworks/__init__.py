"""Integrations with frameworks whose loops a hook cannot see. One file each, loaded only after its framework."""
