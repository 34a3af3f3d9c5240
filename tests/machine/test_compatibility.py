"""The tables asked: the binary rule, and wheels that card, driver and Python can really run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.data import table
from flatout.machine import cards, compatibility
from flatout.machine.versions import at_least, parse

CAPABILITIES = "3.0 3.5 3.7 5.0 5.2 6.0 6.1 7.0 7.5 8.0 8.6 8.7 8.9 9.0 10.0 12.0 12.1".split()  # noqa: SIM905
DRIVERS = ["390.116", "418.39", "440.33", "450.80.02", "470.86", "525.60.13", "535.98", "550.54.14", "570.26", "580.65.06"]
PYTHONS = ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11.4", "3.12", "3.13", "3.14", "3.15"]
SYSTEMS = ["Linux", "Windows"]

codes = st.tuples(st.integers(2, 14), st.integers(0, 9))


@given(codes, codes)
def test_machine_code_runs_within_its_major_number_and_upwards(code, card):
    runs = compatibility.serves([f"sm_{code[0]}{code[1]}"], f"{card[0]}.{card[1]}")
    assert runs == (code[0] == card[0] and code[1] <= card[1])


@given(codes, codes)
def test_ptx_runs_on_anything_not_older(code, card):
    assert compatibility.serves([f"compute_{code[0]}{code[1]}"], f"{card[0]}.{card[1]}") == (code <= card)


@given(st.lists(codes, max_size=6), codes, codes)
def test_more_code_never_serves_less(listed, more, card):
    names = [f"sm_{a}{b}" for a, b in listed]
    capability = f"{card[0]}.{card[1]}"
    if compatibility.serves(names, capability):
        assert compatibility.serves([*names, f"sm_{more[0]}{more[1]}"], capability)


@pytest.mark.parametrize(
    ("entries", "capability", "runs"),
    [
        (["sm_86"], "8.9", True),
        (["sm_90"], "12.0", False),
        (["sm_100"], "12.0", False),
        (["sm_120"], "12.1", True),
        (["sm_60"], "6.1", True),
        (["sm_61"], "6.0", False),
        (["sm_90a"], "9.0", True),
        (["gfx1100", "", "nonsense"], "8.6", False),
        ([], "8.6", False),
    ],
)
def test_known_pairs(entries, capability, runs):
    assert compatibility.serves(entries, capability) is runs


@given(
    st.sampled_from([None, *CAPABILITIES]),
    st.sampled_from([None, *DRIVERS]),
    st.sampled_from(SYSTEMS),
    st.sampled_from([None, *PYTHONS]),
)
def test_the_best_wheel_is_always_one_that_runs(capability, driver, system, python):
    wheel = compatibility.best_wheel(capability, driver, system, python)
    if wheel is None:
        return
    assert capability is None or wheel.serves(capability, system)
    assert driver is None or at_least(driver, compatibility.minimum_driver(wheel.cuda, system))
    assert python is None or compatibility.python_runs(python, wheel.torch)


@pytest.mark.parametrize(
    ("capability", "driver", "python", "torch", "variant"),
    [
        ("12.0", None, "3.12", "2.14", "cu132"),
        ("12.0", "576.52", "3.12", "2.11", "cu128"),  # CUDA 13 needs 580
        ("6.1", "560.94", "3.11", "2.14", "cu126"),
        ("7.0", None, None, "2.14", "cu126"),
        ("3.7", "470.86", "3.10", "2.6", "cu118"),  # 2.7 in the same index has dropped it
        ("8.6", "470.86", "3.10", "2.7", "cu118"),
        ("8.9", "590.48.01", "3.8", "2.4", "cu124"),
    ],
)
def test_the_newest_wheel_for_a_machine(capability, driver, python, torch, variant):
    wheel = compatibility.best_wheel(capability, driver, "Linux", python)
    assert wheel is not None
    assert (wheel.torch, wheel.variant) == (torch, variant)


def test_no_wheel_for_the_oldest_cards():
    assert not compatibility.served_at_all("3.0", "Linux")
    assert compatibility.served_at_all("3.7", "Linux")


def test_a_wheel_of_a_given_release_only():
    wheel = compatibility.best_wheel("8.9", "595.79", "Windows", "3.13", "2.10.0")
    assert wheel is not None
    assert (wheel.torch, wheel.variant) == ("2.10", "cu130")


@pytest.mark.parametrize(
    ("torch", "cuda", "exact", "last"),
    [("2.7.1+cu118", "11.8", True, "sm_90"), ("2.6.0.dev20241112", "12.1", False, "sm_90"), ("1.5.0", "10.2", False, "sm_75")],
)
def test_the_list_of_a_wheel_or_of_its_neighbour(torch, cuda, exact, last):
    found = compatibility.arch_list_of(torch, cuda, "Linux")
    assert found is not None
    assert found[1] is exact
    assert found[0][-1] == last


def test_no_list_for_a_cuda_that_no_wheel_has():
    assert compatibility.arch_list_of("2.7.1", "12.7", "Linux") is None


@pytest.mark.parametrize(
    ("variant", "exists"), [("cu131", False), ("cu128", True), ("cu127", False), ("cu101", None), ("cu140", None)]
)
def test_which_indexes_exist(variant, exists):
    assert compatibility.index_exists(variant) is exists


def test_names_of_variants():
    assert compatibility.variant_of("12.8") == "cu128"
    assert compatibility.cuda_of_variant("2.7.1+cu118") == "11.8"
    assert compatibility.cuda_of_variant("https://download.pytorch.org/whl/cu92") == "9.2"
    assert compatibility.cuda_of_variant("2.2.1+cpu") is None
    assert compatibility.default_cuda("2.5.1", "Linux") == "12.4"
    assert compatibility.default_cuda("2.5.1", "Windows") is None
    assert compatibility.capability_of_arch("sm_120") == "12.0"
    assert compatibility.capability_of_arch("6.1") == "6.1"
    assert compatibility.capability_of_arch("gfx1100") is None


def test_old_error_numbers_mean_todays():
    assert [compatibility.modern_code(code) for code in (30, 38, 48, 10, 804)] == [999, 100, 209, 101, 804]


# -- the tables ---------------------------------------------------------------------------------------------------------


def test_every_wheel_names_its_cuda_and_only_grows_numbers():
    for wheel in compatibility.wheels():
        assert wheel.variant == compatibility.variant_of(wheel.cuda)
        assert list(wheel.linux) == sorted(wheel.linux, key=parse)
        assert list(wheel.windows) == sorted(wheel.windows, key=parse)
        assert compatibility.minimum_driver(wheel.cuda, "Linux") != "0"
        assert compatibility.minimum_driver(wheel.cuda, "Windows") != "0"


def test_rows_are_unique_and_have_a_source():
    wheels = table("wheels")
    keys = [(row["torch"], row["variant"]) for row in wheels["wheel"]]
    assert len(keys) == len(set(keys))
    for part in ("wheel", "python", "default", "cudnn", "triton"):
        assert all(row["source"] and "verified" in row for row in wheels[part])


def test_the_newest_torch_has_wheels_and_pythons():
    newest = compatibility.newest_torch()
    assert compatibility.variants_of(newest)
    assert compatibility.pythons_of(newest) == ("3.10", "3.14")
    assert max(parse(wheel.torch) for wheel in compatibility.wheels()) == parse(newest)


def test_newer_families_need_newer_drivers():
    for system in SYSTEMS:
        needed = [parse(compatibility.minimum_driver(major, system)) for major in ("11", "12", "13")]
        assert needed == sorted(needed)


# -- cards ---------------------------------------------------------------------------------------------------------------


def _rows():
    return [row for row in table("cards")["card"] if row["vendor"] == "nvidia"]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["name"])
def test_every_card_answers_to_the_names_that_tools_print(row):
    names = [row["name"], *row.get("aliases", ())]
    if row["family"] in ("geforce", "laptop") and not row["name"].startswith(("TITAN", "RTX A", "Quadro")):
        names += [f"NVIDIA GeForce {row['name']}", f"GeForce {row['name']}"]
    for name in names:
        card = cards.find(name)
        assert card is not None, name
        assert cards.capability_of(name) == row["capability"], name


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["name"])
def test_the_series_agrees_with_the_table(row):
    """What is inferred for unlisted names must never promise more than the card has."""
    plain = cards._plain(row["name"])
    inferred = next((value for pattern, value in cards.SERIES if re.search(pattern, plain)), None)
    assert inferred is None or parse(inferred) <= parse(row["capability"])


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("GeForce GT 740M", "3.0"),
        ("Quadro P2000", "6.1"),
        ("NVIDIA GeForce RTX 50xx", "12.0"),
        ("NVIDIA Corporation AD107M [GeForce RTX 4050 Max-Q / Mobile] (rev a1)", "8.9"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
        ("Tesla V100-DGXS-32GB", "7.0"),
        ("RTX4090", "8.9"),
        ("RTX 3060Ti", "8.6"),
        ("AMD Radeon RX 6700 XT", None),
        ("NVIDIA Graphics Device", None),
    ],
)
def test_names_without_a_row(name, capability):
    assert cards.capability_of(name) == capability


def test_memory_tells_two_kinds_of_one_card_apart():
    small, large = cards.find("NVIDIA A100-PCIE-40GB"), cards.find("NVIDIA A100 80GB PCIe")
    assert small is not None
    assert large is not None
    assert (small.name, large.name) == ("A100 40GB", "A100 80GB PCIe")


@pytest.mark.parametrize(("driver", "cuda"), [("580.159.04", "13.0"), ("595.45.04", "13.2"), ("570.86", "12")])
def test_of_one_release_the_cuda_that_the_driver_knows(driver, cuda):
    wheel = compatibility.best_wheel("9.0", driver, "Linux", "3.12", "2.13")
    assert wheel is not None
    assert wheel.cuda.startswith(cuda)
