"""`flatout doctor`: exit codes, JSON by its schema, two languages, saved facts, bad input, time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from flatout.base.records import Missing
from flatout.base.words import LANGUAGES
from flatout.machine.machine_facts import Gpu

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "verdict.schema.json").read_text(encoding="utf-8"))

PASTES = {
    "cpu-only-wheel": "PyTorch version: 2.6.0+cpu\nCUDA used to build PyTorch: None\nOS: Microsoft Windows 11\n"
    "Is CUDA available: False\nGPU 0: NVIDIA GeForce RTX 4070\nNvidia driver version: 566.36",
    "arch-not-in-wheel": "RTX 5090, Windows 11, PyTorch 2.7.1+cu118",
    "driver-library-mismatch": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.120",
    "device-mismatch": "RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu!",
}


def judged(flatout, text, *arguments):
    ended = flatout("doctor", "--from", "-", "--json", *arguments, stdin=text.encode() if isinstance(text, str) else text)
    verdict = json.loads(ended.stdout)
    jsonschema.validate(verdict, SCHEMA)
    assert ended.returncode == (0 if verdict["healthy"] else 1)
    assert verdict["healthy"] == (verdict["root_cause"] is None)
    return verdict


@pytest.mark.parametrize("name", PASTES)
def test_pastes(name, flatout):
    verdict = judged(flatout, PASTES[name])
    assert verdict["root_cause"]["name"] == name
    assert verdict["root_cause"]["fix"]


def test_document_002s_own_machine_wants_a_newer_wheel(flatout):
    fixes = judged(flatout, PASTES["arch-not-in-wheel"])["root_cause"]["fix"]
    commands = " ".join(fix.get("command", "") for fix in fixes)
    assert any(f"whl/{variant}" in commands for variant in ("cu128", "cu129", "cu130", "cu132"))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PASTES)
def test_text_in_both_languages(name, language, flatout):
    ended = flatout("--lang", language, "doctor", "--from", "-", stdin=PASTES[name].encode())
    text = ended.stdout.decode()
    assert ended.returncode == 1
    assert name in text
    assert "{" not in text
    assert "doctor." not in text
    assert "Traceback" not in ended.stderr
    assert text.count("\n") <= 40


def test_this_machine_live(flatout, tmp_path):
    """Whatever machine this is: a verdict by the schema, saved facts that judge the same, and nothing personal in them."""
    first = flatout("doctor", "--json", "--save", "facts.json")
    verdict = json.loads(first.stdout)
    jsonschema.validate(verdict, SCHEMA)
    saved = (tmp_path / "facts.json").read_text(encoding="utf-8")
    assert str(Path.home()) not in saved
    again = json.loads(flatout("doctor", "--json", "--from", "facts.json").stdout)
    cause = verdict["root_cause"] and verdict["root_cause"]["code"]
    assert (again["root_cause"] and again["root_cause"]["code"]) == cause
    assert flatout("doctor", "-v").returncode == first.returncode


def test_no_gpu_is_one_screen_and_says_what_works(flatout):
    ended = flatout("doctor")
    if "HW101" not in ended.stdout.decode():
        pytest.skip("this machine has a GPU")
    assert ended.returncode == 1
    assert "CPU" in ended.stdout.decode()
    assert ended.stdout.decode().count("\n") <= 30


def test_script_is_looked_at(flatout, script):
    path = script("import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=0)\n")
    assert "num_workers=0" in flatout("doctor", path).stdout.decode()
    missing = flatout("doctor", "nope.py")
    assert (missing.returncode, missing.stderr) == (2, "flatout: There is no script nope.py.\n")
    broken = flatout("doctor", script("def (", "broken.py"))
    assert broken.returncode == 2
    assert broken.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\xff\xfe" * 5000, b"hello", b"{", b'{"kind": "facts", "version": 99}', "显卡不能用".encode("gb18030")],
    ids=["empty", "binary", "prose", "brace", "newer", "gb18030"],
)
def test_bad_pastes_give_a_verdict_or_a_sentence(data, flatout):
    ended = flatout("doctor", "--from", "-", stdin=data)
    assert ended.returncode in (0, 1)
    assert "Traceback" not in ended.stderr
    assert ended.stdout or ended.stderr.count("\n") == 1


@pytest.mark.alone
def test_huge_paste(flatout):
    text = ("nothing of interest in this line of a log\n" * 1_300_000).encode() + PASTES["driver-library-mismatch"].encode()
    began = time.monotonic()
    verdict = judged(flatout, text)
    assert time.monotonic() - began < 15
    assert verdict["root_cause"]["name"] == "driver-library-mismatch"


def test_missing_file(flatout):
    ended = flatout("doctor", "--from", "nope.txt")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


@pytest.mark.alone
def test_quick_without_torch_and_not_much_slower_with_it(tmp_path):
    """Facts without torch in under a second; the whole in the time of `import torch` and one second more."""

    def best(code):
        times = []
        for _ in range(3):
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL, cwd=tmp_path)
            times.append(time.monotonic() - began)
        return min(times)

    judge = "from flatout.doctor import registry, root_cause; import sys; from flatout.machine.gather import gather; "
    assert best(judge + "root_cause.judge(gather(sys.executable, ask_torch=False), registry.all_rules())") < 1.0
    pytest.importorskip("torch")
    command = "import sys; sys.argv = ['flatout', 'doctor']; from flatout.cli.main import main; main()"
    assert best(command) < best("import torch") + 1.0


def test_library_face():
    import flatout

    report = flatout.GPUDiagnosticTool(language="en").generate_gpu_diagnostic_report()
    assert report.healthy == (report.root_cause is None)
    assert report.device.device in ("cpu", "cuda:0", "mps", "xpu:0")
    assert report.device.reason
    assert report.hardware.status in ("ok", "warn", "fail", "blocked", "unknown")
    if not report.healthy:
        assert report.root_cause.message
        assert report.root_cause.fix
    for gpu in report.hardware.gpus:
        assert isinstance(gpu, flatout.GPUStatus)


def test_what_a_driver_does_not_say_is_missing_and_not_zero():
    import flatout

    status = flatout.GPUDiagnosticTool(language="en")._gpu(Gpu(index=0, name="A card"))
    assert isinstance(status.memory_total, Missing)
    assert isinstance(status.memory_free, Missing)
    assert isinstance(status.compute_capability, Missing)
    told = flatout.GPUDiagnosticTool(language="en")._gpu(Gpu(index=0, name="A card", memory_total_bytes=6, capability="8.9"))
    assert (told.memory_total, told.compute_capability) == (6, (8, 9))


def test_importing_flatout_imports_little():
    code = "import sys, flatout; print('flatout.api' in sys.modules, 'torch' in sys.modules, 'msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False False False\n"


def test_a_long_command_stays_whole(flatout):
    """Longer than any terminal is wide: it is copied, so nothing may be cut off its end."""
    folder = "C:/Users/someone/" + "projects/" * 12
    paste = PASTES["cpu-only-wheel"] + f"\nPython executable: {folder}python.exe"
    verdict = judged(flatout, paste)
    commands = [fix["command"] for fix in verdict["root_cause"]["fix"] if "command" in fix]
    shown = flatout("doctor", "--from", "-", stdin=paste.encode()).stdout.decode()
    assert commands
    assert all(command in shown for command in commands)
