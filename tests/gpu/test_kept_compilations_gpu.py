"""Compiled variants that wait for their turn, with CUDA graphs: coming back is fast, the losses are the plain loop's."""

import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))
from stage import Stage, Training

from _flatout_agent.knobs.registry import KNOBS

sys.path.pop(0)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]


def losses(knobs_at, steps=96):
    """Of a small convolutional net over fixed batches; how long the first steps after each switch took."""
    torch.manual_seed(0)
    kinds = torch.nn
    net = kinds.Sequential(
        kinds.Conv2d(3, 16, 3), kinds.ReLU(), kinds.Conv2d(16, 16, 3), kinds.Flatten(), kinds.Linear(16 * 144, 5)
    )
    training = Training(model=lambda: net.cuda(), optimizer=lambda p: torch.optim.Adam(p, lr=1e-3))
    stage = Stage(training, KNOBS)
    stage.scene.device_type = "cuda"
    stage.scene.compilations.open = True
    x = torch.randn(8, 32, 3, 16, 16, generator=torch.Generator().manual_seed(1)).cuda()
    y = torch.randint(0, 5, (8, 32), generator=torch.Generator().manual_seed(2)).cuda()
    seen, took, proofs, began = [], [], [], 0.0
    for step in range(steps):
        if step in knobs_at:
            torch.cuda.synchronize()
            began = time.perf_counter()
            stage.board.set(knobs_at[step])
        loss = torch.nn.functional.cross_entropy(training.model(x[step % 8]), y[step % 8])
        loss.backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        seen.append(loss.detach().clone())
        if step - 7 in knobs_at:
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
            proofs.append(stage.board.proofs())
    stage.close()
    return [float(loss) for loss in seen], took, proofs


@pytest.mark.parametrize(
    "beside", [{}, {"precision": "bf16"}, {"channels_last": "on"}, {"channels_last": "on", "precision": "bf16"}]
)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_coming_back(mode, beside):
    on = {"compile": mode, **beside}
    plain, _, _ = losses({})
    ours, took, proofs = losses({8: on, 24: {}, 40: on, 56: {}, 72: on})
    print(mode, beside, [round(seconds, 3) for seconds in took])
    assert all(proof["compile"].status == "applied" for proof in proofs if proof), proofs
    assert took[2] < took[0] / 2
    assert took[4] < took[0] / 2
    assert ours == pytest.approx(plain, rel=0.05, abs=0.02)


def test_two_variants_in_turn():
    one, other = {"compile": "reduce-overhead"}, {"compile": "reduce-overhead", "precision": "bf16"}
    plain, _, _ = losses({})
    ours, took, proofs = losses({8: one, 24: other, 40: one, 56: other, 72: one})
    print("in turn", [round(seconds, 3) for seconds in took])
    assert all(proof["compile"].status == "applied" and proof["compile"].details["recompiles"] == 0 for proof in proofs), proofs
    assert max(took[2:]) < min(took[:2]) / 2
    assert ours == pytest.approx(plain, rel=0.05, abs=0.02)
