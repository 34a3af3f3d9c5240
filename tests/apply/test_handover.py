"""Loaders exchanged in mid-epoch: the same batches, order, length and weights; refusals; faults that stay ours."""

import gc
import os
import random
import signal
import sqlite3

import pytest

torch = pytest.importorskip("torch")

from stage import Pictures, Training, same_bits, seed, staged
from torch.utils.data import DataLoader, IterableDataset, Sampler, WeightedRandomSampler

from _flatout_agent.knobs.loader import worker_limits


@pytest.fixture(autouse=True)
def _room(monkeypatch):
    """As many workers as a test asks for, whatever this machine has."""
    monkeypatch.setattr(worker_limits, "processors", lambda: 8)
    gc.collect()
    yield
    gc.collect()


def run_with(schedule, **loader):
    """The training with these knobs set at these steps, and the proofs just before each change."""
    training = Training(epochs=3, **loader)
    proofs, outcomes = [], []
    with staged(training) as stage:
        stage.scene.handover.watch()

        def at(step):
            if step in schedule:
                proofs.append(stage.board.proofs())
                outcomes.append(stage.board.set(schedule[step]))

        training.run(at)
        proofs.append(stage.board.proofs())
        alive = stage.board.numerics()
    return training, proofs, outcomes, alive


SCHEDULES = {
    "0-2-1-0": {3: {"workers": 2}, 7: {"workers": 1}, 10: {}},
    "2 over an epoch's end": {5: {"workers": 2}, 20: {}},
    "persistent over two epochs": {5: {"workers": 2, "persistent_workers": "on"}, 30: {}},
    "prefetch changed": {2: {"workers": 2}, 5: {"workers": 2, "prefetch_factor": 4}, 9: {"workers": 2, "prefetch_factor": 1}},
    "on to the end": {1: {"workers": 2}},
    "persistent to the end": {1: {"workers": 1, "persistent_workers": "on"}},
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize("own", [0, 2])
def test_same_batches_order_steps_and_weights(schedule, own):
    settings = {"num_workers": own}
    plain = Training(epochs=3, **settings).run()
    schedule = {
        step: {**knobs, "workers": 3} if own and knobs.get("workers") == 2 else knobs for step, knobs in schedule.items()
    }
    training, _, outcomes, _ = run_with(schedule, **settings)
    assert all(outcome.status == "applied" for outcome in outcomes[0].values()), outcomes
    assert training.order == plain.order
    assert training.steps == plain.steps
    assert training.losses == plain.losses
    assert same_bits(training.weights(), plain.weights())


def test_the_scripts_persistent_workers():
    settings = {"num_workers": 2, "persistent_workers": True}
    plain = Training(epochs=3, **settings).run()
    training, _, _, _ = run_with({3: {"workers": 1}, 8: {"workers": 0}, 14: {"workers": 3}, 20: {}}, **settings)
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())


def test_from_workers_to_none_and_back():
    plain = Training(epochs=3, num_workers=2).run()
    training, proofs, _, _ = run_with({3: {"workers": 0}, 20: {}}, num_workers=2)
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())
    assert proofs[1]["workers"].details["workers_alive"] == 0


class EagerSampler(Sampler):
    """Draws its whole order from the global generator when it begins: each call of `iter` moves that."""

    def __init__(self, size):
        self.size = size
        self.begun = 0

    def __iter__(self):
        self.begun += 1
        return iter(torch.randperm(self.size).tolist())

    def __len__(self):
        return self.size


@pytest.mark.parametrize(
    ("own", "persistent"), [(2, True), *(pytest.param(*one, marks=pytest.mark.thorough) for one in ((0, False), (2, False)))]
)
def test_samplers_begin_as_often_as_without_us(own, persistent):
    settings = {"num_workers": own, "persistent_workers": persistent and own > 0, "shuffle": None}
    plain = Training(epochs=3, sampler=EagerSampler(48), **settings).run()
    training, _, _, _ = run_with({3: {"workers": 1}, 20: {"workers": 3}, 30: {}}, sampler=EagerSampler(48), **settings)
    assert training.loader.sampler.begun == plain.loader.sampler.begun
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())


@pytest.mark.parametrize(
    "settings",
    [
        {"shuffle": False},
        {"generator": torch.Generator()},
        {"shuffle": None, "sampler": WeightedRandomSampler([1.0] * 48, 48)},
        {"drop_last": True, "batch_size": 5},
        {"batch_size": 5},
    ],
)
def test_other_loaders(settings):
    if "generator" in settings:
        settings["generator"].manual_seed(7)
    plain = Training(epochs=3, **settings).run()
    if "generator" in settings:
        settings["generator"].manual_seed(7)
    training, _, _, _ = run_with({3: {"workers": 2}, 15: {"workers": 1}}, **settings)
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())


def test_proofs_and_numerics():
    schedule = {5: {"workers": 2, "persistent_workers": "on", "prefetch_factor": 3}, 10: {"workers": 1}}
    _, proofs, outcomes, numerics = run_with(schedule)
    assert {name: outcome.status for name, outcome in outcomes[0].items()} == dict.fromkeys(schedule[5], "applied")
    assert proofs[1]["workers"].details["workers_alive"] == 2
    assert proofs[1]["prefetch_factor"].details["prefetch_factor"] == 3
    assert proofs[1]["persistent_workers"].code == "no-second-epoch-yet"
    assert proofs[2]["workers"].status == "applied"
    assert numerics["workers"] == "exact"


def test_persistence_is_proved_by_the_same_workers():
    _, proofs, _, _ = run_with({2: {"workers": 2, "persistent_workers": "on"}, 30: {}})
    assert proofs[1]["persistent_workers"].told()["details"] == {"same_workers": 2}


@pytest.mark.parametrize("noise", ["torch", "random", "numpy"])
def test_fetching_that_draws_is_resampled(noise):
    if noise == "numpy":
        pytest.importorskip("numpy")
    training = Training(epochs=1, dataset=Pictures(noise=noise))
    with staged(training) as stage:
        stage.scene.handover.watch()

        def at(step):
            if step == 5:
                stage.board.set({"workers": 2})

        training.run(at)
        assert stage.board.numerics()["workers"] == "resampled"
        assert stage.scene.handover.fetching(training.loader.dataset).touched == {noise}


def test_workers_from_an_epochs_start_draw_as_the_scripts_own_would():
    plain = Training(epochs=2, dataset=Pictures(noise="torch"), num_workers=2).run()
    training = Training(epochs=2, dataset=Pictures(noise="torch"))
    with staged(training) as stage:
        stage.board.set({"workers": 2})
        training.run()
    assert same_bits(training.weights(), plain.weights())


class Curriculum(Pictures):
    """The script changes it between epochs; workers that stay alive would not know."""

    level = 0

    def __getitem__(self, index):
        x, y, index = super().__getitem__(index)
        return x * (1 + vars(self).get("level", 0)), y, index


def test_kept_workers_know_what_the_script_set_between_epochs():
    def trained(knobs):
        training = Training(epochs=1, dataset=Curriculum())
        with staged(training) as stage:
            stage.board.set(knobs)
            for level in range(3):
                training.loader.dataset.level = level
                training.run()
        return training

    assert same_bits(trained({}).weights(), trained({"workers": 2, "persistent_workers": "on"}).weights())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


class FedSampler(EagerSampler):
    def update(self, losses):
        pass


class WithHandle(Pictures):
    def __init__(self):
        super().__init__()
        self.base = sqlite3.connect(":memory:")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: DataLoader(Stream()), "iterable-dataset"),
        (lambda: DataLoader(Pictures(), sampler=FedSampler(48)), "feedback-sampler"),
        (lambda: DataLoader(WithHandle()), "open-handle-in-dataset"),
    ],
)
def test_refused(make, code):
    training = Training()
    training.loader = make()
    with staged(training) as stage:
        assert stage.board.set({"workers": 2})["workers"].code == code
        assert not stage.scene.handover.busy


def test_more_refusals(monkeypatch):
    with staged() as stage:
        assert stage.board.set({"pin_memory": "on"})["pin_memory"].code == "no-cuda-device"
        assert stage.board.set({"persistent_workers": "on"})["persistent_workers"].code == "needs-workers"
        assert stage.board.set({"workers": 100})["workers"].details["limit"] == "processors"
        monkeypatch.setattr(worker_limits, "free_files", lambda: 70)
        assert stage.board.set({"workers": 2})["workers"].code == "no-room-for-workers"
    with staged(Training(num_workers=2)) as stage:
        assert stage.board.set({"workers": 2})["workers"].status == "already"


def test_spawn_needs_a_guard(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_limits, "start_method", lambda loader: "spawn")
    script = tmp_path / "train.py"
    monkeypatch.setattr("__main__.__file__", str(script), raising=False)
    for text, guarded in (("train()", False), ("if __name__ == '__main__':\n    train()", True)):
        script.write_text(text)
        assert worker_limits.main_is_guarded() is guarded
    script.write_text("train()")
    with staged() as stage:
        assert stage.board.set({"workers": 2})["workers"].code == "no-main-guard"


class Fails(Pictures):
    def __getitem__(self, index):
        if index == 20:
            raise KeyError("twenty")
        return super().__getitem__(index)


def test_an_error_of_the_dataset_is_the_one_it_would_be():
    training = Training(dataset=Fails(), shuffle=False)
    with staged(training) as stage:
        stage.board.set({"workers": 2})
        with pytest.raises(KeyError, match="twenty") as raised:
            training.run()
        assert "worker process" not in str(raised.value)
        assert training.steps == 5
        assert stage.board.proofs()["workers"].code == "fetching-failed"


class DiesInWorkers(Pictures):
    def __getitem__(self, index):
        if index == 20 and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_worker_that_dies_does_not_end_the_training():
    plain = Training(dataset=DiesInWorkers(), shuffle=False).run()
    training = Training(dataset=DiesInWorkers(), shuffle=False)
    with staged(training) as stage:
        stage.board.set({"workers": 1})
        training.run()
        assert stage.board.proofs()["workers"].code == "fetching-failed"
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())


def test_epochs_that_are_broken_off():
    def order(knobs):
        seed(0)
        training = Training()
        seen = []
        with staged(training) as stage:
            stage.board.set(knobs)
            for _ in range(3):
                for number, (_, _, index) in enumerate(training.loader):
                    seen.append(index.tolist())
                    if number == 3:
                        break
                gc.collect()
        return seen, random.random(), torch.rand(1).item()

    assert order({}) == order({"workers": 2}) == order({"workers": 2, "persistent_workers": "on"})


def test_two_iterators_of_one_loader_at_once():
    def order(knobs):
        seed(0)
        training = Training()
        with staged(training) as stage:
            stage.board.set(knobs)
            return [(a[2].tolist(), b[2].tolist()) for a, b in zip(training.loader, training.loader, strict=True)]

    assert order({}) == order({"workers": 1, "persistent_workers": "on"})


def test_taken_off_nothing_is_left():
    from torch.utils.data import dataloader

    training = Training(epochs=1)
    attributes = dict(vars(training.loader))
    before = (dataloader._BaseDataLoaderIter.__next__, dataloader.DataLoader.__iter__)
    with staged(training) as stage:
        stage.board.set({"workers": 2, "persistent_workers": "on"})
        training.run()
        stage.board.clear()
        gc.collect()
        assert not stage.scene.handover.busy
        assert not stage.scene.handover._lines
    assert (dataloader._BaseDataLoaderIter.__next__, dataloader.DataLoader.__iter__) == before
    assert vars(training.loader) == attributes
