"""How many batches each worker runs ahead."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.loader_knob import LoaderKnob


class PrefetchFactor(LoaderKnob):
    name = "prefetch_factor"
    field = "prefetch"

    def _setting(self, scene: Scene, loader: Any, current: Any, value: Any) -> tuple[Outcome, Any]:
        if not current.workers:
            return refused("needs-workers"), None
        if loader.num_workers and loader.prefetch_factor == int(value):
            return already("script-set-it", prefetch_factor=int(value)), None
        return applied(prefetch_factor=int(value)), int(value)

    def _seen(self, control: Control, iterator: Any) -> Outcome:
        factor = control.last.prefetch
        if factor != control.wanted.get(self.field):
            return refused("other-prefetch-factor", prefetch_factor=factor)
        if iterator is None:
            return applied(prefetch_factor=factor)
        return applied(prefetch_factor=iterator._prefetch_factor, ahead=iterator._send_idx - iterator._rcvd_idx)
