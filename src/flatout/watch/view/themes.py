"""What the styles of pieces look like: dark, light, and as strong as it gets. Pure."""

from __future__ import annotations

from flatout.base.records import Struct


class Look(Struct, frozen=True):
    fg: str
    bold: bool = False
    bg: str | None = None


class Theme(Struct, frozen=True, kw_only=True):
    name: str
    ground: str
    text: str
    looks: dict[str, Look]

    def look(self, style: str) -> Look:
        return self.looks.get(style, Look(self.text))


def _ramps(ramps: dict[str, tuple[str, str, str, str]]) -> dict[str, Look]:
    return {f"{name}.{place}": Look(colour) for name, colours in ramps.items() for place, colour in enumerate(colours)}


def _phases(colours: dict[str, str]) -> dict[str, Look]:
    return {f"phase.{name}": Look(colour) for name, colour in colours.items()}


DARK = Theme(
    name="dark",
    ground="#0f141b",
    text="#c9d4e0",
    looks={
        "frame": Look("#34414f"),
        "chosen": Look("#4cc2ff"),
        "title": Look("#e9f1f8", True),
        "name": Look("#8fa3b5"),
        "label": Look("#8496a6"),
        "value": Look("#d8e2ec"),
        "big": Look("#ffffff", True),
        "dim": Look("#5f7080"),
        "empty": Look("#2a3541"),
        "calm": Look("#5fd38d"),
        "warm": Look("#f2c14e"),
        "hot": Look("#ff6b6b", True),
        "slow": Look("#ff6b6b"),
        "accent": Look("#4cc2ff"),
        "own": Look("#5fd38d"),
        "other": Look("#f2a65a"),
        "rest": Look("#7a8a99"),
        "key": Look("#0f141b", True, "#4cc2ff"),
        "brand": Look("#0f141b", True, "#4cc2ff"),
        "alert": Look("#ffffff", True, "#9d2b3a"),
        **_ramps(
            {
                "busy": ("#1f7a5c", "#2ba877", "#3fce8f", "#6ff0ae"),
                "memory": ("#5b4bb5", "#7767d9", "#9587f2", "#b9aeff"),
                "power": ("#94621c", "#c28427", "#e5a63d", "#ffcb70"),
                "heat": ("#3c8f5b", "#c2a23a", "#e07f3c", "#ff5d5d"),
                "cpu": ("#21688f", "#2c8abd", "#43ade6", "#7fcbff"),
                "step": ("#2a7f8f", "#38a6b8", "#55c9da", "#8ee6f2"),
            }
        ),
        **_phases(
            {
                "startup": "#66788a",
                "settings": "#a67fd6",
                "input": "#f2c14e",
                "copy": "#e07fd0",
                "forward": "#3fce8f",
                "backward": "#2b9fd8",
                "optimizer": "#7f8cff",
                "device_wait": "#5fd7e0",
                "compile": "#c792ea",
                "turn": "#d99a3a",
                "validation": "#8fb8ff",
                "checkpoint": "#d0d7df",
                "script": "#ff9e80",
                "shutdown": "#66788a",
                "unexplained": "#ff6b6b",
            }
        ),
    },
)

LIGHT = Theme(
    name="light",
    ground="#fbfbf8",
    text="#24303a",
    looks={
        "frame": Look("#c3ccd2"),
        "chosen": Look("#0a6fb3"),
        "title": Look("#10202c", True),
        "name": Look("#5a6b78"),
        "label": Look("#5f707c"),
        "value": Look("#1d2a34"),
        "big": Look("#000000", True),
        "dim": Look("#8b98a2"),
        "empty": Look("#dde3e6"),
        "calm": Look("#17824a"),
        "warm": Look("#9a6700"),
        "hot": Look("#c3222f", True),
        "slow": Look("#d0313d"),
        "accent": Look("#0a6fb3"),
        "own": Look("#17824a"),
        "other": Look("#c0621b"),
        "rest": Look("#8b98a2"),
        "key": Look("#ffffff", True, "#0a6fb3"),
        "brand": Look("#ffffff", True, "#0a6fb3"),
        "alert": Look("#ffffff", True, "#b3212e"),
        **_ramps(
            {
                "busy": ("#8fd3b4", "#57b98d", "#2f9c6d", "#157a50"),
                "memory": ("#b9b0f0", "#9385e6", "#7263d3", "#5546b8"),
                "power": ("#e9c68a", "#d6a148", "#b97f1f", "#94620f"),
                "heat": ("#58a878", "#b7952c", "#cf6a28", "#c3222f"),
                "cpu": ("#93c7e4", "#58a7d3", "#2c87ba", "#126a9c"),
                "step": ("#8fcfd8", "#55b0bd", "#2c8f9d", "#127482"),
            }
        ),
        **_phases(
            {
                "startup": "#8b98a2",
                "settings": "#8250b8",
                "input": "#c78f00",
                "copy": "#b0409f",
                "forward": "#1f9c63",
                "backward": "#1b7fb8",
                "optimizer": "#4f5bd0",
                "device_wait": "#1b98a3",
                "compile": "#8e45b5",
                "turn": "#a86a10",
                "validation": "#4a7fd0",
                "checkpoint": "#5f707c",
                "script": "#d0603a",
                "shutdown": "#8b98a2",
                "unexplained": "#c3222f",
            }
        ),
    },
)

_STRONG = ("#00ff87", "#00d7ff", "#ffff00", "#ff87ff", "#ffffff", "#ffaf00")

CONTRAST = Theme(
    name="contrast",
    ground="#000000",
    text="#ffffff",
    looks={
        **{name: Look("#ffffff", look.bold) for name, look in DARK.looks.items()},
        **{
            f"phase.{name}": Look(_STRONG[place % len(_STRONG)])
            for place, name in enumerate(
                (
                    "forward",
                    "backward",
                    "input",
                    "optimizer",
                    "copy",
                    "device_wait",
                    "compile",
                    "validation",
                    "checkpoint",
                    "script",
                )
            )
        },
        "frame": Look("#a0a0a0"),
        "dim": Look("#c0c0c0"),
        "empty": Look("#606060"),
        "chosen": Look("#ffff00", True),
        "calm": Look("#00ff87"),
        "own": Look("#00ff87"),
        "warm": Look("#ffff00", True),
        "other": Look("#ffaf00"),
        "hot": Look("#ff5f5f", True),
        "slow": Look("#ff5f5f"),
        "key": Look("#000000", True, "#ffff00"),
        "brand": Look("#000000", True, "#ffff00"),
        "alert": Look("#000000", True, "#ff5f5f"),
        **_ramps({"busy": ("#00ff87", "#00ff87", "#00ff87", "#00ff87"), "heat": ("#00ff87", "#ffff00", "#ffaf00", "#ff5f5f")}),
    },
)

THEMES = (DARK, LIGHT, CONTRAST)


def after(theme: Theme) -> Theme:
    return THEMES[(THEMES.index(theme) + 1) % len(THEMES)]
