"""What every device must keep that the library trains on: inherit, and say which. Shipped cases: the processor, CUDA."""

import pytest
import torch
from torch import nn
from trainings import LOSS, loop, same, seed, training, weights

from flatout import TrainingAccelerator
from flatout.api import placement


class DeviceContract:
    config: dict = {}  # noqa: RUF012 - what chooses the device
    precisions = ("bf16", "fp16")

    def begun(self, number=0, **config):
        accelerator = TrainingAccelerator({**self.config, **config})
        return accelerator, *accelerator.prepare(*training(number))

    def test_parameters_batches_and_state_are_on_one_device(self):
        """Properties 2 and 3."""
        accelerator, model, optimizer, loader = self.begun()
        for x, y in loader:
            accelerator.backward(LOSS(model(x), y))
            gradients = [parameter.grad for parameter in model.parameters()]
            accelerator.step(optimizer)
        everything = [x, y, *gradients, *model.parameters(), *model.buffers()]
        everything += [state["exp_avg"] for state in optimizer.state.values()]
        assert {tensor.device for tensor in everything} == {accelerator.device}
        assert placement.misplaced(model, accelerator.device, (x, y)) == []

    def test_it_learns(self):
        accelerator, model, optimizer, loader = self.begun()
        data = loader.dataset
        target = (data.x.to(accelerator.device), data.y.to(accelerator.device))

        def now():
            with accelerator.evaluate(model):
                return float(LOSS(model(target[0]).float(), target[1]))

        before = now()
        loop(accelerator, model, optimizer, loader, epochs=10)
        assert now() < 0.9 * before

    def test_mixed_precision_learns_the_same_and_stays(self):
        """Property 5, the part about stability; which is faster is measured, not promised."""
        results = {}
        for precision in ("no", *self.precisions):
            accelerator, model, optimizer, loader = self.begun(precision=precision)
            loop(accelerator, model, optimizer, loader, epochs=10)
            with accelerator.evaluate(model):
                x = loader.dataset.x.to(accelerator.device)
                results[precision] = float(LOSS(model(x).float(), loader.dataset.y.to(accelerator.device)))
            assert accelerator.precision == precision
            assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
        for precision in self.precisions:
            assert results[precision] == pytest.approx(results["no"], rel=0.1)

    def test_saved_and_resumed_to_the_bit(self, tmp_path):
        accelerator, model, optimizer, loader = self.begun()

        def each():
            if accelerator.steps == 4:
                accelerator.save(tmp_path / "last.pt")

        loop(accelerator, model, optimizer, loader, epochs=2, each=each)
        other, model_2, optimizer_2, loader_2 = self.begun(5)
        other.load(tmp_path / "last.pt")
        loop(other, model_2, optimizer_2, loader_2, epochs=2)
        assert same(weights(model), weights(model_2))

    def test_the_same_batches_in_the_same_order(self):
        seed(3)
        plain = [x.clone() for x, _ in training(3, noise=False)[2]]
        accelerator = TrainingAccelerator(self.config)
        found = [x.cpu() for x, _ in accelerator.optimize_data_loading(training(3, noise=False)[2])]
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))

    def test_a_tensor_elsewhere_is_named(self):
        accelerator, model, _, _ = self.begun()
        model[1].table = torch.zeros(3, device="meta")  # a plain attribute, which `.to` does not move
        batch = {"x": torch.zeros(2, device=accelerator.device), "mask": torch.zeros(2, device="meta")}
        assert placement.misplaced(model, accelerator.device, batch) == ["1.table (meta)", "batch['mask'] (meta)"]

    def test_parts_have_the_gradients_of_the_whole(self):
        accelerator, model, _, _ = self.begun()
        model.eval()  # no dropout
        x, y = torch.randn(32, 6, device=accelerator.device), torch.randint(0, 3, (32,), device=accelerator.device)
        found = []
        for parts in (1, 4):
            accelerator._splitter.parts = parts
            accelerator.train_on((x, y), lambda part: LOSS(model(part[0]), part[1]))
            found.append([parameter.grad.clone() for parameter in model.parameters()])
            model.zero_grad()
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)

    def test_nothing_of_the_model_is_wrapped(self):
        _, model, optimizer, _ = self.begun()
        assert isinstance(model, nn.Sequential)
        assert isinstance(optimizer, torch.optim.Adam)
