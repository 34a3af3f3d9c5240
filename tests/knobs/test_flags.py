"""The flags of `flatout run` and the profile beside the script, with real processes: what reaches the agent's job."""

import hashlib
import json
import os
import sys

import pytest

JOB = """
import json, os, sys
path = os.environ.get("FLATOUT_JOB")
job = json.load(open(path)) if path else None
print(json.dumps([job and job.get("knobs") or {}, bool(job and job.get("knobs_check")), sys.argv[1:]] if job else None))
"""


@pytest.fixture
def job(flatout, script):
    """(knobs, check, the script's own arguments) as the agent would get them, and the finished command."""

    def run(*options, text=JOB, **more):
        ended = flatout("run", "-q", *options, script(text), "--workers", "9", "--compile", **more)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout), ended

    return run


@pytest.mark.parametrize(
    ("options", "knobs"),
    [
        ([], {}),
        (["--mixed-precision", "true"], {"precision": "auto"}),
        (["--mixed-precision", "BF16"], {"precision": "bf16"}),
        (["--mixed-precision", "false"], {}),
        (["--mixed-precision=fp16"], {"precision": "fp16"}),
        (["--compile"], {"compile": "default"}),
        (["--compile", "reduce-overhead"], {"compile": "reduce-overhead"}),
        (["--compile=max-autotune", "-q"], {"compile": "max-autotune"}),
        (["--compile", "--workers", "4"], {"compile": "default", "workers": "4"}),
        (["--workers", "0"], {"workers": "0"}),
        (["--pin-memory"], {"pin_memory": "on"}),
        (["--no-pin-memory"], {}),
        (["--knob", "channels-last=true", "--knob", "cpu_threads=2"], {"channels_last": "on", "cpu_threads": "2"}),
        (["--workers", "4", "--knob", "workers=4"], {"workers": "4"}),
        (["--knob", "batch_size=64"], {}),
    ],
)
def test_flags_reach_the_agent(options, knobs, job):
    told, _ = job(*options)
    assert told == [knobs, False, ["--workers", "9", "--compile"]]


def test_compile_before_a_launcher_and_a_module(flatout, tmp_path):
    (tmp_path / "mod.py").write_text(JOB)
    python = os.path.basename(sys.executable)
    path = {"PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}
    for line in (["--compile", "-m", "mod"], ["--compile", python, "mod.py"]):
        ended = flatout("run", "-q", *line, env=path)
        assert json.loads(ended.stdout)[0] == {"compile": "default"}, ended.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--safe", "--compile"], "--safe and --compile default contradict each other: remove one of the two."),
        (["--safe", "--deep"], "--safe and --deep contradict each other: remove one of the two."),
        (["--safe", "--profile", "x.toml"], "--safe and --profile x.toml contradict each other: remove one of the two."),
        (["--no-profile", "--profile", "x"], "--profile x and --no-profile contradict each other: remove one of the two."),
        (
            ["--workers", "4", "--knob", "workers=8"],
            "--workers 4 and --knob workers=8 contradict each other: remove one of the two.",
        ),
        (["--workers", "many"], "--workers: workers cannot be many. Allowed: whole numbers from 0 to 64."),
        (["--workers", "65"], "--workers: workers cannot be 65. Allowed: whole numbers from 0 to 64; the nearest is 64."),
        (
            ["--mixed-precision", "bf61"],
            "--mixed-precision: precision cannot be bf61; did you mean bf16? Allowed values: no, bf16, fp16, auto.",
        ),
        (
            ["--compile", "max-autotun"],
            "--compile: compile cannot be max-autotun; did you mean max-autotune? Allowed values: no, default, "
            "reduce-overhead, max-autotune, max-autotune-no-cudagraphs, graphs.",
        ),
        (["--knob", "precison=bf16"], "--knob: there is no knob precison; did you mean precision?"),
        (["--knob", "precision"], "--knob precision is not valid: write NAME=VALUE, for example --knob workers=8."),
        (["--profile", "nope.toml"], "nope.toml cannot be read: No such file or directory."),
        (["--bisect"], "--bisect needs settings to test: a profile, or options such as --compile."),
        (
            ["--workers", "0", "--knob", "persistent_workers=on"],
            "--workers 0, --knob persistent_workers=on: persistent_workers=on and workers=0 contradict each other. Change one "
            "of the two.",
        ),
    ],
)
def test_wrong_flags_are_one_sentence(options, sentence, flatout, script, tmp_path):
    ended = flatout("run", *options, script("print('ran')"))
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == f"flatout: {sentence}\n"
    assert not (tmp_path / ".flatout").exists()


def test_the_environment_may_forbid_a_knob(flatout, script):
    ended = flatout("run", "--compile", script("print('ran')"), env={"TORCHDYNAMO_DISABLE": "1"})
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert "compile=default contradicts TORCHDYNAMO_DISABLE=1 in the environment" in ended.stderr
    recorded = flatout("run", "--compile", "graphs", script("print('ran')"), env={"TORCHDYNAMO_DISABLE": "1"})
    assert b"ran" in recorded.stdout  # nothing is compiled


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_a_variable_for_the_allocator_is_the_users(flatout, script, variable):
    own = {variable: "max_split_size_mb:128"}
    ended = flatout("run", "--knob", "allocator=expandable", script("raise SystemExit(3)"), env=own)
    assert ended.returncode == 2
    assert f"allocator=expandable contradicts {variable}=max_split_size_mb:128 in the environment" in ended.stderr


def test_a_contradiction_in_chinese(flatout, script):
    ended = flatout("--lang", "zh", "run", "--safe", "--compile", script(""))
    assert ended.stderr == "flatout: --safe 与 --compile default 互相矛盾：请去掉其中之一。\n"


def test_safe_is_the_plain_script(flatout, plain, script, tmp_path):
    (tmp_path / "flatout.toml").write_text("[knobs]\nworkers = 4\n")
    path = script("import os, sys; print(sorted(os.environ), sys.path, 'sitecustomize' in sys.modules)")
    environment = {"FLATOUT_LANG": "en"}
    ours = flatout("run", "--safe", path, env=environment)
    assert (ours.stdout, ours.stderr) == (plain(path, env=environment).stdout, "")
    assert not (tmp_path / ".flatout").exists()


def test_switched_off_reads_no_profile(flatout, script, tmp_path):
    (tmp_path / "flatout.toml").write_text("not toml at all [")
    ended = flatout("run", "--compile", script(JOB), env={"FLATOUT": "off"})
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"null\n", "")


def profile(tmp_path, text):
    (tmp_path / "flatout.toml").write_text(text, encoding="utf-8")


def test_a_profile_beside_the_script_is_put_on_and_said(job, tmp_path):
    digest = hashlib.sha256(JOB.encode()).hexdigest()
    profile(
        tmp_path,
        "[knobs]\nworkers = 4\npin_memory = true\nprecision = 'bf16'\n"
        f"[fingerprint]\nscript = '{digest}'\n"
        "[provenance]\nratio = 3.125\nlow = 3.0\nhigh = 3.3\ndate = '2026-05-01T10:00:00'\n",
    )
    told, ended = job("--mixed-precision", "no", "--workers", "2")
    assert told[:2] == [{"workers": "2", "pin_memory": "on"}, True]
    said = f"flatout: profile {tmp_path / 'flatout.toml'} is applied:"
    assert ended.stderr == f"{said} pin_memory=on.\n"  # with flags in the mixture nothing was measured
    told, ended = job_again(job, tmp_path)
    assert told[0] == {"workers": "4", "pin_memory": "on", "precision": "bf16"}
    measured = "Measured on 2026-05-01: 3.12 times as fast as the plain script (3.00 to 3.30)."
    assert ended.stderr == f"{said} workers=4, pin_memory=on, precision=bf16. {measured}\n"
    told, ended = job_again(job, tmp_path, "--no-profile")
    assert (told[0], ended.stderr) == ({}, "")


def job_again(job, tmp_path, *options):
    import shutil

    shutil.rmtree(tmp_path / ".flatout")
    return job(*options)


def test_a_profile_for_something_else_is_left_out_unless_asked_for(job, tmp_path):
    digest = "0123456789abcdef" * 4
    profile(tmp_path, f"[knobs]\nworkers = 4\n[fingerprint]\nscript = '{digest}'\ntorch = '1.9.0'\ncard = 'NVIDIA X1'\n")
    path = tmp_path / "flatout.toml"
    told, ended = job(env={"CUDA_VISIBLE_DEVICES": ""})
    own = hashlib.sha256(JOB.encode()).hexdigest()[:12]
    assert told[0] == {}
    assert ended.stderr.startswith(
        f"flatout: profile {path} is not applied, because it was made for something else: script 0123456789ab, but here {own}; "
        "torch 1.9.0, but here 2."
    )
    assert ended.stderr.endswith(f"; GPU NVIDIA X1, but here CPU. Use --profile {path} to apply it anyway.\n")
    told, ended = job_again(job, tmp_path, "--profile", path)
    assert told[0] == {"workers": "4"}
    warning, announcement = ended.stderr.splitlines()
    assert warning.startswith(f"flatout: warning: profile {path} was made for something else")
    assert announcement == f"flatout: profile {path} is applied: workers=4."


def test_a_wrong_profile_stops_before_anything_runs(flatout, script, tmp_path):
    profile(tmp_path, "[knobs]\nworkers = 400\n")
    ended = flatout("run", script("print('ran')"))
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.endswith("the nearest is 64.\n")
    assert ended.stderr.count("\n") == 1


def test_the_profile_lies_beside_the_script_not_in_the_working_folder(flatout, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(JOB)
    (folder / "flatout.toml").write_text("[knobs]\nworkers = 3\n[fingerprint]\nshapes = ['1x1']\n")
    (tmp_path / "flatout.toml").write_text("[knobs]\nworkers = 5\n[fingerprint]\nshapes = ['1x1']\n")
    python = os.path.basename(sys.executable)
    path = {"PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}
    for line, workers in ((["project/train.py"], "3"), ([python, "project/train.py"], "3"), (["-m", "project.train"], "5")):
        ended = flatout("run", "-q", *line, env=path)
        assert json.loads(ended.stdout)[0] == {"workers": workers}, ended.stderr


def test_which_card_is_meant():
    """Of several cards the profile's own counts; one that was asked for counts alone."""
    from flatout.launch.fingerprint import card_of
    from flatout.machine.machine_facts import Driver, Gpu

    def gpu(index, name):
        return Gpu(index=index, name=name, uuid=f"GPU-{index}", memory_total_bytes=8 << 30, memory_free_bytes=(8 - index) << 30)

    two = Driver(version="580.1", gpus=[gpu(0, "NVIDIA A"), gpu(1, "NVIDIA B")])
    assert {card_of(two, {}, None, name) for name in ("NVIDIA A", "NVIDIA B")} == {"NVIDIA A", "NVIDIA B"}
    assert card_of(two, {}, "1", "NVIDIA A") == "NVIDIA B"
    assert card_of(two, {}, None, "NVIDIA C") in ("NVIDIA A", "NVIDIA B")
    assert card_of(two, {"CUDA_VISIBLE_DEVICES": ""}, None, "NVIDIA A") == "CPU"
    assert card_of(two, {}, "7", "NVIDIA A") == ""
    assert card_of(Driver(), {}, None, "NVIDIA A") == "CPU"
