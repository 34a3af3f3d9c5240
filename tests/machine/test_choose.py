"""The choice of the device: property 1 of the requirements, and what CUDA itself would make of the answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.base.errors import UsageError
from flatout.base.words import Words, catalogue
from flatout.machine import choose as choosing
from flatout.machine import visible
from flatout.machine.choose import choose, kind_of
from flatout.machine.machine_facts import Gpu, PciDevice

GIB = 1 << 30
NVIDIA = (
    "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 4050 Laptop GPU",
    "NVIDIA GeForce GTX 1080 Ti",
    "NVIDIA H200",
    "Unheard-of 1",
)
INTEGRATED = (("amd", "AMD Radeon Graphics"), ("intel", "Intel(R) UHD Graphics 770"), ("nvidia", "Jetson AGX Orin"))
DISCRETE = (
    ("amd", "AMD Radeon RX 7900 XT"),
    ("intel", "Intel(R) Arc(TM) A770 Graphics"),
    *(("nvidia", name) for name in NVIDIA),
)


def uuid_of(number: int) -> str:
    """Begins with a letter, so that without its prefix it is no number."""
    return f"GPU-a{random.Random(number).getrandbits(124):031x}"


@st.composite
def machines(draw, kinds=(*DISCRETE, *INTEGRATED), least=1, most=6) -> list[Gpu]:
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=least, max_size=most))
    seed, counted, gpus = draw(st.integers(0, 10**6)), {}, []
    for place, (vendor, name) in enumerate(chosen):
        index = counted[vendor] = counted.get(vendor, -1) + 1
        total = draw(st.integers(1, 200)) * GIB
        gpu = Gpu(index=index, name=name, vendor=vendor, pci_bus_id=f"00000000:{place + 1:02X}:00.0")
        if draw(st.booleans()):
            gpu.uuid = uuid_of(seed * 10 + place)
        if draw(st.booleans()):
            gpu.memory_total_bytes, gpu.memory_free_bytes = total, draw(st.integers(0, total))
        gpus.append(gpu)
    return gpus


def cuda_sees(exports: dict[str, str], gpus: list[Gpu]) -> list[int]:
    """CUDA's own reading, apart from the code under test: numbers, unambiguous UUIDs, an end at the first bad entry."""
    cards = sorted((gpu for gpu in gpus if gpu.vendor == "nvidia"), key=lambda gpu: gpu.index)
    assert exports["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    seen = []
    for entry in exports["CUDA_VISIBLE_DEVICES"].split(","):
        if entry.startswith("GPU-"):
            fits = [card.index for card in cards if str(card.uuid).lower().startswith(entry.lower())]
        else:
            fits = [card.index for place, card in enumerate(cards) if str(place) == entry]
        if len(fits) != 1:
            break
        seen += fits
    return seen


@given(machines(least=2))
def test_a_discrete_card_before_an_integrated_one(gpus):
    choice = choose(gpus)
    if any(kind_of(gpu, ()) == "discrete" for gpu in gpus):
        chosen = next(gpu for gpu in gpus if (gpu.index, gpu.name) == (choice.index, choice.name))
        assert kind_of(chosen, ()) == "discrete"


@given(machines(), st.randoms())
def test_the_same_whatever_the_order(gpus, shuffler):
    other = list(gpus)
    shuffler.shuffle(other)
    assert choose(gpus) == choose(gpus) == choose(other)


@given(machines())
def test_a_reason_that_can_be_said(gpus):
    choice = choose(gpus)
    for language in ("en", "zh"):
        assert f"choice.{choice.reason}" in catalogue(language)
        assert "{" not in Words(language)(f"choice.{choice.reason}", **choice.params)


@given(machines())
def test_cuda_finds_that_very_card(gpus):
    choice = choose(gpus)
    if choice.backend == "cuda":
        assert cuda_sees(choice.exports, gpus) == [choice.index]
        assert choice.tested
    else:
        assert not choice.tested


@given(machines(kinds=tuple(("nvidia", name) for name in NVIDIA), least=2), st.data())
def test_wishes_are_met_or_refused(gpus, data):
    asked = data.draw(st.integers(0, len(gpus) - 1))
    hidden = data.draw(st.booleans())
    others = [str(gpu.index) for gpu in gpus if gpu.index != asked]
    environment = {"CUDA_VISIBLE_DEVICES": ",".join(others if hidden else [str(gpu.index) for gpu in gpus])}
    if hidden:
        with pytest.raises(UsageError) as caught:
            choose(gpus, environment=environment, asked=asked)
        assert caught.value.params["asked"] == asked
        assert caught.value.params["value"] == environment["CUDA_VISIBLE_DEVICES"]
    else:
        assert choose(gpus, environment=environment, asked=asked).index == asked


@settings(max_examples=300)
@given(st.text(alphabet="0123-, GPUMIgab\"'", max_size=24), machines(kinds=(("nvidia", NVIDIA[0]),)))
def test_any_value_of_the_variable_is_read(value, gpus):
    left = visible.resolve(value, visible.slots(gpus, "nvidia"))
    assert left.count <= len(gpus) or not left.decided
    assert len(set(left.cards)) == len(left.cards)
    if left.decided:
        choice = choose(gpus, environment={"CUDA_VISIBLE_DEVICES": value})
        assert (choice.backend == "cpu") == (left.count == 0)
        assert choice.backend == "cpu" or choice.index in left.cards


def card(index=0, name=NVIDIA[0], free=20, **more) -> Gpu:
    more = {"uuid": uuid_of(index), "vendor": "nvidia", **more}
    return Gpu(index=index, name=name, memory_total_bytes=24 * GIB, memory_free_bytes=int(free * GIB), **more)


FOUR = [card(index) for index in range(4)]


@pytest.mark.parametrize(
    ("value", "cards", "problem"),
    [
        # each tried against a real driver
        (None, (0, 1, 2, 3), None),
        ("0", (0,), None),
        ("", (), "empty"),
        (" ", (), "empty"),
        ("-1", (), "negative"),
        ("9", (), "out-of-range"),
        ("0,9,1", (0,), "out-of-range"),
        ("9,0", (), "out-of-range"),
        ("0,0", (), "repeated"),
        (" 0", (0,), None),
        ("2 ,1", (2, 1), None),
        ("0gpu", (0,), None),
        ("abc", (), "not-a-device"),
        ("NoDevFiles", (), "not-a-device"),
        ("0,abc", (0,), "not-a-device"),
        ("0,-1", (0,), "negative"),
        ("00", (0,), None),
        ("0,", (0,), "not-a-device"),
        (",0", (), "not-a-device"),
        ('"0"', (), "quoted"),
        ("GPU-", (), "not-a-device"),
        (uuid_of(1), (1,), None),
        (uuid_of(1)[:12], (1,), None),
        ("GPU-" + uuid_of(1)[4:].upper(), (1,), None),
        (uuid_of(1)[4:], (), "not-a-device"),
        ("gpu-" + uuid_of(1)[4:], (), "not-a-device"),
        ("GPU-ffffffffffff", (), "unknown-uuid"),
        (f"{uuid_of(1)},0", (1,), "mixed"),
        (f"0,{uuid_of(1)}", (0,), "mixed"),
        (f"{uuid_of(1)},{uuid_of(1)}", (), "repeated"),
    ],
)
def test_the_variable_as_cuda_reads_it(value, cards, problem):
    left = visible.resolve(value, visible.slots(FOUR, "nvidia"))
    assert (left.cards, left.problem) == (cards, problem)


@pytest.mark.parametrize(
    ("better", "worse", "reason"),
    [
        (card(1, free=20), card(0, free=5), "memory"),
        (card(1, NVIDIA[0], free=19, capability="8.9"), card(0, NVIDIA[2], free=20, capability="6.1"), "capability"),
        (
            card(1, "NVIDIA GeForce RTX 4090", capability="8.9"),
            card(0, "NVIDIA GeForce RTX 4060", capability="8.9"),
            "bandwidth",
        ),
        (card(0), card(1), "first"),
        (card(1, "Intel(R) Arc(TM) A770 Graphics", vendor="intel"), card(0, "AMD Radeon Graphics", vendor="amd"), "discrete"),
        (card(0, free=2), card(0, "AMD Radeon RX 7900 XT", vendor="amd"), "supported"),
    ],
)
def test_what_decides(better, worse, reason):
    choice = choose([worse, better])
    assert (choice.name, choice.index, choice.reason) == (better.name, better.index, reason)


def test_what_is_configured_counts_among_the_visible():
    choice = choose(FOUR, environment={"CUDA_VISIBLE_DEVICES": "2,3"}, configured=0)
    assert (choice.index, choice.reason) == (2, "configured")
    assert choose(FOUR, environment={"CUDA_VISIBLE_DEVICES": "2,3"}, asked=3, configured="cuda:1").index == 3


@pytest.mark.parametrize(
    ("wishes", "key", "params"),
    [
        ({"asked": 0, "configured": 1}, "error.gpu-id-contradicts", ("asked", "configured")),
        ({"asked": 0, "configured": "cpu"}, "error.gpu-id-contradicts", ("asked", "configured")),
        ({"asked": 9}, "error.gpu-id-unknown", ("id", "count")),
        ({"asked": "GPU-a"}, "error.gpu-id-ambiguous", ("id", "count")),
        ({"asked": "GPU-ffffffffff"}, "error.gpu-id-unknown", ("id", "count")),
        ({"configured": 9}, "error.gpu-configured-unknown", ("id", "count")),
        ({"asked": 0, "environment": {"CUDA_VISIBLE_DEVICES": "1"}}, "error.gpu-id-hidden", ("asked", "variable", "value")),
        ({"asked": 0, "environment": {"CUDA_VISIBLE_DEVICES": ""}}, "error.gpu-id-hidden", ("asked", "variable", "value")),
    ],
)
def test_contradictions_show_both(wishes, key, params):
    with pytest.raises(UsageError) as caught:
        choose(FOUR, **wishes)
    assert caught.value.key == key
    for language in ("en", "zh"):
        sentence = Words(language)(key, **caught.value.params)
        assert all(str(caught.value.params[name]) in sentence for name in params)


@pytest.mark.parametrize(
    ("gpus", "more", "reason"),
    [
        ([], {}, "no-gpu"),
        ([], {"asked": 0}, "no-gpu"),
        ([], {"pci": [PciDevice(vendor="nvidia", name="GA102")]}, "no-driver"),
        (FOUR, {"environment": {"CUDA_VISIBLE_DEVICES": ""}}, "hidden"),
        (FOUR, {"environment": {"CUDA_VISIBLE_DEVICES": "-1"}, "configured": 0}, "hidden"),
        (FOUR, {"asked": "cpu"}, "cpu-asked"),
        (FOUR, {"configured": -1}, "cpu-configured"),
        (FOUR, {"backend": "rocm"}, "other-backend"),
        ([card(compute_mode="prohibited")], {}, "prohibited"),
        ([card(mig_enabled=True, mig_devices=[])], {}, "mig-empty"),
    ],
)
def test_the_processor_with_its_reason(gpus, more, reason):
    choice = choose(gpus, **more)
    assert (choice.backend, choice.reason, choice.device, choice.exports) == ("cpu", reason, "cpu", {})
    assert Words("zh")(f"choice.{reason}", **choice.params)


def test_a_mig_device_is_exported():
    cut = card(mig_enabled=True, mig_devices=["MIG-aaaa", "MIG-bbbb"])
    assert choose([cut]).visible_devices == "MIG-aaaa"
    assert choose([cut], environment={"CUDA_VISIBLE_DEVICES": "MIG-bb"}).visible_devices == "MIG-bbbb"
    assert choose([cut], asked="MIG-b").visible_devices == "MIG-bbbb"


RADEON = [
    Gpu(index=0, name="AMD Radeon Graphics", vendor="amd", pci_bus_id="0000:0b:00.0"),
    Gpu(index=1, name="AMD Radeon RX 7900 XT", vendor="amd", pci_bus_id="0000:03:00.0"),
]


def test_other_vendors_are_recognised_and_marked_untested():
    choice = choose(RADEON)
    assert (choice.backend, choice.index, choice.exports, choice.tested) == ("rocm", 1, {"HIP_VISIBLE_DEVICES": "1"}, False)
    behind = choose(RADEON, environment={"ROCR_VISIBLE_DEVICES": "1"})
    assert (behind.index, behind.exports) == (1, {"HIP_VISIBLE_DEVICES": "0"})
    apple = choose([], pci=[PciDevice(vendor="apple", name="Apple M3 Max", kind="integrated")])
    assert (apple.backend, apple.device, apple.exports, apple.tested) == ("mps", "mps", {}, False)
    arc = choose([], pci=[PciDevice(vendor="intel", name="Arc A770", kind="discrete")])
    assert (arc.backend, arc.exports, arc.tested) == ("xpu", {"ZE_AFFINITY_MASK": "0"}, False)


def test_graphics_inside_a_processor_is_not_trained_on_unasked():
    uhd = [PciDevice(vendor="intel", name="UHD Graphics 770", kind="integrated")]
    assert choose([], pci=uhd).backend == "cpu"
    assert choose([], pci=uhd, backend="xpu").backend == "xpu"


def test_a_laptop_says_what_was_passed_over():
    uhd = [PciDevice(vendor="intel", name="UHD Graphics", kind="integrated"), PciDevice(vendor="nvidia", kind="discrete")]
    choice = choose([card(name=NVIDIA[1])], pci=uhd)
    assert (choice.reason, choice.params["other"]) == ("discrete", "UHD Graphics")


def test_the_bus_knows_better_than_the_name():
    pci = [PciDevice(vendor="amd", kind="discrete", address="0000:0b:00.0"), PciDevice(vendor="amd", kind="integrated")]
    assert kind_of(RADEON[0], pci) == "discrete"


def test_two_lists_of_rocm_are_applied_one_after_the_other():
    slots = visible.slots(RADEON, "amd")
    assert visible.rocm({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, slots).count == 0
    assert visible.rocm({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, slots).cards == (1,)
    assert visible.rocm({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, None).count == 0
    assert visible.rocm({"CUDA_VISIBLE_DEVICES": "1"}, slots).cards == (1,)


def test_all_reasons_are_in_both_catalogues():
    english, chinese = ({key for key in catalogue(language) if key.startswith("choice.")} for language in ("en", "zh"))
    assert english == chinese
    assert {"choice.discrete", "choice.untested"} <= english
    assert choosing.TESTED == ("nvidia",)
