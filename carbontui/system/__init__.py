"""The operating system: processes, sockets, namespaces, ssh, bounded commands, and untrusted files."""
