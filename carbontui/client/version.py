"""The version, beside the client: a training environment holds nothing else of the package that could tell it."""

__version__ = "0.1.0"
