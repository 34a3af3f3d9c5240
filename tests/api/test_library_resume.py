"""Checkpoints: resumed in mid-epoch to the bit, whole after a kill, and refused in one sentence where they cannot be used."""

import os
import sys

import pytest
import torch
from saver import kill_many
from torch import nn
from torch.utils.data import DataLoader
from trainings import LOSS, Rows, loop, network, same, seed, training, weights

from flatout import TrainingAccelerator
from flatout.api.errors import CheckpointError


class KilledError(Exception):
    pass


def interrupted(path, at, make):
    """Trains, saves at this step, goes on for two more, and is gone."""
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*make(0))

    def each():
        if accelerator.steps == at:
            accelerator.save(path, note="mid-epoch")
        if accelerator.steps == at + 2:
            raise KilledError

    with pytest.raises(KilledError):
        loop(accelerator, model, optimizer, loader, epochs=3, each=each)


def resumed(path, make):
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*make(99))
    assert accelerator.load(path) == {"note": "mid-epoch"}
    loop(accelerator, model, optimizer, loader, epochs=3)
    return accelerator, model


def uninterrupted(make):
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*make(0))
    loop(accelerator, model, optimizer, loader, epochs=3)
    return model


def with_own_generator(number):
    seed(number)
    model = network()
    order = torch.Generator().manual_seed(5 + number)
    loader = DataLoader(Rows(noise=True), batch_size=8, shuffle=True, generator=order)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), loader


def with_workers(number):
    model, optimizer, loader = training(number)
    return model, optimizer, DataLoader(loader.dataset, batch_size=16, shuffle=True, num_workers=1)


@pytest.mark.parametrize("at", [4, 6, 8])  # in the first epoch, at its end, in the second
def test_resumed_in_mid_epoch_to_the_bit(tmp_path, at):
    """Dropout, shuffling, augmentation from three generators: the weights are those of a training never interrupted."""
    whole = uninterrupted(training)
    interrupted(tmp_path / "last.pt", at, training)
    accelerator, model = resumed(tmp_path / "last.pt", training)
    assert accelerator.steps == 18
    assert same(weights(whole), weights(model))


@pytest.mark.parametrize("make", [with_own_generator, with_workers])
def test_resumed_with_a_generator_or_workers_of_the_loader(tmp_path, make):
    whole = uninterrupted(make)
    interrupted(tmp_path / "last.pt", 4, make)
    assert same(weights(whole), weights(resumed(tmp_path / "last.pt", make)[1]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked savers")
@pytest.mark.skipif(sys.platform == "darwin", reason="torch must not be used in a forked child there")
def test_a_kill_leaves_a_whole_checkpoint(tmp_path):
    """tests/api/saver.py does it as often as one likes."""
    assert kill_many(tmp_path, 8) > 0  # some found a save under way


# -- what cannot be used ------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*training())
    loop(accelerator, model, optimizer, loader)
    accelerator.save(tmp_path / "good.pt")
    return tmp_path / "good.pt"


def other(model):
    accelerator = TrainingAccelerator()
    prepared = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01), training()[2])
    return accelerator, prepared[0]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_cut_short(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    accelerator, model = other(network())
    before = weights(model)
    with pytest.raises(CheckpointError, match="incomplete"):
        accelerator.load(saved)
    assert same(before, weights(model))


def test_of_another_version_kind_or_model(saved, tmp_path):
    accelerator, model = other(network())
    before = weights(model)
    tree = torch.load(saved, weights_only=True)
    for changed, says in (
        ({"version": 99}, "newer flatout"),
        ({"kind": "x"}, "wrong kind"),
        ({"models": {}}, "another training"),
    ):
        torch.save({**tree, **changed}, tmp_path / "odd.pt")
        with pytest.raises(CheckpointError, match=says):
            accelerator.load(tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        accelerator.load(tmp_path / "none.pt")
    assert same(before, weights(model))
    wider, _ = other(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)))
    with pytest.raises(CheckpointError, match=r"another model: 0\.bias is 12 in the checkpoint and 5 here"):
        wider.load(saved)


def test_nothing_is_written_that_could_not_be_read_safely(saved, tmp_path):
    accelerator, _ = other(network())
    before = saved.read_bytes()
    with pytest.raises(CheckpointError, match=r"extra\.thing\[1\] is a Rows"):
        accelerator.save(saved, thing=[1, Rows()])
    with pytest.raises(CheckpointError, match="cannot be written"):
        accelerator.save(tmp_path / "no" / "folder.pt")
    assert saved.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["good.pt"]


def test_an_unpickled_object_is_never_made(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "made"),))

    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil(), protocol=2))
    accelerator, _ = other(network())
    with pytest.raises(CheckpointError):
        accelerator.load(tmp_path / "evil.pt")
    assert not (tmp_path / "made").exists()


def test_a_scheduler_with_milestones(tmp_path):
    accelerator = TrainingAccelerator()
    _, optimizer, _ = accelerator.prepare(*training())
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    accelerator.register(scheduler=scheduler)
    accelerator.save(tmp_path / "last.pt")
    accelerator.load(tmp_path / "last.pt")


def test_an_optimizer_of_another_kind_is_refused(saved):
    accelerator = TrainingAccelerator()
    model = network()
    accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), training()[2])
    before = weights(model)
    with pytest.raises(CheckpointError, match="Adam"):
        accelerator.load(saved)
    assert same(weights(model), before)


def test_a_position_of_other_ranks_is_refused(tmp_path):
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*training())
    for x, y in loader:
        accelerator.backward(LOSS(model(x), y))
        accelerator.step(optimizer)
        break
    path = tmp_path / "last.pt"
    accelerator.save(path)
    body = torch.load(path, weights_only=True)
    torch.save({**body, "random": body["random"] * 2}, path)
    with pytest.raises(CheckpointError, match="2 ranks"):
        accelerator.load(path)
    start = {name: {**state, "position": 0, "start": {}} for name, state in body["loaders"].items()}
    torch.save({**body, "random": body["random"] * 2, "loaders": start}, path)
    accelerator.load(path)  # from an epoch's end any number may go on


class Choosy:
    def state_dict(self):
        return {"size": 1}

    def load_state_dict(self, state):
        if state["size"] != 1:
            raise KeyError("size")


def test_what_a_registered_part_refuses_changes_nothing(tmp_path):
    accelerator = TrainingAccelerator()
    accelerator.prepare(*training())
    odd = Choosy()
    odd.state_dict = lambda: {"size": 2}
    accelerator.register(odd=odd)
    accelerator.save(tmp_path / "last.pt")
    other = TrainingAccelerator()
    model, _, _ = other.prepare(*training(5))
    other.register(odd=Choosy())
    before = weights(model)
    with pytest.raises(CheckpointError, match="odd"):
        other.load(tmp_path / "last.pt")
    assert same(weights(model), before)


def test_a_precision_that_was_asked_for_since_holds(tmp_path):
    accelerator = TrainingAccelerator({"precision": "bf16"})
    accelerator.prepare(*training())
    accelerator.save(tmp_path / "last.pt")
    other = TrainingAccelerator({"precision": "no"})
    other.prepare(*training())
    other.load(tmp_path / "last.pt")
    assert other.precision == "no"


def test_schedulers_are_part_of_it(tmp_path):
    def begun(number):
        accelerator = TrainingAccelerator()
        model, optimizer, loader = accelerator.prepare(*training(number))
        return accelerator, model, optimizer, loader, accelerator.warm_up(optimizer, 8)

    accelerator, model, optimizer, loader, scheduler = begun(0)
    loop(accelerator, model, optimizer, loader, each=scheduler.step)
    accelerator.save(tmp_path / "last.pt")
    other_accelerator, _, other_optimizer, _, other_scheduler = begun(3)
    other_accelerator.load(tmp_path / "last.pt")
    assert other_scheduler.last_epoch == 6
    assert other_optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_the_part_of_a_killed_save_is_written_over(tmp_path):
    (tmp_path / ".last.pt.part").write_bytes(b"half")
    accelerator, model = other(network())
    accelerator.backward(LOSS(model(torch.randn(2, 6)), torch.tensor([0, 1])))
    accelerator.save(tmp_path / "last.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]
