"""flatout: why the GPU is idle, and how fast the script can really run, measured on this machine."""

from flatout._version import __version__

__all__ = ["__version__"]
