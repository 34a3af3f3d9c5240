"""The same kernels in a CUDA graph for a module's evaluation. Used only where a replay gave the very bits of the plain pass:
what a script reports of its validation stays as it is.
"""

from __future__ import annotations

import sys
from typing import Any

from _flatout_agent.knobs.graphs.call_layout import Returned, put_together, taken_apart
from _flatout_agent.knobs.graphs.graph_for_shape import stirred_weights
from _flatout_agent.knobs.graphs.recordable_calls import RecordableCalls
from _flatout_agent.knobs.knob import refused
from _flatout_agent.knobs.module_wrapper import Run

MOST_VARIANTS = 4
CALLS_BEFORE = 8  # of a shape: recording takes as long as five of them


class EvaluationVariant:
    """A recorded forward pass for one shape of the inputs."""

    def __init__(self, recording: Any, returned: Returned) -> None:
        self._recording = recording
        self._returned = returned

    def call(self, tensors: Any) -> Any:
        recording = self._recording
        for place, given in zip(recording.inputs, tensors):  # noqa: B905
            place.copy_(given, non_blocking=True)
        recording.forward()
        return self._returned.with_tensors([out.clone() for out in recording.outs])


class EvaluationGraphs(RecordableCalls):
    """Calls in evaluation mode, without gradients."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._variants: dict[Any, EvaluationVariant] = {}
        self._seen: dict[Any, int] = {}
        self.replays = 0

    def forget(self) -> None:
        self._variants.clear()
        self._seen.clear()

    def wrap(self, inner: Run) -> Run:
        def run(module: Any, args: Any, kwargs: Any) -> Any:
            taken = taken_apart(self._torch, args, kwargs) if self.why is None else None
            if taken is None or not self.takes(taken[0]):
                return inner(module, args, kwargs)
            tensors, layout = taken
            key = self.key_of(module, tensors, layout)
            if key is None:
                return inner(module, args, kwargs)
            key = (*key, self._torch.is_inference_mode_enabled())
            variant = self._variants.get(key)
            if variant is None:
                seen = self._seen[key] = self._seen.get(key, 0) + 1
                if seen <= CALLS_BEFORE or len(self._variants) >= MOST_VARIANTS or sys.getprofile() is not None:
                    return inner(module, args, kwargs)
                if seen == CALLS_BEFORE + 1:
                    return self.watched(inner, module, (args, kwargs))
                variant = self._record(key, inner, module, tensors)
                if variant is None:
                    return inner(module, args, kwargs)
            self.replays += 1
            return variant.call(tensors)

        return run

    def _record(self, key: Any, inner: Run, module: Any, inputs: list[Any]) -> EvaluationVariant | None:
        returned: list[Returned] = []

        def run(given: list[Any]) -> list[Any]:
            returned[:] = [Returned(self._torch, inner(module, *put_together(key[0], given)))]
            return returned[0].tensors

        before = self.kept_state(module)
        try:
            with self._recorder.no_waiting():
                run(inputs)
        except Exception as error:  # nothing was recorded: the generator is as it was, which other graphs rely on
            self.why = refused("cannot-be-recorded", error=f"{type(error).__name__}: {error}"[:300])
            before.restore()
            return None
        try:
            recording = self._recorder.record_forward(run, inputs, module)
            variant = EvaluationVariant(recording, returned[0])
            if not self._same_bits(run, recording, inputs):
                self.why = refused("replay-differs")
        except Exception as error:
            self.why = self.failed(error, before)
        finally:
            before.restore()
        if self.why is not None:
            return None
        self._variants[key] = variant
        return variant

    def _same_bits(self, run: Any, recording: Any, inputs: list[Any]) -> bool:
        """With other weights and inputs than it was recorded with: what is right only because nothing changed shows."""
        assert self._holdings is not None
        with stirred_weights(self._torch, self._holdings, inputs) as others:
            plain = [out.clone() for out in run(others)]
            for place, part in zip(recording.inputs, others):  # noqa: B905
                place.copy_(part)
            recording.forward()
            return all(self._torch.equal(out, own) for out, own in zip(plain, recording.outs))  # noqa: B905
