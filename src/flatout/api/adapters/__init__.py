"""A tuned profile as arguments of other frameworks, and a callback for each that feeds `PerformanceMonitor`.

    Trainer(**lightning_arguments("flatout.toml"), callbacks=[LightningMonitor()])

The arguments need none of the frameworks; the callbacks live in `adapters.lightning`, `adapters.transformers` and
`adapters.accelerate`, which import theirs.
"""

from flatout.api.adapters.arguments import (
    Arguments,
    LeftOut,
    accelerate_arguments,
    lightning_arguments,
    loader_arguments,
    transformers_arguments,
)

__all__ = [
    "Arguments",
    "LeftOut",
    "accelerate_arguments",
    "lightning_arguments",
    "loader_arguments",
    "transformers_arguments",
]
