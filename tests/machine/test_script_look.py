"""A script read without being run: the examples as they are, small scripts for each question, and bad files."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.base.records import Missing
from flatout.base.words import catalogue
from flatout.machine.machine_facts import ScriptLook
from flatout.machine.script_look import LARGEST, look

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def seen(tmp_path):
    def write(text: str, name: str = "train.py") -> ScriptLook:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        found = look(path)
        assert isinstance(found, ScriptLook)
        return found

    return write


def reason(value: object) -> str:
    assert isinstance(value, Missing)
    assert f"missing.{value.reason}" in catalogue("en")
    assert f"missing.{value.reason}" in catalogue("zh")
    return value.reason


# -- the examples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "line"), [("gpt.py", 80), ("restoration.py", 66), ("vision.py", 90)])
def test_examples_load_in_the_training_process(name, line):
    found = look(EXAMPLES / name)
    assert isinstance(found, ScriptLook)
    assert (found.workers, found.pin_memory, found.mixed_precision) == (0, False, False)
    assert found.lines["workers"] == line
    assert (found.main_guard, found.sets_visible_devices_late) == (True, False)
    assert found.device_strings == ["cuda", "cpu"]


def test_what_only_the_configuration_decides():
    found = look(EXAMPLES / "behavior.py")
    assert isinstance(found, ScriptLook)
    assert reason(found.workers) == reason(found.pin_memory) == "not-literal"
    assert found.mixed_precision is False  # config.get("use_amp", False)
    assert found.device_strings == ["cuda:0", "cpu"]


@pytest.mark.parametrize(
    ("name", "precision", "devices", "lines"),
    [
        ("behavior.json", False, ["cuda:0"], {"workers": 9, "pin_memory": 10, "mixed_precision": 4, "device_strings": 3}),
        ("lightweight_config.yaml", False, None, {"workers": 6, "mixed_precision": 7}),
        ("training_config.yaml", None, None, {"workers": 3}),
    ],
)
def test_configurations_of_three_shapes(name, precision, devices, lines):
    found = look(EXAMPLES / "configs" / name)
    assert isinstance(found, ScriptLook)
    assert found.workers == 0
    assert found.lines == lines
    assert found.mixed_precision == precision or (precision is None and reason(found.mixed_precision) == "not-given")
    assert found.device_strings == devices or (devices is None and reason(found.device_strings) == "not-given")


# -- loaders --------------------------------------------------------------------------------------------------------

HEAD = "import argparse\nimport torch\nfrom torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("code", "workers", "pinned"),
    [
        ("l = DataLoader(d)", 0, False),
        ("l = DataLoader(d, num_workers=4, pin_memory=True)", 4, True),
        ("l = torch.utils.data.DataLoader(d, 8, True, None, None, 6, None, True)", 6, True),
        ("N = 3\nl = DataLoader(d, num_workers=N)", 3, False),
        (
            "p.add_argument('--num-workers', type=int, default=5)\nl = DataLoader(d, num_workers=args.num_workers)",
            5,
            False,
        ),
        ("C = {'num_workers': 2, 'pin_memory': True}\nl = DataLoader(d, **C)", 2, True),
        ("C = dict(pin_memory=True)\nl = DataLoader(d, **C)", 0, True),
        ("class Config:\n    workers: int = 7\nl = DataLoader(d, num_workers=cfg.workers)", 7, False),
        ("train = DataLoader(d, num_workers=4)\nval_loader = DataLoader(d)", 4, False),
        ("a = DataLoader(d, num_workers=4)\nb = DataLoader(e, num_workers=1)", 1, False),
        ("l = DataLoader(d, num_workers=int(cfg.get('workers', 0)))", 0, False),
        ("a = TrainingArguments('out', dataloader_num_workers=2, bf16=True)", 2, True),
    ],
)
def test_workers_and_pinning(seen, code, workers, pinned):
    found = seen(HEAD + code)
    assert (found.workers, found.pin_memory) == (workers, pinned)


@pytest.mark.parametrize(
    "code",
    [
        "l = DataLoader(d, num_workers=os.cpu_count())",
        "l = DataLoader(d, **options())",
        "def f(n):\n    return DataLoader(d, num_workers=n)",
        "N = 2\nN = 4\nl = DataLoader(d, num_workers=N)",
    ],
)
def test_workers_that_only_a_run_decides(seen, code):
    assert reason(seen(HEAD + code).workers) == "not-literal"


def test_nothing_to_load(seen):
    assert reason(seen("import torch\n").workers) == "no-loader"
    assert reason(seen("print('hello')\n").workers) == "not-torch"


# -- precision and devices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("with torch.autocast('cuda', torch.bfloat16): pass", True),
        ("scaler = torch.cuda.amp.GradScaler()", True),
        ("with torch.autocast('cuda', enabled=False): pass", False),
        ("with torch.autocast('cuda', enabled=flag()): pass", None),
        ("t = Trainer(precision='16-mixed')", True),
        ("t = Trainer(precision=32)", False),
        ("a = Accelerator(mixed_precision='no')", False),
        ("a = Accelerator(mixed_precision='bf16')", True),
        ("model = model.half()", True),
        ("model.to(torch.bfloat16)", True),
        ("x = x.to(device)", False),
    ],
)
def test_precision(seen, code, expected):
    value = seen(f"import torch\n{code}\n").mixed_precision
    assert value is expected or (expected is None and reason(value) == "not-literal")


def test_devices(seen):
    found = seen(
        "import torch\nx.to('cuda:3')\nmodel.cuda(1)\nd = torch.device('cuda', 2)\n"
        "torch.load(f, map_location='cpu')\nif d.type == 'mps': pass\n"
    )
    assert found.device_strings == ["cuda:3", "cuda:1", "cuda:2"]
    assert found.lines["device_strings"] == 2


# -- processes ------------------------------------------------------------------------------------------------------

LOOP = "for x in loader:\n    model(x).backward()\n"


@pytest.mark.parametrize(
    ("code", "guarded", "line"),
    [
        (f"loader = DataLoader(d)\n{LOOP}", False, 5),
        ("def main():\n    loader = DataLoader(d)\n    for x in loader:\n        x.backward()\nmain()\n", False, 8),
        ("def run():\n    loss.backward()\ndef main():\n    run()\nmain()\n", False, 8),
        ("trainer.fit(model)\n", False, 4),
        ("def main():\n    loss.backward()\nif __name__ == '__main__':\n    main()\n", True, 6),
        ("loader = DataLoader(d)\nmodel.train()\n", True, None),
        ("class A:\n    def f(self):\n        self.loss.backward()\n", True, None),
    ],
)
def test_work_outside_the_guard(seen, code, guarded, line):
    found = seen(HEAD + code)
    assert found.main_guard is guarded
    assert found.lines.get("main_guard") == line


def test_start_method(seen):
    assert (
        seen("import torch\nimport multiprocessing as mp\nmp.set_start_method('spawn', force=True)\n").start_method == "spawn"
    )
    assert seen(HEAD + "DataLoader(d, num_workers=2, multiprocessing_context='forkserver')\n").start_method == "forkserver"


SET = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"


@pytest.mark.parametrize(
    ("code", "late", "started"),
    [
        (f"import os\n{SET}import torch\n", False, None),
        (f"import os, torch\n{SET}", True, None),
        (f"import os, torch\ntorch.cuda.is_available()\n{SET}", True, 2),
        (f"import os, torch\ntorch.cuda.device_count()\n{SET}", True, None),
        (f"import os, torch\nmodel.cuda()\n{SET}", True, 2),
        (f"import os, torch\nd = 'cuda' if torch.cuda.is_available() else 'cpu'\ndef main():\n    {SET}", True, 2),
        (f"import os, torch\ndef f():\n    torch.cuda.is_available()\n{SET}", True, None),
        ("import os, torch\ntorch.zeros(1, device='cuda')\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')\n", True, 2),
        ("import os, torch\nos.environ.update({'CUDA_VISIBLE_DEVICES': '0'})\n", True, None),
        ("import os, torch\nos.environ['OMP_NUM_THREADS'] = '1'\n", False, None),
    ],
)
def test_a_variable_set_too_late(seen, code, late, started):
    found = seen(code)
    assert found.sets_visible_devices_late is late
    assert found.lines.get("cuda_started") == started


# -- bad files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.py", b"def f(:\n", "syntax-error"),
        ("a.py", b"print 'old'\n", "syntax-error"),
        ("a.py", b"\x80\x02}q\x00X", "not-text"),
        ("a.py", b"# coding: nonsense\n", "syntax-error"),
        ("a.py", b"x = '\xff'\n", "syntax-error"),
        ("a.yaml", b"a: [1\n", "syntax-error"),
        ("a.yaml", b"a: !!python/object/apply:os.system ['true']\n", "syntax-error"),
        ("a.yaml", b"- 1\n- 2\n", "not-a-configuration"),
        ("a.yaml", b"", "not-a-configuration"),
        ("a.yaml", b"\xff\xfe", "not-text"),
        ("a.json", b"{", "syntax-error"),
        ("a.json", b"3", "not-a-configuration"),
    ],
)
def test_bad_files_say_why(tmp_path, name, data, expected):
    path = tmp_path / name
    path.write_bytes(data)
    assert reason(look(path)) == expected


def test_files_that_cannot_be_read(tmp_path):
    assert reason(look(tmp_path / "none.py")) == "not-found"
    assert reason(look(tmp_path)) in ("unreadable", "not-found")
    large = tmp_path / "large.py"
    large.write_bytes(b"#" * (LARGEST + 1))
    assert reason(look(large)) == "too-large"


def test_nothing_is_executed(tmp_path):
    path, trace = tmp_path / "a.py", tmp_path / "trace"
    path.write_text(f"import torch\nopen({str(trace)!r}, 'w')\n", encoding="utf-8")
    assert isinstance(look(path), ScriptLook)
    assert not trace.exists()


def test_an_empty_script_and_odd_escapes(seen):
    assert reason(seen("").workers) == "not-torch"
    assert seen("import torch\nx = '\\d'\n").main_guard is True


def test_a_configuration_that_contains_itself(seen):
    assert seen("a: &a\n  b: *a\nnum_workers: 3\n", "a.yaml").workers == 3


def test_files_that_are_made_to_be_large(seen):
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
    assert seen(laughs + "num_workers: 2\n", "a.yaml").workers == 2
    assert seen("import torch\nx = " + " + ".join(["1"] * 900) + "\n").main_guard is True


def test_configurations_as_other_readers_take_them(seen):
    found = seen("train:\n  num_workers: 4\nval:\n  num_workers: 0\nuse_amp: yes\nuse_gpu: no\n", "a.yml")
    assert (found.workers, found.mixed_precision, found.device_strings) == (4, True, ["cpu"])
    tabs = seen('{\n\t"device_id": 2,\n\t"mixed_precision": "bf16",\n\t"dataloader_params": {"pin_memory": true}\n}', "a.json")
    assert (tabs.device_strings, tabs.mixed_precision, tabs.pin_memory) == (["cuda:2"], True, True)
