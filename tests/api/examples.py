"""hypothesis. Where it is not installed (environments of older torches) its tests are skipped, and the rest of a file runs."""

import pytest

try:
    from hypothesis import given, settings
    from hypothesis import strategies as st
except ImportError:

    class Nothing:
        """What a strategy is described with when nobody draws from it."""

        def __getattr__(self, name):
            return lambda *parts, **named: self

    st = Nothing()

    def given(*strategies, **named):
        return pytest.mark.skip(reason="hypothesis is not installed")

    def settings(**options):
        return lambda test: test


__all__ = ["given", "settings", "st"]
