"""In trials what was compiled waits for its turn: nothing is compiled twice, nothing is counted that another variant did."""

import pytest

torch = pytest.importorskip("torch")

from stage import Training, staged
from test_compile_knob import KINDS, EagerCompile

from _flatout_agent.knobs.kept_compilations import FIRST_TO_KEEP, MOST, Compilations, Tally

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch's own, while it compiles
    pytest.mark.skipif(
        tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < FIRST_TO_KEEP,
        reason="is not kept before 2.5",
    ),
]


def compiled_frames():
    return sum(Tally()._variants.values())


def turns(*wanted, open=True, each=3):
    """What was proved of compile at the end of each turn, and how many frames were compiled by then."""
    torch._dynamo.reset()  # what other tests compiled is not counted
    training = Training(epochs=1 + each * len(wanted) // 12)
    told = []
    with staged(training, KINDS) as stage:
        stage.scene.compilations.open = open

        def at(step):
            if step % each == 1 and step // each < len(wanted):
                outcomes = stage.board.set(wanted[step // each])
                assert all(outcome.status == "applied" for outcome in outcomes.values()), outcomes
            if step % each == 0 and step // each <= len(wanted):
                told.append((stage.board.proofs().get("compile"), compiled_frames()))

        training.run(at)
    return told, training


PLAIN, COMPILED = {}, {"compile": "default"}
LOW = {"compile": "default", "precision": "bf16"}
TURNED = {"compile": "default", "channels_last": "on"}


def test_coming_back_compiles_nothing():
    told, training = turns(COMPILED, PLAIN, COMPILED, PLAIN, COMPILED)
    proofs = [proof for proof, _ in told]
    assert [proof.status if proof else None for proof in proofs] == ["applied", None, "applied", None, "applied"]
    assert [frames for _, frames in told] == [1, 1, 1, 1, 1]
    assert proofs[4].details["graphs"] == 1
    assert proofs[4].details["recompiles"] == 0
    assert proofs[4].details["calls"] == 2  # of this turn
    plain = Training(epochs=training.epochs).run()
    assert training.losses == pytest.approx(plain.losses, rel=1e-3)


def test_outside_trials_it_is_compiled_anew():
    """The cache is emptied in between, and the counters with it."""
    told, _ = turns(COMPILED, PLAIN, COMPILED, open=False)
    assert [frames for _, frames in told] == [1, 0, 1]


def test_two_precisions_beside_each_other():
    told, _ = turns(COMPILED, LOW, COMPILED, LOW)
    assert [frames for _, frames in told] == [1, 2, 2, 2]
    for proof, _ in told:
        assert proof.status == "applied", proof
        assert proof.details["graphs"] == 1
        assert proof.details["recompiles"] == 0, "the other variant is not this one's recompile"


def test_another_layout_begins_with_an_empty_cache():
    """Dynamo would take the strides for something that changes, and compile for all of them."""
    told, _ = turns(COMPILED, TURNED, COMPILED)
    assert [frames for _, frames in told] == [1, 1, 1]
    assert all(proof.status == "applied" and proof.details["recompiles"] == 0 for proof, _ in told)


def test_so_does_another_batch_size():
    keeping = Compilations()
    keeping.open = True
    emptied = []

    class Torch:
        __version__ = torch.__version__

        class _dynamo:  # noqa: N801
            @staticmethod
            def reset():
                emptied.append(len(keeping.counted(key)))

    key = keeping.begin(Torch, "default", {})
    keeping.leave(Torch, key, {"graphs": 1}, sound=True)
    assert keeping.begin(Torch, "default", {}) == key
    assert not emptied
    keeping.batch = 64
    keeping.begin(Torch, "default", {})
    assert emptied == [0]
    # What raised is not looked at again, and of many variants at once none is kept.
    keeping.leave(Torch, key, {"graphs": 1}, sound=False)
    assert len(emptied) == 2
    for number in range(MOST + 1):
        keeping.leave(Torch, keeping.begin(Torch, f"mode {number}", {}), {"graphs": 1}, sound=True)
    assert len(emptied) == 3


def test_a_variant_that_raised_is_forgotten(monkeypatch):
    training = Training(epochs=1)
    with staged(training, KINDS) as stage:
        stage.scene.compilations.open = True

        def at(step):
            if step == 2:
                stage.board.set(COMPILED)
                (outfit,) = [outfit for outfit, _ in stage.board._on["compile"][1]._worn]
                outfit.layers[0]._compiled = None
                outfit._arrange()
            if step == 4:
                assert stage.board.proofs()["compile"].code == "raised"
                stage.board.set(PLAIN)
                assert not stage.scene.compilations._counted
            if step == 5:
                stage.board.set(COMPILED)
            if step == 8:
                assert stage.board.proofs()["compile"].status == "applied"

        training.run(at)
    assert EagerCompile.backend == "aot_eager"
