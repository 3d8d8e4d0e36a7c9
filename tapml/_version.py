"""The version, alone in its file so that it can be read without importing torch."""

__version__ = "0.1.0"
