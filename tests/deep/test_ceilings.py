"""From the deep look's lines to ceilings and sentences: pure."""

import io

import pytest

from flatout.base import records
from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine import cards
from flatout.machine.deep_look import Arithmetic, DeepLook
from flatout.measure import bound, deep
from flatout.measure.bound import Bottleneck, with_roofline
from flatout.measure.ceilings import at_rated_peak, ceilings, rated, undisturbed
from flatout.measure.process_journals import read_story
from flatout.report import run_deep
from flatout.report.terminal import Group, show

H200 = cards.find("NVIDIA H200")
T4 = cards.find("Tesla T4")

PROFILE = {
    "kind": "deep", "look": "profile", "steps": 3, "took_ns": 40_000_000, "cost_ns": 300_000_000, "device": "NVIDIA H200",
    "device_busy": [24_150_000, 30_000_000], "kernels_per_step": 412.0, "gaps": {"count": 30, "ns": 1, "longest_ns": 1},
    "copy_ns": 1_000_000, "top": [{"name": "gemm", "ns": 12_000_000, "share": 0.5, "count": 96}],
}  # fmt: skip
SYNCS = {"kind": "deep", "look": "syncs", "steps": 2, "cost_ns": 0, "sites": [{"site": "/home/me/train.py:88", "count": 1.0}]}
FLOPS = {"kind": "deep", "look": "flops", "steps": 1, "cost_ns": 120_000_000, "flops": 4e12, "by_dtype": {"bfloat16": 4e12},
         "bytes": 8e9}  # fmt: skip


def worker(fetched, spent, *lines, samples=100, dataset="Data", inside=True):
    told = [{"site": site, "share": share, "function": "__getitem__"} for site, share in lines]
    return {"kind": "deep", "look": "worker", "worker": inside, "dataset": dataset, "source": "__getitem__", "fetched": fetched,
            "per_sample_s": spent, "wall_per_sample_s": spent, "lines": told, "samples": samples}  # fmt: skip


WORKERS = [
    worker(100, 0.003, ("/x/data.py:34", 0.5), ("/x/data.py:40", 0.5)),
    worker(300, 0.00393333, ("/x/data.py:34", 0.72)),
    worker(40, 0.001, dataset="Validation"),
]


def test_a_host_that_runs_ahead_of_its_device():
    """Seen on an H200: steps of 29 ms on the host, 155 ms of work each on the device, and 158 % of its peak."""
    done = Arithmetic(flops=3.02e12, by_dtype={"float32": 3.02e12}, bytes_estimated=7e9)
    found = ceilings(DeepLook(arithmetic=done, busy_per_step_s=0.155), 16.0, 64.0, 0.029, H200)
    assert found.step_s == 0.155
    assert 0.2 < found.mfu < 0.4


def test_the_sentence_with_both_ceilings():
    own = [PROFILE, SYNCS, FLOPS]
    look = deep.read(own, [*own, *WORKERS])
    look.ceilings = ceilings(look, cores=16.0, batch=64.0, step_s=0.02, card=H200)
    shown = io.StringIO()
    show(shown, Group(*run_deep.section(look, Words("en"))))
    text = " ".join(shown.getvalue().split())
    assert "Deep profile (it took 6 steps, 420 ms)" in text
    assert "The GPU was busy 80 % of the time, with 412 kernels and 10 longer gaps between kernels per step." in text
    assert "50 % gemm (96 times)" in text
    assert "train.py:88 makes the CPU wait for the GPU (1 times per step)." in text
    assert (
        "Your `__getitem__` takes 3.7 ms per sample, 16 CPU cores can load at most 4,324 samples/s, the GPU could process "
        "7,950 samples/s; 61 % of the time per sample is spent at data.py:34."
    ) in text
    assert "4 TFLOP per step, 200 TFLOP/s reached, 20 % of the 989 TFLOP/s peak of NVIDIA H200 (MFU)." in text


def test_the_same_in_chinese():
    look = deep.read([PROFILE, SYNCS, FLOPS], [PROFILE, SYNCS, FLOPS, *WORKERS])
    look.ceilings = ceilings(look, 16.0, 64.0, 0.02, H200)
    shown = io.StringIO()
    show(shown, Group(*run_deep.section(look, Words("zh"))))
    text = "".join(shown.getvalue().split())
    assert "深度性能剖析（占用6步，420ms）" in text
    assert "GPU可以处理7,950样本/秒；每个样本的时间有61%花在data.py:34。" in text


def test_workers_of_one_dataset_are_taken_together_and_the_busiest_dataset_comes_first():
    first, second = deep.fetch_costs(WORKERS)
    assert (first.dataset, first.workers, first.fetched) == ("Data", 2, 400)
    assert first.per_sample_s == pytest.approx(0.0037)
    assert [(line.site, round(line.share, 2)) for line in first.lines] == [("/x/data.py:34", 0.61), ("/x/data.py:40", 0.25)]
    assert second.dataset == "Validation"
    (alone,) = deep.fetch_costs([worker(10, 0.1, inside=False)])
    assert alone.workers == 0


def test_a_sample_that_mostly_waits_says_so():
    line = {**worker(10, 0.001), "wall_per_sample_s": 0.05}
    look = deep.read([], [line])
    look.ceilings = ceilings(look, 4.0, 8.0, 0.1, None)
    (sentence,) = run_deep._supply(look, Words("en"))
    assert sentence.startswith("Your `__getitem__` takes 50 ms per sample, of which it waits 49 ms")
    assert look.ceilings.gpu_samples_per_s == Missing("no-device")


def test_mfu_takes_each_type_at_its_own_rate():
    done = Arithmetic(flops=3e12, by_dtype={"bfloat16": 2e12, "float32": 1e12}, bytes_estimated=1e6)
    wanted = 2 / H200.bf16_tflops + 1 / H200.fp32_tflops
    assert at_rated_peak(done, H200) == pytest.approx(wanted)
    found = ceilings(DeepLook(arithmetic=done), 8.0, 32.0, 1.0, H200)
    assert found.mfu == pytest.approx(wanted)
    assert found.memory_limited is False
    assert found.flops_per_s == 3e12


def test_the_roofline_where_the_bytes_take_longer():
    done = Arithmetic(flops=1e9, by_dtype={"bfloat16": 1e9}, bytes_estimated=H200.bandwidth_gb_s * 1e9 * 0.01)
    found = ceilings(DeepLook(arithmetic=done), 8.0, 32.0, 0.02, H200)
    assert found.memory_limited is True
    assert found.roofline == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("by", "moved_s", "computed_s", "wanted"),
    [
        ("compute", 0.012, 0.001, "memory"),
        ("compute", 0.012, 0.009, "compute"),  # near both roofs
        ("compute", 0.004, 0.001, "compute"),  # far from either
        ("launch", 0.012, 0.001, "launch"),
    ],
)
def test_a_busy_device_that_moves_bytes_is_bound_by_its_memory(by, moved_s, computed_s, wanted):
    """The deep look alone knows the bytes; `moved_s` and `computed_s` at the rated peaks, of a step of 20 ms."""
    flops = H200.bf16_tflops * 1e12 * computed_s
    done = Arithmetic(flops=flops, by_dtype={"bfloat16": flops}, bytes_estimated=H200.bandwidth_gb_s * 1e9 * moved_s)
    found = with_roofline(Bottleneck(by=by, evidence={"busy": 0.9}), ceilings(DeepLook(arithmetic=done), 8.0, 32.0, 0.02, H200))
    assert found.by == wanted
    assert found.evidence["busy"] == 0.9
    assert ("roofline" in found.evidence) is (wanted == "memory")


@pytest.mark.parametrize(
    ("card", "dtype", "rate"),
    [
        (H200, "tf32", H200.tf32_tflops),
        (H200, "float64", None),
        (T4, "tf32", T4.fp32_tflops),  # no TF32 there: fp32 is done in fp32
        (T4, "float16", T4.fp16_tflops),
        (T4, "bfloat16", None),
    ],
)
def test_rates(card, dtype, rate):
    assert rated(card, dtype) == rate


def test_what_is_unknown_says_why():
    done = Arithmetic(flops=1e9, by_dtype={"bfloat16": 1e9}, bytes_estimated=0.0)
    assert ceilings(DeepLook(arithmetic=done), 8.0, 32.0, 0.02, None).mfu == Missing("card-unknown")
    assert ceilings(DeepLook(arithmetic=done), 8.0, 32.0, 0.02, T4).mfu == Missing("rate-unknown", "bfloat16")
    assert ceilings(DeepLook(refused={"flops": "compiled"}), 8.0, 32.0, 0.02, H200).mfu == Missing("compiled")
    nothing = ceilings(DeepLook(), Missing("unknown"), Missing("no-batches"), Missing("no-steps"), None)
    assert nothing.cpu_samples_per_s == Missing("unknown")
    assert nothing.gpu_samples_per_s == Missing("no-batches")


@pytest.mark.parametrize("reason", ["card-unknown", "rate-unknown", "compiled", "nothing-counted"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_reason_has_a_sentence(reason, language):
    assert Words(language).has(f"missing.{reason}")


REASONS = (
    "torch-too-old", "too-few-steps", "no-steps", "no-device", "compiled", "nothing-counted", "failed", "script-profiles",
    "script-looks-itself", "other-profiler", "cut-short", "steps-in-backward", "disturbed",
)  # fmt: skip


def test_every_reason_of_the_agent_has_a_sentence():
    for language in ("en", "zh"):
        words = Words(language)
        for reason in REASONS:
            assert words.has(f"deep-reason.{reason}"), reason


def test_the_looks_are_taken_out_of_the_step_time():
    assert undisturbed(0.02, 100, 0.5) == pytest.approx(0.015)
    assert undisturbed(0.02, 10, 0.5) == 0.02  # more than there is: the estimate is no good
    assert undisturbed(Missing("no-steps"), 10, 0.5) == Missing("no-steps")


@pytest.mark.parametrize("bad", [None, "x", [1], {"a": 1}, True, float("nan")])
def test_fields_of_a_wrong_shape_are_left_out(bad):
    own = [
        {name: bad if name not in ("kind", "look") else value for name, value in line.items()}
        for line in (PROFILE, SYNCS, FLOPS)
    ]
    own.append({"kind": "deep", "look": "worker", "fetched": bad, "lines": bad})
    records.encode(deep.read(own, own))


def test_the_busy_share_reaches_the_verdict():
    head = {"kind": "process", "pid": 1, "python": "3.12", "rank": None, "torch": {"version": "2.13", "cuda": "12", "hip": None,
            "import_s": 1.0}}  # fmt: skip
    window = {
        "kind": "window",
        "t": 0,
        "steps": 200,
        "samples": 6400,
        "batches": 200,
        "phases": [0, 1, 1, 40, 40, 18] + [0] * 6,
    }
    story = read_story([head, window, PROFILE])
    assert story.device.busy.share == pytest.approx(0.805)
    assert story.device.kernels_per_step == 412.0
    assert bound.judge(story.steady, story.device, 200).evidence["busy"] == 0.805
