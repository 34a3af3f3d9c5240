"""Mixed precision: the roots run under autocast while they train, and give back what they would have given: float32.

The script's loss code sees float32 and runs outside autocast, so losses are computed in full precision, as autocast
itself would have them. Weights, gradients and the optimizer's state stay float32.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.arithmetic_dtype import Witness
from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.loss_scale import LossScale
from _flatout_agent.knobs.module_wrapper import Layer, Outfit, Run
from _flatout_agent.knobs.nested_tensors import changed_tensors
from _flatout_agent.knobs.root_modules import casts_low

SPELLINGS = {True: "auto", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


class AutocastLayer(Layer):
    """Autocast around one root, and float32 out of it."""

    rank = 10

    def __init__(self, torch: Any, device_type: str, dtype: Any) -> None:
        self._torch = torch
        self._device_type = device_type
        self.dtype = dtype
        self.calls = 0
        self.script_casts = 0  # calls that came in under the script's own autocast
        self.left_low = False  # a result came out of the forward pass in low precision, and was cast back
        self.witness: Witness | None = Witness(torch, dtype)

    def looks(self) -> bool:
        return self.witness is not None and not self.calls and not self.script_casts

    def wrap(self, inner: Run) -> Run:
        torch, device_type, dtype = self._torch, self._device_type, self.dtype
        autocast = torch.autocast

        def raised(tensor: Any) -> Any:
            if tensor.dtype is dtype:
                self.left_low = True
                return tensor.float()
            return tensor

        def run(module: Any, args: Any, kwargs: Any) -> Any:
            if casts_low(torch, device_type):
                self.script_casts += 1
                return inner(module, args, kwargs)
            self.calls += 1
            with autocast(device_type, dtype):
                if self.witness is None:
                    answer = inner(module, args, kwargs)
                else:
                    answer = self.witness.watch(inner, module, args, kwargs)
                    if self.witness.has_seen_enough():
                        self.witness = None
            return changed_tensors(torch, answer, raised)

        return run


class Precision(Knob):
    name = "precision"

    def __init__(self) -> None:
        self._worn: list[tuple[Outfit, AutocastLayer]] = []
        self._witnesses: list[Witness] = []
        self._scale: LossScale | None = None

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        return cls._obstacle(scene, value)

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        torch = scene.torch
        wanted = SPELLINGS.get(value, value)
        chosen = best_precision(torch, torch.device(scene.device_type)) if wanted == "auto" else wanted
        if chosen not in ("bf16", "fp16"):
            return refused("no-fast-low-precision" if wanted == "auto" else "unknown-value", value=str(value))
        dtype = torch.bfloat16 if chosen == "bf16" else torch.float16
        outcome = self._obstacle(scene, chosen)
        if outcome is not None:
            return outcome
        if chosen == "fp16":
            self._scale = LossScale(torch, self._drop_layers)
            why = self._scale.put_on(scene)
            if why is not None:
                return refused(why[0], **why[1])
        for root in scene.roots:
            layer = AutocastLayer(torch, scene.device_type, dtype)
            outfit = scene.wardrobe.outfit(root)
            self._worn.append((outfit, layer))
            if layer.witness is not None:
                self._witnesses.append(layer.witness)
            outfit.wear(layer)
        return applied(dtype=chosen, roots=len(self._worn))

    @staticmethod
    def _obstacle(scene: Scene, chosen: str) -> Outcome | None:
        torch = scene.torch
        if not scene.roots:
            return refused("no-roots-found")
        if scene.autocast_seen:
            return already("script-uses-autocast")
        if chosen == "bf16" and scene.has_cuda() and torch.cuda.get_device_capability()[0] < 8:
            return refused("no-bf16-units", capability=list(torch.cuda.get_device_capability()))
        for root in scene.roots:
            why = scene.wardrobe.obstacle(root)
            if why is not None:
                return refused(why[0], **why[1])
            kinds = {str(p.dtype) for p in root.parameters() if p.is_floating_point()}
            if kinds & {"torch.bfloat16", "torch.float16"}:
                return already("parameters-in-low-precision", dtypes=sorted(kinds))
            if kinds - {"torch.float32"}:
                return refused("parameters-not-float32", dtypes=sorted(kinds))
        return None

    def _drop_layers(self) -> None:
        for outfit, layer in self._worn:
            outfit.drop(layer)

    def take_off(self) -> None:
        self._drop_layers()
        if self._scale is not None:
            self._scale.take_off()

    def proof(self) -> Outcome:
        layers = [layer for _, layer in self._worn]
        faults = [layer.fault for layer in layers if layer.fault]
        if faults:
            return refused("raised", error=faults[0])
        if self._scale is not None and self._scale.fault:
            return refused(self._scale.fault)
        if any(layer.script_casts for layer in layers) and not any(layer.calls for layer in layers):
            return already("script-uses-autocast")
        if not any(layer.calls for layer in layers):
            return refused("not-called-yet" if all(o.is_worn() for o, _ in self._worn) else "class-set-by-script")
        operations = sorted(set().union(*(witness.operations for witness in self._witnesses)))
        left_low = any(layer.left_low for layer in layers)
        if not operations and not left_low:
            return refused("no-operation-in-low-precision", calls=sum(layer.calls for layer in layers))
        details: dict[str, Any] = {
            "dtype": str(layers[0].dtype)[6:],
            "operations": operations[:8],
            "output_cast_back": left_low,
        }
        if self._scale is not None:
            details.update(self._scale.told())
        return applied(**details)


def best_precision(torch: Any, device: Any) -> str:
    """bf16 where the hardware multiplies it, fp16 on older cards; on a processor only with units for it."""
    if device.type == "cuda" and torch.cuda.is_available():
        return "bf16" if torch.cuda.get_device_capability(device)[0] >= 8 else "fp16"
    if device.type not in ("cpu", "cuda"):
        return "no"
    units = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return "bf16" if any(unit is not None and unit() for unit in units) else "no"
