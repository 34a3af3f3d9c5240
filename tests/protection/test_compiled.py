"""What compilers built for trials is found by the runs that follow."""

import os

import pytest

from flatout.knobs.catalogue import RECORDED
from flatout.launch.compiled import CACHES, caches, caches_for


def test_a_folder_of_ours_for_each_and_the_users_own_counts_more(tmp_path):
    ours = {"HOME": str(tmp_path / "home"), "CUDA_CACHE_PATH": str(tmp_path / "mine")}
    found = caches(ours)
    assert set(found) == set(CACHES)
    assert found["CUDA_CACHE_PATH"] == str(tmp_path / "mine")
    assert found["TRITON_CACHE_DIR"] == str(tmp_path / "home" / ".cache" / "flatout" / "compiled" / "triton")
    assert all(os.path.isdir(folder) for folder in found.values())
    elsewhere = caches({"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert elsewhere["TRITON_CACHE_DIR"].startswith(str(tmp_path / "cache"))


def test_what_cannot_be_made_is_left_out(tmp_path):
    (tmp_path / "file").touch()
    assert caches({"HOME": str(tmp_path / "file")}) == {}


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        ({}, False),
        ({"compile": "no"}, False),
        ({"compile": RECORDED}, False),
        ({"tf32": "on"}, False),
        ({"compile": "default"}, True),
    ],
)
def test_a_run_finds_them_where_a_knob_compiles(knobs, wanted, tmp_path):
    assert bool(caches_for(knobs, {"HOME": str(tmp_path)})) is wanted
