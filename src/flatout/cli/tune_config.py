"""The flags of `flatout tune --config FILE`, and whether they fit together; what they ask for is done by `config_task`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flatout.base.errors import UsageError
from flatout.cli.commandline import option

if TYPE_CHECKING:
    from flatout.cli.config_task import ConfigTask, Screen

WANT_A_CONFIGURATION = {
    "output": "-o", "force": "--force", "key": "--key", "no_insert": "--no-insert", "preset": "--preset", "card": "--card",
    "explore": "--explore",
}  # fmt: skip


def options(command: Any) -> Any:
    """The flags of a configuration, in the order of their help."""
    for flag in reversed(
        [
            option("--config", metavar="FILE", help="tune-config"),
            option("--output", "-o", metavar="FILE", help="tune-output"),
            option("--force", is_flag=True, help="tune-force"),
            option("--key", multiple=True, metavar="NAME=PATH", help="tune-key"),
            option("--no-insert", is_flag=True, help="tune-no-insert"),
            option("--preset", metavar="NAME", help="tune-preset"),
            option("--card", metavar="NAME", help="tune-card"),
            option("--explore", multiple=True, metavar="KEY=VALUES", help="tune-explore"),
        ]
    ):
        command = flag(command)
    return command


def begin(script: Sequence[str], asked: Mapping[str, Any], screen: Screen) -> ConfigTask | None:
    """None without --config. All that can be wrong is said here, before anything is started."""
    if not asked["config"]:
        flag = next((flag for name, flag in WANT_A_CONFIGURATION.items() if asked[name]), None)
        if flag is not None:
            raise UsageError("config-error.without-config", flag=flag)
        if not script:
            raise UsageError("config-error.nothing")
        return None
    from flatout.cli.config_task import ConfigTask  # with its readers, only for those who hand a configuration over

    return ConfigTask(script, asked, screen)
