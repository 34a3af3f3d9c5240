"""The part of flatout that lives inside the user's training process.

Standard library and torch alone, Python 3.9+, nothing of the front. Only `wire` is shared with it.
"""
