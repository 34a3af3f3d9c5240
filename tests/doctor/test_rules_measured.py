"""Rules over a finished run: each found on its planted cause, none on a healthy run of any kind."""

from __future__ import annotations

import json

import pytest
from finished_runs import EIGHT_WORKERS, GIB, HEALTHY, MIB, MIX, OOM, PLANTED, UNPINNED, finished, growth, looks

from flatout.base import records
from flatout.doctor import after_run, page, registry
from flatout.doctor.model import Finding, Severity
from flatout.knobs import catalogue
from flatout.knobs.model import Came, KnobUse
from flatout.machine.run_look import (
    BlockingRead,
    CoreUse,
    DeviceLook,
    DeviceMemory,
    DeviceMix,
    Losses,
    OutOfMemory,
    PlacedTensor,
)
from flatout.measure.model import Summary


def told(summary: Summary) -> list[str]:
    return [finding.name for finding in after_run.findings(summary)]


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_comes_first(name):
    assert told(PLANTED[name])[0] == name


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_are_left_in_peace(name):
    assert told(HEALTHY[name]) == []


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", PLANTED)
def test_every_finding_reads_well(name, language):
    for finding in after_run.findings(PLANTED[name]):
        sheet = page.read(finding.code, language)
        sentence = sheet.sentence(dict(finding.evidence))
        assert sentence != sheet.title
        assert "{" not in sentence
        if sheet.says_measured is not None:
            assert sheet.says_measured.format(**finding.evidence)
        assert finding.fix
        for step in finding.fix:
            assert "{" not in sheet.step(step)
            assert step.text is None or step.text in sheet.fix


def test_every_rule_of_a_run_is_tried():
    codes = {finding.code for summary in PLANTED.values() for finding in after_run.findings(summary)}
    special = {"AP508", "AP509"}  # kinds of out-of-memory, tried with the messages that they come from
    assert codes | special == {*after_run.STOPPED, *after_run.ALWAYS, *after_run.TIMED}


def test_every_knob_that_is_named_exists():
    for rule in registry.all_rules():
        for name in rule.knobs:
            assert catalogue.find(name) is not None, (rule.code, name)


@pytest.mark.parametrize(
    ("use", "first", "own"),
    [
        ({"own_s": 148.0}, "threads", 14.8),  # of 16 cores: nobody else is in the way
        ({"own_s": 30.0}, "others", 3.0),
        ({"workers_running_s": 140.0}, "threads", 14.6),  # a record that does not tell of all threads yet
        ({}, "others", 0.6),
    ],
)
def test_whose_work_holds_the_cores(use, first, own):
    seen = CoreUse(span_s=10.0, running_s=6.0, queueing_s=3.5, **use)
    (found,) = after_run.findings(finished(looks(0.9, 0.3, cores=seen), {"forward": 5.0, "backward": 5.0}))
    assert (found.name, found.fix[0].text, found.evidence["own_cores"]) == ("cpu-contended", first, own)


@pytest.mark.parametrize("name", [*PLANTED, *HEALTHY])
def test_a_summary_is_read_back_as_it_was_written(name):
    summary = {**PLANTED, **HEALTHY}[name]
    written = records.encode(summary)
    read = records.decode(written, Summary)
    assert read == summary
    assert records.encode(read) == written


def test_a_summary_of_an_older_flatout_is_still_read():
    body = records.dump(PLANTED["tiny-kernels"])
    new = ("bound_by", "bound_evidence", "tokens_per_s", "device", "losses", "gpus", "host", "out_of_memory", "device_mix")
    read = records.decode(json.dumps({name: value for name, value in body.items() if name not in new}), Summary)
    assert (read.bound_by, read.device, read.out_of_memory) == ("unknown", DeviceLook(), None)
    assert after_run.findings(read) == []


def find(name: str, summary: Summary) -> Finding:
    return next(finding for finding in after_run.findings(summary) if finding.name == name)


def test_a_hidden_read_by_file_and_line():
    finding = find("hidden-synchronisation", PLANTED["hidden-synchronisation"])
    sentence = page.read("AP521", "en").sentence(dict(finding.evidence))
    assert sentence.startswith(".item() at train.py:88 takes 3.1 ms per step")
    assert (finding.severity, finding.certain) == (Severity.SLOW, True)
    assert "tiny-kernels" not in told(PLANTED["hidden-synchronisation"])


def test_tensors_on_two_devices_by_their_names():
    finding = find("device-mismatch", PLANTED["device-mismatch"])
    assert finding.evidence["tensors"] == ["model.fc.weight (cuda:0)", "x (cpu)"]
    many = [PlacedTensor(name=f"w{index}", device="cuda:0") for index in range(20)]
    crowd = DeviceMix(site="t.py:1", message=MIX.message, tensors=[*many, PlacedTensor(name="x", device="cpu")])
    shown = find("device-mismatch", finished(device_mix=crowd, steps=0)).evidence["tensors"]
    assert shown == ["x (cpu)", "w0 (cuda:0)", "w1 (cuda:0)", "w2 (cuda:0)"]
    assert (finding.evidence["first"], finding.evidence["second"]) == ("cuda:0", "cpu")
    assert "train.py:90" in page.read("AP503", "zh").sentence(dict(finding.evidence))


def test_a_shortage_is_judged_by_its_figures():
    assert find("out-of-memory", PLANTED["out-of-memory"]).evidence["tried_gib"] == 2.0
    pieces = OOM.message.replace("21.00 GiB is allocated", "12.00 GiB is allocated").replace("0.30 GiB is", "9.00 GiB is")
    assert told(finished(out_of_memory=OutOfMemory(message=pieces), steps=3)) == ["oom-fragmentation"]
    others = OOM.message.replace("21.00 GiB is allocated", "5.00 GiB is allocated")
    assert told(finished(out_of_memory=OutOfMemory(message=others), steps=3)) == ["memory-held-by-other"]
    bare = OutOfMemory(message="", memory=DeviceMemory(allocated_bytes=20 * GIB, reserved_bytes=21 * GIB, total_bytes=24 * GIB))
    assert find("out-of-memory", finished(out_of_memory=bare, steps=3)).evidence["allocated_gib"] == 20.0


def test_a_leak_that_fills_the_card_soon_is_a_fault():
    soon = find("memory-leak", finished(looks(0.02, 0.98, growth=growth(100 * MIB))))
    late = find("memory-leak", PLANTED["memory-leak"])
    assert (soon.severity, late.severity) == (Severity.FAULT, Severity.SLOW)
    assert soon.evidence["steps_left_estimated"] == 139 * 1024 // 100


def test_a_loss_that_is_nan_from_the_start_points_at_the_data():
    broken = finished(losses=Losses(points=[], not_finite=40, not_finite_from=1))
    assert find("exploding-loss", broken).fix[0].text == "anomaly"
    later = finished(losses=Losses(points=[(1, 2.0), (2, 900.0)], not_finite=40, not_finite_from=3))
    assert find("exploding-loss", later).evidence["before"] == "900"


def test_findings_are_ordered_by_what_they_cost():
    device = looks(0.4, 0.4, copies=UNPINNED, reads=[BlockingRead(site="a.py:1", what="cpu", total_s=1.0, count=1)])
    summary = finished(device, {"input": 3.0, "copy": 5.0, "device_wait": 1.0, "forward": 1.0}, loaders=EIGHT_WORKERS)
    assert told(summary) == ["pageable-batches", "dataloader-bottleneck", "hidden-synchronisation"]


def used(name, value, came=Came.APPLIED):
    return KnobUse(name=name, value=value, source="flag", came=came)


@pytest.mark.parametrize(
    ("cause", "knob"),
    [
        ("full-precision", used("precision", "bf16")),
        ("tf32-off", used("tf32", "on")),
        ("tf32-off", used("precision", "bf16", Came.UNPROVED)),
        ("pageable-batches", used("pin_memory", "on")),
    ],
)
def test_what_is_on_is_not_advised(cause, knob):
    assert cause not in told(records.replace(PLANTED[cause], knobs=[knob]))
    taken_back = records.replace(knob, came=Came.TAKEN_BACK)
    assert told(records.replace(PLANTED[cause], knobs=[taken_back]))[0] == cause


def test_a_loader_is_told_of_as_it_was_served():
    finding = after_run.findings(records.replace(PLANTED["dataloader-bottleneck"], knobs=[used("workers", "2")]))[0]
    assert (finding.code, finding.evidence["workers"]) == ("AP504", 2)
    assert "workers" not in finding.knobs
    assert finding.fix[0].text == "cores"


def test_a_loop_that_is_compiled_by_us_is_told_what_is_left():
    on = [used("compile", "reduce-overhead"), used("fused_optimizer", "on")]
    finding = after_run.findings(records.replace(PLANTED["tiny-kernels"], knobs=on))[0]
    assert [fix.text for fix in finding.fix] == ["batch"]
    assert finding.knobs == ["batch_size"]
