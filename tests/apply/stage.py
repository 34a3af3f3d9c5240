"""What the knobs' tests share: a small training that runs in this process, with and without knobs."""

import random
from contextlib import contextmanager

import torch
from torch import nn

from _flatout_agent.core.patches import Patches
from _flatout_agent.knobs import script_source
from _flatout_agent.knobs.knob import Scene
from _flatout_agent.knobs.loader.iterator_handover import install
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.switchboard import Switchboard

# The tests' own files are no script's: what they say of checkpointing or of the allocator is not meant.
find_own_files = script_source.own_files
script_source.own_files = list

# The cores are shared, and sums in another order would be other bits.
torch.set_num_threads(1)


def seed(number=0):
    torch.manual_seed(number)
    random.seed(number)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(number)


class Pictures(torch.utils.data.Dataset):
    """Small pictures with labels; `noise` draws from the generator it names."""

    def __init__(self, size=48, noise=None):
        own = torch.Generator().manual_seed(1)
        self.x = torch.randn(size, 3, 8, 8, generator=own)
        self.y = torch.randint(0, 5, (size,), generator=own)
        self.noise = noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if self.noise == "torch":
            x = x + torch.randn(3, 8, 8) * 0.1
        elif self.noise == "random":
            x = x * random.random()
        elif self.noise == "numpy":
            import numpy

            x = x * float(numpy.random.rand())
        return x, self.y[index], index


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8 * 9, 5)

    def forward(self, x):
        return self.head(self.drop(self.features(x).flatten(1)))


class Training:
    """A plain loop of the script's: a model with dropout, momentum, shuffled batches."""

    def __init__(self, model=None, optimizer=None, dataset=None, epochs=2, **loader):
        seed(0)
        self.model = model() if model else Net()
        self.optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)))(self.model.parameters())
        loader = {"batch_size": 4, "shuffle": True, **loader}
        self.loader = torch.utils.data.DataLoader(dataset or Pictures(), **loader)
        self.epochs = epochs
        self.losses = []
        self.order = []
        self.steps = 0

    def run(self, at_step=lambda step: None):
        for _ in range(self.epochs):
            for x, y, index in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
                self.order.append(index.tolist())
                self.steps += 1
                at_step(self.steps)
        return self

    def weights(self):
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}


class Stage:
    """A training, its scene and its switchboard."""

    def __init__(self, training, kinds=KNOBS):
        self.training = training
        self.patches = Patches()
        self.scene = Scene(torch, "cpu")
        self.scene.found([training.model], [training.optimizer], [training.loader])
        self.board = Switchboard(self.scene, kinds)
        install(torch, self.scene.handover, self.patches)

    def close(self):
        self.board.clear()
        self.patches.take_off()


@contextmanager
def staged(training=None, kinds=KNOBS):
    stage = Stage(training or Training(), kinds)
    try:
        yield stage
    finally:
        stage.close()


def same_bits(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
