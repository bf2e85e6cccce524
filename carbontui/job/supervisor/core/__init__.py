"""The rules of a job, pure: no clock, no os, no asyncio, no files, no sockets."""
