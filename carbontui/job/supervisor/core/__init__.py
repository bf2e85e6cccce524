"""The rules of a job as pure functions: no clock, os, asyncio, files or sockets."""
