"""compile=graphs on a real card: recorded and replayed, the same training to the bit, refused where it must be."""

import random
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from _flatout_agent.knobs.knob import EXACT, Scene
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.switchboard import Switchboard

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

STEPS = 24


class Pictures(nn.Module):
    """Statistics, dropout, a convolution: what a recording could get wrong."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2)
        )
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(16 * 49, 5)

    def forward(self, x):
        return self.head(self.drop(self.features(x).flatten(1)))


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 32, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        y, _ = self.rnn(x.flatten(2).transpose(1, 2).reshape(x.shape[0], -1, 16))
        return self.head(y.mean(dim=1))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(256, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.encoder(self.lift(x.flatten(2))).mean(dim=1))


class Waiting(Pictures):
    """Asks the device for a number: cannot be recorded."""

    def forward(self, x):
        return super().forward(x) * (1.0 if bool((x.sum() > 0).any()) else 0.5)


class Drawing(Pictures):
    def forward(self, x):
        return super().forward(x) * (0.5 if torch.rand(()) < 0.5 else 1.0)


class Moving(Pictures):
    """Makes something on the host at every call, and takes it to the device."""

    def forward(self, x):
        return super().forward(x) * torch.ones(5).to(x.device)


class Sparse(Pictures):
    """Where the size of something depends on numbers."""

    def forward(self, x):
        out = super().forward(x)
        return out + 0 * out[out > 0].sum()


def batches(last=16):
    own = torch.Generator().manual_seed(1)
    sizes = [16] * (STEPS - 1) + [last]
    return [(torch.randn(n, 3, 16, 16, generator=own), torch.randint(0, 5, (n,), generator=own)) for n in sizes]


def train(kind, values, at_step=lambda step, model, optimizer: None, pieces=1, last=16):
    """(losses, weights, proof, what it was found to be) of one training."""
    torch.manual_seed(0)
    random.seed(0)
    model = kind().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scene = Scene(torch, "cuda")
    scene.found([model], [optimizer])
    board = Switchboard(scene, KNOBS)
    board.set(values)
    losses = []
    for step, (x, y) in enumerate(batches(last)):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        (loss / pieces).backward()
        if step % pieces == pieces - 1:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        at_step(step, model, optimizer)
    torch.cuda.synchronize()
    proof, numerics = board.proofs().get("compile"), board.numerics().get("compile")
    board.clear()
    return torch.stack(losses).cpu(), {name: t.cpu() for name, t in model.state_dict().items()}, proof, numerics


@pytest.fixture(autouse=True)
def same_kernels():
    """Sums in one order, so that bits can be compared."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before


def same(kind, at_step=lambda step, model, optimizer: None, beside=None, **how):
    beside = beside or {}
    losses, weights, _, _ = train(kind, beside, at_step, **how)
    seen, ended, proof, numerics = train(kind, {**beside, "compile": "graphs"}, at_step, **how)
    assert torch.equal(seen, losses), (proof, (seen - losses).abs().max())
    assert all(torch.equal(ended[name], weights[name]) for name in weights)
    return proof, numerics


@pytest.mark.parametrize("kind", [Pictures, Speech, Attending])
def test_the_same_bits(kind):
    proof, numerics = same(kind)
    assert proof.status == "applied", proof
    assert proof.details["replays"] == STEPS - 1
    assert numerics == EXACT


@pytest.mark.parametrize("kind", [Pictures, Speech, Attending])
def test_the_same_bits_in_bf16(kind):
    proof, _ = same(kind, beside={"precision": "bf16"})
    assert proof.status == "applied", proof


def test_accumulation_and_a_smaller_last_batch():
    proof, _ = same(Pictures, pieces=3, last=7)
    assert proof.status == "applied", proof


def freeze(step, model, optimizer):
    if step == 9:
        model.features[0].weight.requires_grad_(False)


def other_memory(step, model, optimizer):
    if step == 9:
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()


def less_dropout(step, model, optimizer):
    if step == 9:
        model.drop.p = 0.1


def evaluated(step, model, optimizer):
    if step % 8 == 7:
        model.eval()
        with torch.no_grad():
            model(torch.ones(4, 3, 16, 16, device="cuda"))
        model.train()


def seeded(step, model, optimizer):
    if step == 9:
        torch.manual_seed(7)


@pytest.mark.parametrize("change", [freeze, other_memory, less_dropout, evaluated, seeded], ids=lambda f: f.__name__)
def test_a_change_in_mid_training_is_followed(change):
    proof, _ = same(Pictures, change)
    assert proof.status == "applied", proof


@pytest.mark.parametrize("kind", [Waiting, Drawing, Moving, Sparse])
def test_what_cannot_be_recorded_trains_on_as_if_nothing_had_been_tried(kind):
    proof, _ = same(kind)
    assert proof.status == "refused"
    assert proof.code in ("cannot-be-recorded", "host-draws", "python-may-differ"), proof


def test_the_generator_survives_a_recording_that_fails():
    """Past the look for what waits: the recording itself breaks, in the middle of its draws."""
    from _flatout_agent.knobs.graphs.graph_recording import Recorder

    class Blind(Recorder):
        def no_waiting(self):
            import contextlib

            return contextlib.nullcontext()

    from _flatout_agent.knobs.graphs import training_graphs

    before, training_graphs.Graphs.recorder = training_graphs.Graphs.recorder, Blind
    try:
        proof, _ = same(Sparse)
    finally:
        training_graphs.Graphs.recorder = before
    assert proof.code == "cannot-be-recorded", proof
    torch.nn.functional.dropout(torch.ones(8, device="cuda"))
    torch.cuda.synchronize()


class Language(nn.Module):
    """Returns the logits beside the loss, and reads its sizes from an object, as language models do."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(width=64, dropout=0.1)
        self.words = nn.Embedding(50, 64)
        self.block = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.head = nn.Linear(64, 50)

    def forward(self, words, targets=None):
        out = self.head(self.block(self.words(words) * self.config.width**0.5))
        return out, None if targets is None else nn.functional.cross_entropy(out.view(-1, 50), targets.view(-1))


def train_language(values):
    torch.manual_seed(0)
    model = Language().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scene = Scene(torch, "cuda")
    scene.found([model], [optimizer])
    board = Switchboard(scene, KNOBS)
    board.set(values)
    losses = []
    for step in range(STEPS):
        words = torch.randint(0, 50, (8, 33), generator=torch.Generator().manual_seed(step)).cuda()
        out, loss = model(words[:, :-1].contiguous(), targets=words[:, 1:].contiguous())
        if step % 6 == 5:
            loss = loss + 1e-3 * out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    proof = board.proofs().get("compile")
    board.clear()
    return torch.stack(losses).cpu(), {name: t.cpu() for name, t in model.state_dict().items()}, proof


def test_a_loss_beside_logits():
    losses, weights, _ = train_language({})
    seen, ended, proof = train_language({"compile": "graphs"})
    assert proof.status == "applied", proof
    assert proof.details["replays"] == STEPS - 1
    assert torch.equal(seen, losses)
    assert all(torch.equal(ended[name], weights[name]) for name in weights)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("beside", [{}, {"precision": "bf16"}])
def test_a_validation_between_steps(guard, beside):
    seen = {}

    def validated(step, model, optimizer):
        if step % 8 == 7:
            model.eval()
            with guard(), torch.autocast("cuda", torch.bfloat16, enabled=bool(beside)):
                own = torch.Generator(device="cuda").manual_seed(step)
                outs = [model(torch.randn(32, 3, 16, 16, device="cuda", generator=own)) for _ in range(12)]
            model.train()
            seen.setdefault(validated.run, []).extend(out.float().cpu() for out in outs)

    validated.run = "plain"
    train(Pictures, beside, validated)
    validated.run = "replayed"
    _, _, proof, _ = train(Pictures, {**beside, "compile": "graphs"}, validated)
    assert all(torch.equal(one, own) for one, own in zip(seen["replayed"], seen["plain"], strict=True))
    assert proof.details["evaluations"] == 3 * 12 - 9


def train_adversaries(values):
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 48)).cuda()
    critic = nn.Sequential(nn.Linear(48, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)).cuda()
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (maker, critic)]
    scene = Scene(torch, "cuda")
    scene.found([maker, critic], optimizers)
    board = Switchboard(scene, KNOBS)
    board.set(values)
    yes, losses = nn.functional.softplus, []
    for _ in range(STEPS):
        made = maker(torch.randn(8, 16, device="cuda"))
        critic.zero_grad()
        maker.zero_grad()
        yes(-critic(torch.randn(8, 48, device="cuda"))).mean().backward()
        yes(critic(made.detach())).mean().backward()
        optimizers[1].step()
        loss = yes(-critic(made)).mean()
        loss.backward()
        optimizers[0].step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    proof = board.proofs().get("compile")
    board.clear()
    return torch.stack(losses).cpu(), [tensor.cpu() for part in (maker, critic) for tensor in part.state_dict().values()], proof


def test_two_optimizers_in_turn():
    losses, weights, _ = train_adversaries({})
    seen, ended, proof = train_adversaries({"compile": "graphs"})
    assert proof.status == "applied", proof
    assert torch.equal(seen, losses)
    assert all(torch.equal(one, other) for one, other in zip(ended, weights, strict=True))
