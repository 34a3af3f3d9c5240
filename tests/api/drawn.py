"""Models and batches that the property tests draw, on the processor and on a card."""

from collections import namedtuple

import torch
from device_seen import tensors
from examples import st
from torch import nn

Pair = namedtuple("Pair", "one two")

leaves = st.sampled_from([torch.float32, torch.int64, torch.bool]).map(lambda dtype: torch.zeros(4, 6, dtype=dtype))
nests = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=6,
)


def as_it_is(samples):
    return samples[0]


class Batches(torch.utils.data.Dataset):
    def __init__(self, extra):
        self.extra = extra

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return {"x": torch.randn(4, 6), "y": torch.randint(0, 3, (4,)), "extra": self.extra}


def sums(thing):
    """Touches everything of a batch, as a loss may."""
    return sum(part.float().sum() for part in tensors(thing)) * 0


def layers(draw):
    model = nn.Sequential()
    width = 6
    for _ in range(draw(st.integers(1, 3))):
        wider = draw(st.integers(2, 9))
        kind = draw(st.sampled_from(["plain", "norm", "batch"]))
        model.append(nn.Linear(width, wider))
        model.append({"plain": nn.Tanh(), "norm": nn.LayerNorm(wider), "batch": nn.BatchNorm1d(wider)}[kind])
        width = wider
    return model.append(nn.Linear(width, 3))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Linear(2, 3 * width)  # three places with two numbers each
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(3 * width, 3)

    def forward(self, x):
        query, key, value = self.enter(x.unflatten(1, (3, 2))).chunk(3, dim=-1)
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.leave(self.norm(seen + value).flatten(1))


KINDS = {
    "plain": lambda width: nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 3)),
    "norm": lambda width: nn.Sequential(nn.Linear(6, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 3)),
    "convolution": lambda width: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, width, 3), nn.BatchNorm1d(width), nn.ReLU(), nn.Flatten(), nn.Linear(4 * width, 3)
    ),
    "attention": lambda width: Attention(2 * width),
}


def assert_beside(plain, low, skipped):
    """Losses after each epoch, the first before any: within 0.03 and 3 %.

    A training whose scaler left some first steps out is that much behind: there it may be anywhere since the epoch before.
    """
    for epoch, loss in enumerate(low):
        allowed = plain[max(epoch - bool(skipped), 0) : epoch + 1]
        assert min(allowed) - 0.03 - 0.03 * plain[epoch] < loss < max(allowed) + 0.03 + 0.03 * plain[epoch], (
            plain,
            low,
            skipped,
        )
