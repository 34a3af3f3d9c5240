"""The version, alone in its file, so that nobody inside needs the package root for it."""

__version__ = "0.1.0"
