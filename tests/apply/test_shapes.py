"""What the batches of a run are like, and whether a profile was measured with such."""

import pytest

torch = pytest.importorskip("torch")

from stage import Pictures, Training, staged

from _flatout_agent.knobs.loader.fetch_randomness import Fetching, same_shapes


def seen(*batches):
    fetching = Fetching()
    for batch in batches:
        fetching.weigh(torch, batch)
    return fetching.shapes()


def test_told_as_people_write_them():
    assert seen([torch.ones(4, 3, 8, 8), {"y": torch.ones(4)}, "text"]) == ["4x3x8x8", "4"]
    assert seen((torch.tensor(1.0), torch.ones(2, 2))) == ["scalar", "2x2"]
    assert seen(["no", "tensors"]) == []


def test_what_differs_is_left_open():
    assert seen([torch.ones(4, 30)], [torch.ones(4, 41)], [torch.ones(2, 30)]) == ["?x?"]
    assert seen([torch.ones(4, 30), torch.ones(4)], [torch.ones(4, 41), torch.ones(4)]) == ["4x?", "4"]
    assert seen([torch.ones(4, 3)], [torch.ones(4)]) == ["?"]


@pytest.mark.parametrize(
    ("recorded", "here", "same"),
    [
        (["32x3x224x224", "32"], ["32x3x224x224", "32"], True),
        (["32x3x224x224", "32"], ["64x3x224x224", "64"], False),
        (["8x?"], ["8x117"], True),
        (["8x117"], ["8x?"], True),
        (["8x?"], ["16x?"], False),
        (["?"], ["4x3"], True),
        (["?x3x8"], ["16x3x8"], True),
        (["8x4"], ["8x4x1"], False),
        (["8x4"], ["8x4", "8"], False),
        (["scalar"], ["scalar"], True),
    ],
)
def test_such_batches_or_others(recorded, here, same):
    assert same_shapes(recorded, here) is same


@pytest.mark.parametrize("workers", [0, 1])
def test_of_a_training(workers):
    training = Training(dataset=Pictures(size=18), epochs=1, num_workers=workers)
    with staged(training) as stage:
        assert stage.scene.shapes() == []
        stage.scene.handover.watch()
        training.run(lambda step: stage.scene.handover.stop_watching() if step == 3 else None)
        assert stage.scene.shapes() == ["4x3x8x8", "4", "4"]
