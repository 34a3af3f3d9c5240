"""A batch that does not fit: split, replayed, the gradients of the whole; refused where it would mean something else."""

import copy

import pytest
import torch
from torch import nn
from trainings import LOSS, seed

from flatout import TrainingAccelerator
from flatout.api.errors import SplitError
from flatout.api.splitting import parts_of


class Memory(nn.Module):
    """Stands for a card that holds the activations of so many samples: the one thing that a processor cannot show."""

    def __init__(self, room, fails_in_backward=False):
        super().__init__()
        self.room = room
        self.fails_in_backward = fails_in_backward
        self.failures = 0

    def forward(self, x):
        return _Held.apply(x, self) if self.fails_in_backward else self.held(x)

    def held(self, x):
        if len(x) > self.room:
            self.failures += 1
            raise torch.cuda.OutOfMemoryError(f"CUDA out of memory: {len(x)} samples")
        return x


class _Held(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, memory):
        ctx.memory = memory
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.memory.held(gradient), None


def begun(room, fails_in_backward=False, dropout=0.0, middle=None, **config):
    seed()
    layers = [
        nn.Linear(6, 12),
        Memory(room, fails_in_backward),
        *([middle] if middle else []),
        nn.Dropout(dropout),
        nn.Linear(12, 3),
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accelerator = TrainingAccelerator(config)
    accelerator.prepare(model, optimizer)
    return accelerator, model, optimizer


def batch(samples=32):
    own = torch.Generator().manual_seed(3)
    return torch.randn(samples, 6, generator=own), torch.randint(0, 3, (samples,), generator=own)


def mean_loss(model):
    return lambda part: LOSS(model(part[0]), part[1])


def gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def whole_gradients(model, data, loss=None):
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, Memory):
            module.room = 10**9
    for parameter in twin.parameters():
        parameter.grad = None
    value = (loss or mean_loss)(twin)(data)
    (value[0] if isinstance(value, tuple) else value).backward()
    return gradients(twin)


def close(one, other):
    """float32, sums in another order: 1e-5 of the value, 1e-7 near zero."""
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("fails_in_backward", [False, True])
@pytest.mark.parametrize("samples", [32, 27])
def test_the_gradients_are_those_of_the_whole_batch(fails_in_backward, samples):
    accelerator, model, _ = begun(9, fails_in_backward)
    data = batch(samples)
    expected = whole_gradients(model, data)
    loss = accelerator.train_on(data, mean_loss(model))
    assert accelerator.parts == 4
    close(gradients(model), expected)
    torch.testing.assert_close(loss, LOSS(copy_without_memory(model)(data[0]), data[1]).detach(), rtol=1e-5, atol=1e-6)


def copy_without_memory(model):
    return nn.Sequential(*[layer for layer in copy.deepcopy(model) if not isinstance(layer, Memory)])


def test_what_was_accumulated_before_is_kept_and_nothing_counts_twice():
    accelerator, model, optimizer = begun(9, fails_in_backward=True, gradient_accumulation_steps=2)
    first, second = batch(8), batch(32)
    expected = [(a + b) / 2 for a, b in zip(whole_gradients(model, first), whole_gradients(model, second), strict=True)]
    accelerator.train_on(first, mean_loss(model))
    assert not accelerator.step(optimizer)
    accelerator.train_on(second, mean_loss(model))
    close(gradients(model), expected)
    assert accelerator.step(optimizer)
    assert accelerator.steps == 1


def test_the_replayed_batch_draws_from_where_the_first_attempt_began():
    """With dropout the parts draw in their order, from the state before the batch: defined, and the same every time."""
    found = []
    for _ in range(2):
        accelerator, model, _ = begun(9, dropout=0.5)
        torch.manual_seed(11)
        accelerator.train_on(batch(), mean_loss(model))
        found.append((gradients(model), torch.get_rng_state()))
    assert all(torch.equal(a, b) for a, b in zip(found[0][0], found[1][0], strict=True))
    accelerator, model, _ = begun(9, dropout=0.5)
    accelerator._splitter.parts = 4  # known from the start: no failed attempts
    torch.manual_seed(11)
    accelerator.train_on(batch(), mean_loss(model))
    assert all(torch.equal(a, b) for a, b in zip(found[0][0], gradients(model), strict=True))
    assert torch.equal(found[0][1], torch.get_rng_state())


def test_it_grows_back_when_there_is_room_again():
    accelerator, model, optimizer = begun(9)
    memory = model[1]
    counts = []
    for number in range(180):
        if number == 5:
            memory.room = 100
        accelerator.train_on(batch(), mean_loss(model))
        accelerator.step(optimizer)
        counts.append(accelerator.parts)
    assert counts[4] == 4
    assert counts[60] == 2
    assert counts[-1] == 1
    assert memory.failures == 2  # 32 and 16 samples, at the beginning


def test_growing_too_early_is_taken_back_and_tried_less_often():
    accelerator, model, optimizer = begun(9)
    for _ in range(260):
        accelerator.train_on(batch(), mean_loss(model))
        accelerator.step(optimizer)
    assert accelerator.steps == 260
    assert model[1].failures <= 2 + 3


def test_batchnorm_is_refused_with_the_reason():
    accelerator, model, _ = begun(9, middle=nn.BatchNorm1d(12))
    with pytest.raises(SplitError, match=r"0\.2 is a BatchNorm"):
        accelerator.train_on(batch(), mean_loss(model))
    assert all(parameter.grad is None for parameter in model.parameters())
    model[2].eval()  # frozen, it does not look at the batch
    accelerator.train_on(batch(), mean_loss(model))
    assert accelerator.parts == 4


def token_mean(model):
    """A mean over those that are not masked, as language models have it."""

    def compute(part):
        x, y = part
        return nn.functional.cross_entropy(model(x), y, ignore_index=0)

    return compute


def token_mean_with_weight(model):
    return lambda part: (token_mean(model)(part), (part[1] != 0).sum())


def test_a_mean_over_tokens_is_refused_and_with_weights_is_right():
    data = batch()
    data[1][:4] = torch.tensor([0, 0, 0, 1])
    accelerator, model, _ = begun(9)
    with pytest.raises(SplitError, match=r"\(loss, weight\)"):
        accelerator.train_on(data, token_mean(model))
    assert all(parameter.grad is None for parameter in model.parameters())
    expected = whole_gradients(model, data, token_mean)
    loss = accelerator.train_on(data, token_mean_with_weight(model))
    close(gradients(model), expected)
    torch.testing.assert_close(loss, token_mean(copy_without_memory(model))(data).detach(), rtol=1e-5, atol=1e-6)


def test_a_mean_over_tokens_whose_losses_are_alike_is_refused_too():
    """As of a language model that has learned nothing yet: every token costs about the same."""
    data = batch()
    data[1][:4] = torch.tensor([0, 1, 2, 1])
    accelerator, model, _ = begun(9)
    with torch.no_grad():
        model[-1].weight.mul_(0.05)
        model[-1].bias.zero_()
    with pytest.raises(SplitError, match=r"\(loss, weight\)"):
        accelerator.train_on(data, token_mean(model))


def test_a_mean_over_tokens_is_found_when_padding_comes_later():
    full, padded = batch(), batch()
    full[1][full[1] == 0] = 1
    padded[1][:4] = torch.tensor([0, 1, 2, 1])
    accelerator, model, optimizer = begun(9)
    for _ in range(3):
        accelerator.train_on(full, token_mean(model))
        accelerator.step(optimizer)
    refused = 0
    for _ in range(5):
        try:
            accelerator.train_on(padded, token_mean(model))
        except SplitError:
            refused += 1
        accelerator.step(optimizer)
    assert refused


def test_a_part_without_a_single_token():
    data = batch()
    data[1][:8] = 0
    data[1][8:] = torch.clamp(data[1][8:], min=1)
    accelerator, model, _ = begun(9)
    expected = whole_gradients(model, data, token_mean)
    loss = accelerator.train_on(data, token_mean_with_weight(model))
    assert torch.isfinite(loss)
    close(gradients(model), expected)


def test_weights_count_where_not_even_the_measured_piece_fits():
    data = batch()
    data[1][:4] = torch.tensor([0, 0, 0, 1])
    accelerator, model, _ = begun(1)
    expected = whole_gradients(model, data, token_mean)
    accelerator.train_on(data, token_mean_with_weight(model))
    close(gradients(model), expected)


def test_a_sum_over_samples_stays_a_sum():
    def total(model):
        return lambda part: nn.functional.cross_entropy(model(part[0]), part[1], reduction="sum")

    accelerator, model, _ = begun(9)
    expected = whole_gradients(model, batch(), total)
    accelerator.train_on(batch(), total(model))
    for one, other in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_where_not_even_one_sample_fits():
    accelerator, model, _ = begun(0)
    with pytest.raises(SplitError, match="Not even one sample"):
        accelerator.train_on(batch(4), mean_loss(model))


def test_switched_off_it_is_torchs_own_error():
    accelerator, model, _ = begun(9, split_batches=False)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        accelerator.train_on(batch(), mean_loss(model))


def test_other_errors_are_the_users_own_and_leave_the_gradients_alone():
    accelerator, model, optimizer = begun(100, gradient_accumulation_steps=2)
    accelerator.train_on(batch(8), mean_loss(model))
    accelerator.step(optimizer)
    before = gradients(model)
    with pytest.raises(ZeroDivisionError):
        accelerator.train_on(batch(8), lambda part: 1 / 0)
    assert all(torch.equal(a, b) for a, b in zip(before, gradients(model), strict=True))


def test_parts_of_batches_as_people_have_them():
    x = torch.arange(10.0).reshape(5, 2)
    data = {"x": x, "names": list("abcde"), "scale": torch.tensor(2.0), "both": (x + 1, [x * 2])}
    parts = list(parts_of(data, 2))
    assert [samples for _, samples in parts] == [2, 3]
    assert torch.equal(torch.cat([part["x"] for part, _ in parts]), x)
    assert [name for part, _ in parts for name in part["names"]] == list("abcde")
    assert all(part["scale"] is data["scale"] for part, _ in parts)
    assert torch.equal(parts[1][0]["both"][1][0], x[2:] * 2)
    assert [samples for _, samples in parts_of((x[:3],), 8)] == [1, 1, 1]
