"""The version, stored with the client: a training environment has nothing else of the package that could state it."""

__version__ = "0.1.0"
