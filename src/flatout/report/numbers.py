"""Formats figures: digits, units, thousands separators."""

from __future__ import annotations


def seconds(value: float) -> str:
    if value >= 3600:
        return f"{int(value // 3600)} h {int(value % 3600 // 60):02d} min"
    if value >= 60:
        return f"{int(value // 60)} min {int(value % 60):02d} s"
    if value >= 1:
        return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"
    if value >= 0.001:
        return f"{value * 1e3:.0f} ms" if value >= 0.01 else f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs" if value > 0 else "0 s"


def percent(share: float) -> str:
    shown = share * 100
    if 0 < shown < 0.5:
        return "<1 %"
    return f"{shown:.0f} %"


def epochs(value: float) -> str | None:
    """To a tenth; None for so small a part of one that steps say more: a loader without an end has no epochs."""
    return count(round(value, 1)) if value >= 0.05 else None


def count(value: float) -> str:
    """1234567 as 1,234,567; small rates keep a digit or two."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def scaled(value: float) -> str:
    """2048 as 2.05 k, 3.2e12 as 3.2 T: a unit is to follow."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"
