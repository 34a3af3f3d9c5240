"""TF32 in matrix products and convolutions, through the interface that the script itself uses."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused


class Tf32(Knob):
    """Through the interface that the script itself uses: torch raises where both are mixed."""

    name = "tf32"

    def __init__(self) -> None:
        self._torch: Any = None
        self._before: dict[str, Any] = {}

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        torch = self._torch = scene.torch
        if not scene.has_cuda():
            return refused("no-cuda-device")
        if torch.cuda.get_device_capability()[0] < 8:
            return refused("no-tf32-units", capability=list(torch.cuda.get_device_capability()))
        return self.switch()

    def switch(self) -> Outcome:
        """Both multiplications and convolutions; the latter are on by default."""
        matmul, cudnn = self._torch.backends.cuda.matmul, self._torch.backends.cudnn
        api = self._api()
        if api == "fp32_precision":
            if "tf32" in (matmul.fp32_precision, self._torch.backends.fp32_precision):
                return already("script-set-it", api=api)
            self._before = {"matmul": matmul.fp32_precision, "conv": cudnn.conv.fp32_precision}
            matmul.fp32_precision = cudnn.conv.fp32_precision = "tf32"
        else:
            if matmul.allow_tf32:
                return already("script-set-it", api=api)
            self._before = {"allow_matmul": matmul.allow_tf32, "allow_cudnn": cudnn.allow_tf32, **self._named()}
            matmul.allow_tf32 = cudnn.allow_tf32 = True
        return applied(api=api)

    def take_off(self) -> None:
        if not self._before:
            return
        matmul, cudnn = self._torch.backends.cuda.matmul, self._torch.backends.cudnn
        before, self._before = self._before, {}
        if "allow_matmul" in before:
            matmul.allow_tf32, cudnn.allow_tf32 = before["allow_matmul"], before["allow_cudnn"]
        # The old interface leaves "ieee" where nothing was said before ("none").
        owners: dict[str, Any] = {"matmul": matmul, "conv": getattr(cudnn, "conv", None)}
        for name, owner in owners.items():
            if name in before and owner.fp32_precision != before[name]:
                owner.fp32_precision = before[name]

    def proof(self) -> Outcome:
        matmul = self._torch.backends.cuda.matmul
        on = matmul.fp32_precision == "tf32" if self._api() == "fp32_precision" else matmul.allow_tf32
        return applied(api=self._api()) if on else refused("flag-lost")

    def _api(self) -> str:
        """Reading the old flag raises once the new one was set to something else."""
        if not self._named():
            return "allow_tf32"
        try:
            _ = self._torch.backends.cuda.matmul.allow_tf32, self._torch.backends.cudnn.allow_tf32
        except RuntimeError:
            return "fp32_precision"
        return "allow_tf32"

    def _named(self) -> dict[str, Any]:
        matmul, cudnn = self._torch.backends.cuda.matmul, self._torch.backends.cudnn
        try:
            return {"matmul": matmul.fp32_precision, "conv": cudnn.conv.fp32_precision}
        except AttributeError:
            return {}
