"""Steps that are only glanced at: the account stays right, and whatever is not the plain loop ends it."""

import time

import pytest

torch = pytest.importorskip("torch")

from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset, dataloader

from _flatout_agent.core.patches import Patches
from _flatout_agent.start import install
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks import compile_time, sampled_step_rows, step_sampling
from _flatout_agent.timeline.hooks.optimizer_steps import Steps
from _flatout_agent.timeline.phase_totals import BACKWARD, CHECKPOINT, COPY, FORWARD, INPUT, OPTIMIZER, SCRIPT, VALIDATION
from _flatout_agent.timeline.step_clock import StepClock

PLAIN = (dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward)


class Scene:
    """A training whose observers on tensors rest."""

    def __init__(self):
        self.patches = Patches()
        self.tape = Tape(StepClock(time.perf_counter_ns()), lambda now: None)
        self.tensors = install(torch, self.tape, self.patches)
        self.clock = self.tape.clock
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.glanced = 0

    def step(self, x, slow=0.0):
        loss = self.model(x).square().mean()
        time.sleep(slow)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.glanced += not self.tape.whole

    def settle(self, batches, steps=40):
        """Until the loop has proved to be plain; the readings of the tape are ours."""
        for number, (x,) in zip(range(steps), batches, strict=False):
            self.step(x)
            if number == 1:
                self.rest()
        self.read(2)
        return self.tape.glancing

    def rest(self):
        self.tensors.rest()
        self.tape.tell()
        self.tape.glances.begin_look(time.perf_counter_ns())

    def read(self, seconds):
        self.tape.tell()
        self.tape.glances.consider(time.perf_counter_ns() + seconds * 10**9)

    def finish(self):
        self.tape.finish()
        return self.clock


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.patches.take_off()
    assert (dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward) == PLAIN
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks


def loader(samples, size=4):
    return DataLoader(TensorDataset(torch.randn(samples, 3)), batch_size=size)


def test_every_step_sample_and_wait_is_in_the_account(scene):
    """Two thousand steps, a last batch that is smaller, and the time adds up to the wall's."""
    batches = iter(loader(4 * 2000 + 1))
    assert scene.settle(batches)
    for (x,) in batches:
        scene.step(x)
    assert scene.glanced > 1700
    ended = time.perf_counter_ns()
    clock = scene.finish()
    assert (clock.steps, clock.batches, clock.samples) == (2001, 2001, 8001)
    assert clock.backwards == 2001
    assert scene.tape.ticks == 2001
    assert abs(sum(clock.totals) - (ended - clock.began)) < 0.05 * (ended - clock.began)


def test_how_a_step_divides_is_taken_from_those_seen_whole(scene):
    batches = iter(loader(4 * 200))
    for number, (x,) in zip(range(40), batches, strict=False):
        scene.step(x, slow=0.002)
        scene.clock.copied(100_000)  # as the observers on tensors would tell
        if number == 1:
            scene.rest()
    scene.tape.tell()
    scene.tape.glances.learn()
    scene.read(2)
    before = list(scene.clock.totals)
    for (x,) in batches:
        scene.step(x, slow=0.002)
    after = scene.finish().totals
    forward, backward, step, copied = (after[phase] - before[phase] for phase in (FORWARD, BACKWARD, OPTIMIZER, COPY))
    assert forward > 0.6 * (forward + backward + step)
    assert backward > 0
    assert step > 0
    assert 0.01 < copied / (forward + backward + step) < 0.06
    assert after[INPUT] > before[INPUT]


def test_a_row_at_once_is_the_sum_of_its_steps():
    row = [(step * 100 + 3, step * 100 + 13, step % 4) for step in range(20)]
    ends = [asked for asked, _, _ in row[1:]] + [2000]
    clocks = StepClock(0), StepClock(0)
    for clock in clocks:
        clock.split = (5, 4, 3, 2, 1, 2)
        for step in range(-40, 0):
            clock.fetched(step * 100, step * 100 + 10, 4, 7)
            clock.backward_began(step * 100 + 20)
            clock.backward_ended(step * 100 + 30)
            clock.step_began(step * 100 + 35, 1)
            clock.step_ended(step * 100 + 40, 1)
    clocks[0].glanced_row(row, 2000, 1, 7)
    for (asked, came, size), ended in zip(row, ends, strict=True):
        clocks[1].fetched(asked, came, size, 7)
        clocks[1].glanced(ended, 1)
    for name in ("steps", "samples", "batches", "unsized_batches", "backwards", "_mark", "_state"):
        assert getattr(clocks[0], name) == getattr(clocks[1], name), name
    assert clocks[0].steps == 60
    assert sum(clocks[0].totals) == sum(clocks[1].totals)
    assert all(
        abs(a - b) <= 100 for a, b in zip(clocks[0].totals, clocks[1].totals, strict=True)
    )  # nanoseconds, rounded each step


def test_a_validation_in_between_is_told_from_training(scene):
    batches = iter(loader(4 * 300))
    assert scene.settle(batches)
    held_back = loader(40, size=5)
    for number, (x,) in enumerate(batches):
        scene.step(x)
        if number == 100:
            assert not scene.tape.whole
            with torch.no_grad():
                for (y,) in held_back:
                    scene.model(y)
                    time.sleep(0.001)
            assert scene.tape.whole
    clock = scene.finish()
    assert (clock.steps, clock.samples, clock.validation_batches) == (300, 1200, 8)
    assert clock.totals[VALIDATION] > 8e6


@pytest.mark.parametrize("whole", [False, True])
def test_batches_of_an_iterator_that_was_there_before(scene, whole):
    """`next(of_validation)` now and then, and no new iterator: as right as where every step is seen whole."""
    others = iter(loader(40, size=5))
    batches = iter(loader(4 * 300))
    assert scene.settle(batches)
    scene.tape.whole_only = whole
    for number, (x,) in enumerate(batches):
        scene.step(x)
        if number in (100, 150):
            with torch.no_grad():
                scene.model(next(others)[0])
    assert scene.glanced > 50 or whole
    clock = scene.finish()
    assert (clock.steps, clock.samples, clock.validation_batches) == (300, 1200, 2)


def test_a_step_left_out(scene):
    """As a scaler does when gradients overflow: the batch was trained on, and no step counts."""
    batches = iter(loader(4 * 300))
    assert scene.settle(batches)
    for number, (x,) in enumerate(batches):
        if number == 100:
            scene.model(x).square().mean().backward()
        else:
            scene.step(x)
    clock = scene.finish()
    assert (clock.steps, clock.batches, clock.samples, clock.backwards) == (299, 300, 1200, 300)


def test_a_loop_that_stops_at_the_last_batch(scene):
    """No end of the epoch is heard of, and its last batch is smaller than the others."""
    batches = iter(loader(4 * 200 + 1))
    assert scene.settle(batches)
    for number, (x,) in enumerate(batches, 41):
        scene.step(x)
        if number == 201:
            break
    assert not scene.tape.whole
    clock = scene.finish()
    assert (clock.steps, clock.samples, clock.unsized_batches) == (201, 801, 0)


def test_batches_of_different_sizes(scene):
    """Put together by the script: only the batch itself can tell."""

    def without_some(samples):
        return [torch.stack([x for x, _ in samples if x[0] > 0.5])]

    data = torch.rand(4 * 300, 3)
    data[::4] = 1.0
    counted = 0
    batches = iter(DataLoader(TensorDataset(data, data), batch_size=4, collate_fn=without_some))
    for number, (x,) in enumerate(batches):
        counted += len(x)
        scene.step(x)
        if number == 1:
            scene.rest()
        if number == 40:
            scene.read(2)
    assert scene.glanced > 100
    assert scene.finish().samples == counted


@pytest.mark.parametrize("stops", [150, 300])
def test_the_next_batch_is_fetched_before_the_step(scene, stops):
    batches = iter(loader(4 * 301))
    x = next(batches)[0]
    for number in range(stops):
        ahead = next(batches)[0]
        scene.step(x)
        x = ahead
        if number == 1:
            scene.rest()
        if number > 40:
            scene.read(2 * number)
    assert scene.glanced > 50
    clock = scene.finish()
    assert clock.steps == stops
    assert stops * 4 <= clock.samples <= stops * 4 + 4


def test_another_optimizer_ends_it_within_the_row(scene):
    batches = iter(loader(4 * 1000))
    assert scene.settle(batches)
    other = torch.optim.SGD(scene.model.parameters(), lr=0.01)
    for number, (x,) in enumerate(batches):
        scene.step(x)
        if number >= 100:
            other.step()
    assert 100 < scene.glanced < 800
    clock = scene.finish()
    assert (clock.samples, clock.batches) == (4000, 1000)
    assert 1000 <= clock.steps < 1600  # those of a row were taken for steps of the one


def test_steps_without_a_batch_are_counted(scene):
    """The loader's iterator is still held, and nothing is asked of it any more."""
    batches = iter(loader(4 * 100))
    assert scene.settle(batches)
    x = torch.zeros(4, 3)
    for _ in range(500):
        scene.step(x)
    assert scene.finish().steps == 540


def test_a_checkpoint_and_what_comes_after_the_last_step_are_not_the_steps(scene, tmp_path):
    batches = iter(loader(4 * 200))
    assert scene.settle(batches)
    parts = (FORWARD, BACKWARD, OPTIMIZER)
    before, spent = sum(scene.clock.totals[part] for part in parts), 0.0
    for number, (x,) in zip(range(100), batches, strict=False):
        began = time.perf_counter()
        scene.step(x)
        spent += time.perf_counter() - began
        if number == 50:
            time.sleep(0.2)
            torch.save(scene.model.state_dict(), tmp_path / "kept.pt")
            scene.read(2 * number)
    time.sleep(0.3)
    clock = scene.finish()
    assert clock.steps == 140
    assert clock.totals[SCRIPT] > 0.3e9
    assert sum(clock.totals[part] for part in parts) - before < (spent + 0.1) * 1e9
    assert clock.totals[CHECKPOINT] > 0


def test_epochs_follow_each_other(scene):
    data = loader(4 * 100 + 2)
    assert scene.settle(iter(data))
    for _ in range(3):
        for (x,) in data:
            scene.step(x)
            scene.read(2)
    clock = scene.finish()
    assert (clock.steps, clock.samples) == (40 + 3 * 101, 160 + 3 * 402)


class Raises(Dataset):
    def __len__(self):
        return 4 * 300

    def __getitem__(self, index):
        if index == 600:
            raise LookupError("of the script's own")
        return (torch.zeros(3),)


def test_what_a_loader_raises_reaches_the_script(scene):
    batches = iter(DataLoader(Raises(), batch_size=4))
    assert scene.settle(batches)
    seen = None
    try:
        for (x,) in batches:
            scene.step(x)
    except LookupError as error:
        seen = str(error)
    assert seen == "of the script's own"
    assert scene.glanced > 50
    assert scene.finish().samples == 600


@pytest.mark.parametrize("kept", [lambda x: x, lambda x: None, lambda x: ["a", "b"], lambda x: [torch.tensor(1.0)]])
def test_batches_of_any_kind(scene, kept):
    x = torch.zeros(4, 3)
    data = DataLoader(TensorDataset(torch.zeros(400, 3)), batch_size=4, collate_fn=kept)
    seen = []
    for number, batch in enumerate(data):
        seen.append(batch)
        scene.step(x)
        if number == 1:
            scene.rest()
        if number == 40:
            scene.read(2)
    assert len(seen) == 100
    assert scene.glanced
    assert scene.finish().steps == 100


def test_a_loop_without_a_loader(scene):
    x = torch.zeros(4, 3)
    for number in range(200):
        scene.step(x)
        if number == 1:
            scene.rest()
        if number == 40:
            scene.read(2)
    assert scene.glanced > 100
    assert scene.finish().steps == 200


@pytest.mark.parametrize("why", ["dynamo", "whole_only", "every_loss"])
def test_where_every_step_is_wanted_whole(scene, why):
    setattr(scene.tape, why, (lambda loss: None) if why == "every_loss" else True)
    assert not scene.settle(iter(loader(4 * 60)))
    assert scene.glanced == 0


def test_a_compilation_ends_it_within_a_row(scene):
    batches = iter(loader(4 * 400))
    assert scene.settle(batches)
    for number, (x,) in enumerate(batches):
        scene.step(x)
        if number == 100:
            scene.tape.dynamo = True
    assert scene.tape.whole
    assert scene.finish().steps == 400


def test_a_compilation_never_meets_the_hooks_of_a_glance(scene):
    batches = iter(loader(4 * 100))
    assert scene.settle(batches)
    scene.step(next(batches)[0])
    assert not scene.tape.whole
    compile_time._lift(scene.tape, scene.tensors)
    assert scene.tape.whole


def test_two_backward_passes_a_step_are_not_plain(scene):
    batches = iter(loader(4 * 100))
    for number, (x,) in enumerate(batches):
        scene.model(x).square().mean().backward()
        scene.step(x)
        if number == 1:
            scene.tensors.rest()
        scene.read(2 * number)
    assert scene.glanced == 0


def test_a_fault_of_ours_stays_here(scene, monkeypatch):
    batches = iter(loader(4 * 300))
    assert scene.settle(batches)

    raised = []

    def broken(self, *_):
        raised.append(self)
        raise RuntimeError("ours")

    monkeypatch.setattr(sampled_step_rows.Batches, "drain", broken)
    monkeypatch.setattr(Steps, "number_of", broken)
    for (x,) in batches:
        scene.step(x)
    monkeypatch.undo()
    assert raised
    assert scene.tape.whole


@pytest.mark.parametrize("broken", [(), ("drain",), ("end",)])
def test_a_batch_that_we_cannot_size_is_still_counted(broken, scene, monkeypatch):
    """And reaches the script, also where what notes it fails in its turn."""

    def raise_ours(*_):
        raise RuntimeError("ours")

    batches = iter(
        DataLoader(TensorDataset(torch.randn(4 * 100, 3)), batch_size=4, collate_fn=lambda x: [torch.stack([y for (y,) in x])])
    )
    assert scene.settle(batches)
    seen = 40
    monkeypatch.setattr(step_sampling, "size_of", raise_ours)
    for name in broken:
        monkeypatch.setattr(sampled_step_rows.Batches if name == "drain" else step_sampling.Glances, name, raise_ours)
    for (x,) in batches:
        scene.step(x)
        seen += 1
    monkeypatch.undo()
    assert seen == 100
    assert scene.glanced
    if not broken:
        clock = scene.finish()
        assert (clock.steps, clock.batches, clock.samples) == (100, 100, 4 * 99)


def test_a_forked_child_has_its_own_account(scene):
    batches = iter(loader(4 * 300))
    assert scene.settle(batches)
    for number, (x,) in enumerate(batches):
        scene.step(x)
        if number == 50:
            break
    assert not scene.tape.whole
    scene.clock.start_over()
    scene.tape.start_over()  # what a child does first
    assert scene.tape.whole
    scene.step(x)
    assert scene.finish().steps == 1
