"""One batch ahead of the script: same batches, same order, same end, same errors, same bits; and where it is not done."""

from contextlib import nullcontext
from types import SimpleNamespace
from weakref import ref

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Pictures, Training, same_bits, staged

from _flatout_agent.knobs.loader import batch_copies
from _flatout_agent.knobs.loader.batch_copies import PREFETCH, Mover


class Card(Mover):
    """Every batch counts as moved to a card; what is sent early is noted instead of copied."""

    sends = True

    def __init__(self):
        super().__init__(torch)
        self.users = {PREFETCH}
        self.story = []

    def arrived(self, batch):
        self.story.append(("given", batch[2].tolist()))

    def send(self, batch):
        self.sent += 1
        self.story.append(("sent", batch[2].tolist()))


def trained(off_at=None, **settings):
    training, card = Training(**settings), Card()
    with staged(training) as stage:
        stage.scene.handover.hand_batches_to(card)

        def at(step):
            if step == off_at:
                stage.scene.handover.hand_batches_to(None)

        training.run(at)
        if off_at:
            assert not stage.scene.handover.busy
    return training, card


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_training(workers):
    plain = Training(num_workers=workers).run()
    training, card = trained(num_workers=workers)
    assert training.order == plain.order
    assert training.losses == plain.losses
    assert same_bits(training.weights(), plain.weights())
    assert card.sent > 15  # of 24; the first of an epoch, and those that were watched, come as they are asked for
    early = [place for place, (kind, _) in enumerate(card.story) if kind == "sent"]
    for place in early:  # on its way while the one before it is in the script's hands
        assert card.story[place - 1][0] == "given"
        following = [indices for kind, indices in card.story[place + 1 :] if kind == "given"]
        assert following[0] == card.story[place][1]


@pytest.mark.parametrize("noise", ["torch", "random", "numpy"])
def test_draws_keep_their_order(noise):
    plain = Training(dataset=Pictures(noise=noise)).run()
    training, card = trained(dataset=Pictures(noise=noise))
    assert same_bits(training.weights(), plain.weights())
    assert card.sent == 0


@pytest.mark.parametrize("step", [1, 6, 7, 12, 17])
def test_taken_off_in_mid_epoch(step):
    plain = Training().run()
    training, _ = trained(off_at=step)
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())


def test_taken_off_and_put_on_again():
    plain, training, card = Training().run(), Training(), Card()
    with staged(training) as stage:
        handover = stage.scene.handover
        handover.hand_batches_to(card)

        def at(step):  # off in the middle of things, and on again before what waits is delivered
            if step in (8, 16):
                handover.hand_batches_to(None)
                handover.hand_batches_to(card)

        training.run(at)
    assert training.order == plain.order
    assert card.sent > 15


class Breaks(Pictures):
    def __getitem__(self, index):
        if index == LATE:
            raise ValueError("a broken picture")
        return super().__getitem__(index)


LATE = Training(epochs=1).run().order[-2][0]  # in the last batch but one


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_is_raised_where_it_would_be(workers):
    plain = Training(dataset=Breaks(), num_workers=workers, epochs=1)
    with pytest.raises(ValueError, match="a broken picture"):
        plain.run()
    training, card = Training(dataset=Breaks(), num_workers=workers, epochs=1), Card()
    with staged(training) as stage:
        stage.scene.handover.hand_batches_to(card)
        with pytest.raises(ValueError, match="a broken picture"):
            training.run()
    assert training.order == plain.order
    assert len(training.order) == 10
    assert card.sent


def test_a_loop_that_breaks_off_and_begins_again():
    def given(card):
        training, seen = Training(), []
        with staged(training) as stage:
            if card:
                stage.scene.handover.hand_batches_to(card)
            for _ in range(3):
                for number, batch in enumerate(training.loader):
                    seen.append(batch[2].tolist())
                    if number == 7:
                        break
            iterator = iter(training.loader)
            seen += [batch[2].tolist() for batch in iterator]
            with pytest.raises(StopIteration):
                next(iterator)
        return seen

    card = Card()
    assert given(card) == given(None)
    assert card.sent


class Saved(torch.utils.data.RandomSampler):
    def state_dict(self):
        return {}


def test_not_where_somebody_saves_how_far_it_came():
    dataset = Pictures()
    training, card = trained(dataset=dataset, shuffle=False, sampler=Saved(dataset))
    assert training.steps == 24
    assert card.sent == 0


def test_not_where_the_script_changes_the_dataset_as_it_trains():
    training, card = Training(), Card()
    with staged(training) as stage:
        stage.scene.handover.hand_batches_to(card)
        training.run(lambda step: setattr(training.loader.dataset, "strength", step))
    assert card.sent == 0


def test_iterable_datasets_come_as_they_are_asked_for():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from Pictures()

    training, card = trained(dataset=Stream(), shuffle=False)
    assert training.steps == 24
    assert card.sent == 0


class Script:
    """The calls that a card would get, in their order."""

    def __init__(self):
        self.calls = []
        self.cuda = SimpleNamespace(
            is_current_stream_capturing=lambda: False,
            current_device=lambda: 0,
            current_stream=lambda device: SimpleNamespace(wait_event=lambda event: self.calls.append(("wait", event.copies))),
            Stream=lambda: SimpleNamespace(name="side"),
            stream=lambda stream: nullcontext(),
            Event=lambda: SimpleNamespace(copies=None, record=lambda stream: None),
        )
        self.Tensor, self.device = torch.Tensor, torch.device
        self.is_inference_mode_enabled = torch.is_inference_mode_enabled

    def empty_like(self, tensor, device):
        calls = self.calls

        class Copy(SimpleNamespace):
            def copy_(self, source, non_blocking):
                calls.append(("copy", int(source[0])))

            def record_stream(self, stream):
                calls.append(("recorded", int(tensor[0])))

        return Copy()


def test_a_batch_waits_for_its_own_copy_alone(monkeypatch):
    """The following batch's copy is under way by then: to wait for it would undo the overlap."""
    script = Script()
    mover = Mover(script)
    mover.users = {PREFETCH}
    everything = lambda tensors: {id(t): (ref(t), place) for place, t in enumerate(tensors)}  # noqa: E731
    monkeypatch.setattr(batch_copies, "pinned", everything)
    move = mover.wrap(lambda tensor, *_, **__: tensor, "to")
    batches = [torch.full((2,), number) for number in range(5)]
    used = []
    mover.arrived([batches[0]])
    move(batches[0], "cuda:0")  # now it is known where they go
    mover.arrived([batches[1]])
    for number in range(1, 4):
        mover.send([batches[number + 1]])
        kept = mover._ahead[id(batches[number])]
        used.append(kept[4])
        assert move(batches[number], "cuda:0") is kept[2]
        mover.arrived([batches[number + 1]])
    copies = [what for what in script.calls if what[0] == "copy"]
    assert copies == [("copy", 1), ("copy", 2), ("copy", 3), ("copy", 4)]  # none twice
    assert [call for call in script.calls if call[0] == "recorded"] == [("recorded", 1), ("recorded", 2), ("recorded", 3)]
    assert len({id(event) for event in used}) == 3
    assert script.calls.index(("copy", 2)) < script.calls.index(("recorded", 1))
    assert (mover.sent, mover.used_ahead, mover.copied_ahead) == (3, 3, 4)


def test_the_model_is_still_the_scripts():
    training, _ = trained()
    assert type(training.model) is Net
