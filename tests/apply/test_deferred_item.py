"""Which `.item()` may wait, what waits in its place, and that nothing of it can be told from plain numbers."""

import contextlib
import io
import math
import pickle

import pytest

torch = pytest.importorskip("torch")

from stage import Training, staged

from _flatout_agent.knobs import script_source
from _flatout_agent.knobs.deferrable_items import lines_that_may_wait
from _flatout_agent.knobs.deferred_item import DeferredItem
from _flatout_agent.knobs.deferred_number import MOST_PARTS, Later
from conftest import EXAMPLES

LOOP = """\
def train(losses):
    total, n = 0.0, 0
    for loss in losses:
        {line}
        n += 1
    {end}
"""

MAY = [
    ("total += loss.item()", "print(f'{total / n:.3f}')"),
    ("total += loss.item()", "print(total, n)"),
    ("total += loss.item() * 4", "print('%.3f' % total)"),
    ("total += 0.5 * loss.item()", "print('%.3f of %d' % (total, n))"),
    ("total += loss.item() / 2", "print('{:.3f} {x}'.format(total, x=total))"),
    ("total = loss.item()", "return total / n"),
    ("total += loss.item()", "return round(total, 3)"),
    ("total += loss.item() * len(losses)", "return 1 - total"),
]
MAY_NOT = [
    ("total += loss.item()", "return total"),
    ("total += loss.item()", "report(total)"),
    ("total += loss.item()", "return {'loss': total}"),
    ("total += loss.item()", "self.total = total"),
    ("total += loss.item()", "return total > 3"),
    ("total += loss.item()", "if total: return"),
    ("total += loss.item()", "other = total"),
    ("total += loss.item()", "return [total for _ in range(2)]"),
    ("total += loss.item()", "return lambda: total"),
    ("total += loss.item()", "print(*[total])"),
    ("total += loss.item()", "print(x=total)"),
    ("total += loss.item()", "return losses * total"),
    ("total += loss.item()", "print(locals())"),
    ("total += loss.item()", "yield total"),
    ("total += loss.item() + total", "print(total)"),
    ("total += loss.item() + loss.item()", "print(total)"),
    ("total -= loss.item()", "print(total)"),
    ("losses.append(loss.item())", "print(total)"),
    ("print(loss.item())", "pass"),
    ("total += loss.item(); n += 0", "print(total)"),
    ("global total; total += loss.item()", "print(total)"),
    ("total += loss.item(0)", "print(total)"),
]


@pytest.mark.parametrize(("line", "end"), MAY)
def test_may_wait(line, end):
    assert lines_that_may_wait(LOOP.format(line=line, end=end)) == ({4}, set())


@pytest.mark.parametrize(("line", "end"), MAY_NOT)
def test_may_not_wait(line, end):
    waiting, _ = lines_that_may_wait(LOOP.format(line=line, end=end))
    assert waiting == set()


@pytest.mark.parametrize(
    "before",
    ["print = log", "def print(x): keep.append(x)", "from rich import print", "from mine import *", "def f(round): return 1"],
)
def test_not_where_print_is_the_scripts_own(before):
    text = before + "\n" + LOOP.format(line="total += loss.item()", end="print(total)")
    assert lines_that_may_wait(text)[0] == set()


def test_a_parameter_and_an_inner_function():
    assert lines_that_may_wait("def f(total, x):\n    total += x.item()\n    print(total)\n")[0] == set()
    assert lines_that_may_wait("total = 0\ntotal += x.item()\nprint(total)\n") == ({2}, set())
    assert lines_that_may_wait("total = 0\ntotal += x.item()\ndef f():\n    print(total)\n") == (set(), {2})
    assert lines_that_may_wait("this is no Python") == (set(), set())


SPECIMENS = ("behavior.py", "gpt.py", "restoration.py", "vision.py")


def test_on_the_specimens():
    found = {path.stem: lines_that_may_wait(path.read_text(encoding="utf-8"))[0] for path in map(EXAMPLES.joinpath, SPECIMENS)}
    assert found.pop("behavior") == found.pop("gpt") == set()  # they print the number where they read it
    lines = {name: (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines() for name in found}
    assert {name: [lines[name][number - 1].strip() for number in found[name]] for name in found} == {
        "vision": ["running += loss.item() * accumulate"],
        "restoration": ["total += F.mse_loss(model(noisy), clean).item()"],
    }


def later(value, waits=lambda: None):
    return Later(torch.tensor(value, dtype=torch.float32), waits)


VALUES = [0.1, 2.5, -3.75, 1e-8, 1e8, 0.3]


def test_sums_are_those_of_python():
    for scale in (None, 4, 0.3):
        plain, ours = 0.0, 0.0
        for value in VALUES:
            exact = torch.tensor(value).item()
            plain += exact if scale is None else exact * scale
            ours += later(value) if scale is None else later(value) * scale
        assert type(ours) is Later
        assert ours.number() == plain
        assert f"{ours / 7:.9f} {ours} {ours!r}" == f"{plain / 7:.9f} {plain} {plain!r}"
    assert (2 * later(0.1)).number() == 2 * torch.tensor(0.1).item()
    assert (later(0.1) / 3).number() == torch.tensor(0.1).item() / 3


def test_begins_with_a_value_and_goes_on_after_it_was_shown():
    total = later(0.5)
    total += later(0.25)
    assert f"{total:.2f}" == "0.75"
    total += later(0.25)
    assert (str(total), type(total)) == ("1.0", Later)
    total = later(0.5)
    total += 1
    assert (total, type(total)) == (1.5, float)


def test_as_a_number_everywhere():
    x = later(2.5)
    assert (float(x), int(x), bool(x), round(x), round(x, 1), math.floor(x), math.ceil(x)) == (2.5, 2, True, 2, 2.5, 2, 3)
    assert (x + 1, 1 + later(2.5), x - 1, 1 - x, x % 2, 7 % x, x**2, 2**x, x // 1, -x, abs(-x)) == (
        *(3.5, 3.5, 1.5, -1.5, 0.5, 2.0, 6.25, 2**2.5, 2.0, -2.5, 2.5),
    )
    assert x == 2.5
    assert x < 3 <= later(3.0)
    assert hash(x) == hash(2.5)
    assert ("%.1f %d %s" % (x, x, x), "{:5.1f}".format(x)) == ("2.5 2 2.5", "  2.5")  # noqa: UP031, UP032
    assert x.is_integer() is False
    assert type(pickle.loads(pickle.dumps(x))) is float
    numpy = pytest.importorskip("numpy")
    assert (numpy.ones(2) * x).tolist() == [2.5, 2.5]
    assert (torch.ones(2) * later(2.5)).tolist() == [2.5, 2.5]


def test_a_long_sum_keeps_no_long_list():
    total, waits = 0.0, []
    for _ in range(3 * MOST_PARTS):
        total += later(1.0, lambda: waits.append(1))
    assert float(total) == 3 * MOST_PARTS
    assert 3 <= len(waits) <= 5


class OnCard(torch.Tensor):
    is_cpu = property(lambda self: False)


SCRIPT = """\
def train(losses):
    running = 0.0
    for step, loss in enumerate(losses):
        running += loss.item() * 2
        if step % 4 == 3:
            print(f"{step} {running / 4:.6f}")
            running = 0.0
        last = loss.item()
        if last > 100:
            return "high"
        loss.zero_()
    return "ok"
"""


def test_a_script_prints_the_same_and_waits_less(tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    monkeypatch.setattr(script_source, "own_files", lambda: [str(path)])
    space = {}
    exec(compile(SCRIPT, str(path), "exec"), space)
    before = vars(torch.Tensor).get("item")

    def ran():
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            ended = space["train"]([torch.tensor(0.1 * step).as_subclass(OnCard) for step in range(12)])
        return said.getvalue(), ended

    plain = ran()
    with staged(Training()) as stage:
        knob = DeferredItem()
        assert knob.begin(stage.scene).details == {"where": ["train.py:4"]}
        assert knob.proof().code == "no-item-was-deferred"
        assert ran() == plain  # though each loss is overwritten before it is shown
        assert knob.proof().details == {"items": 12, "waits": 3}
        stage.scene.lift()
        assert vars(torch.Tensor).get("item") is before
        stage.scene.put_back()
        assert ran() == plain
        knob.take_off()
        assert stage.scene.on_tensors == []
    assert vars(torch.Tensor).get("item") is before


def test_refused_with_the_lines(tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    monkeypatch.setattr(script_source, "own_files", lambda: [str(path)])
    with staged(Training()) as stage:
        assert stage.board.set({"deferred_item": "on"})["deferred_item"].code == "no-cuda-device"
        path.write_text("print(loss.item())\nbest = min(best, x.item())\n")
        outcome = DeferredItem().begin(stage.scene)
        assert (outcome.code, outcome.details) == ("items-are-used", {"where": ["train.py:1", "train.py:2"]})
        path.write_text("pass\n")
        assert DeferredItem().begin(stage.scene).code == "no-item-in-the-script"
