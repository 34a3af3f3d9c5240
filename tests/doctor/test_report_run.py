"""A run's summary on one screen: bound by what, findings, memory, the card, and why memory ran out."""

import io

import pytest
from finished_runs import GIB, HEALTHY, OOM, PLANTED, finished

from flatout.base.words import LANGUAGES, Words
from flatout.doctor import after_run
from flatout.knobs.model import Bound
from flatout.machine.run_look import DeviceLook, DeviceMemory, GpuChange, GpuDuring, Holder, OutOfMemory
from flatout.measure.fitting import fitting_batch, next_command
from flatout.report import run, run_device
from flatout.report.terminal import console_on

ONE_SCREEN = 40


def text(summary, language="en"):
    stream = io.StringIO()
    console_on(stream).print(run.render(summary, after_run.findings(summary), Words(language), "r/summary.json"))
    return stream.getvalue()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [*PLANTED, *HEALTHY])
def test_every_run_fits_on_a_screen(name, language):
    shown = text({**PLANTED, **HEALTHY}[name], language)
    assert shown.count("\n") <= ONE_SCREEN
    assert "{" not in shown
    assert not any(word in shown for word in ("bound-by.", "shortage.", "run.", "note."))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("by", Bound)
def test_every_bottleneck_has_its_sentence(by, language):
    line = run_device.bound_line(finished(bound_by=str(by)), Words(language))
    assert line
    assert "{" not in line


def test_what_is_unknown_is_not_said():
    summary = finished(DeviceLook(), {"forward": 5.0, "backward": 5.0})
    assert summary.bound_by == "unknown"
    assert "Bound by" not in text(summary)
    assert "GPU memory" not in text(summary)


def test_findings_come_with_their_knob():
    shown = text(PLANTED["pageable-batches"])
    assert "Bound by data copies: the training spends 60 % of its time" in shown
    assert "AP518 1000 of 1000 checked copies came from memory that is not pinned" in shown
    assert "knobs: pin_memory, non_blocking" in shown


def test_the_card_before_and_after():
    during = GpuDuring(
        index=0, name="NVIDIA H200", samples=60, working=50, temperature_max_c=71, sm_clock_mhz=1900.4, sm_clock_max_mhz=1980
    )
    gpu = GpuChange(
        index=0,
        name="NVIDIA H200",
        used=True,
        used_before_bytes=GIB,
        used_after_bytes=GIB,
        temperature_before_c=37,
        temperature_after_c=55,
        others_after=["python (4242)"],
        during=during,
    )
    shown = " ".join(text(finished(gpus=[gpu])).split())
    assert (
        "NVIDIA H200: memory in use 1.0 GiB → 1.0 GiB, temperature 37 → 55 °C (highest 71), clock 1900 of 1980 MHz under load"
        in shown
    )
    assert "other programs on this GPU: python (4242)." in shown
    gpu.used = False
    assert "NVIDIA H200:" not in text(finished(gpus=[gpu]))


def shortage(batch=64, activations=15, fixed=5, total=24):
    holders = [Holder(what="activations", bytes=activations * GIB), Holder(what="optimizer", bytes=fixed * GIB)]
    memory = DeviceMemory(total_bytes=total * GIB)
    return OutOfMemory(step=12, message=OOM.message, batch=batch, memory=memory, holders=holders)


@pytest.mark.parametrize("language", LANGUAGES)
def test_post_mortem(language):
    told = shortage()
    told.fits_batch_estimated = fitting_batch(told)
    told.try_next = next_command(["/usr/bin/python3", "train.py", "--batch-size", "64", "--name", "a b"], 64, 32)
    shown = text(finished(out_of_memory=told, steps=12), language)
    assert "flatout run train.py --batch-size 32 --name 'a b'" in shown
    assert "15.0 GiB" in shown
    assert "32" in shown
    told.fits_batch_estimated, told.try_next = 0, []
    assert "flatout run" not in text(finished(out_of_memory=told, steps=12), language).split("AP511")[0]


def test_what_would_fit():
    assert fitting_batch(shortage()) == 32
    assert fitting_batch(shortage(activations=40, total=24)) == 24  # 64 * (21.6 - 5) / 40, in eights
    assert fitting_batch(shortage(batch=6)) == 3
    assert fitting_batch(shortage(fixed=23)) == 0
    assert fitting_batch(OutOfMemory(batch=10)) == 5
    assert fitting_batch(OutOfMemory()).reason == "not-reported"


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["--batch-size", "64"], ["--batch-size", "16"]),
        (["--batch_size=64"], ["--batch_size=16"]),
        (["--per_device_train_batch_size", "8"], ["--per_device_train_batch_size", "2"]),
        (["-b", "128"], ["-b", "32"]),
        (["data.batch_size=64"], ["data.batch_size=16"]),
        (["--bs", "1"], ["--bs", "1"]),
        (["--batch-size", "auto"], []),
        (["--epochs", "64"], []),
    ],
)
def test_the_command_to_try_next(words, changed):
    expected = ["python", "train.py", *changed] if changed else []
    assert next_command(["python", "train.py", *words], 64, 16) == expected


def test_a_launcher_is_shown_as_it_was_typed():
    assert run_device.shown_command(["/opt/bin/torchrun", "train.py"]) == "flatout run torchrun train.py"
    assert run_device.shown_command(["/v/bin/python3.12", "-m", "pkg"]) == "flatout run -m pkg"
