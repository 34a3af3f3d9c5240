"""What runs read from the disk, which large files they have open, and data taken out of the system's memory again."""

import os
import subprocess
import sys

import pytest

from conftest import read_again
from flatout.launch import disk_reads
from flatout.machine import host, open_files
from flatout.machine.machine_facts import HostMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="by /proc, and by the kernel's counters")
OPENS = """
import mmap, sys
kept = open(sys.argv[1], "rb")
with open(sys.argv[2], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
small = open(sys.argv[3], "rb")
print("open", flush=True)
input()
"""


def sized(path, size):
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


def test_large_files_that_are_open_or_mapped_are_its_data(tmp_path, monkeypatch):
    large = [sized(tmp_path / name, open_files.LARGE + 1) for name in ("tokens with a blank.bin", "shard.tar")]
    arguments = [*large, sized(tmp_path / "small", 1000)]
    with subprocess.Popen([sys.executable, "-c", OPENS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        data = disk_reads.data_of(child.pid)
        child.communicate(b"\n")
    assert data == dict.fromkeys(large, open_files.LARGE + 1)
    assert not data.beyond_memory
    monkeypatch.setattr(host, "memory", lambda: HostMemory(total_bytes=open_files.LARGE))
    assert data.beyond_memory


@pytest.mark.calm  # others could push it out of memory, too
def test_what_was_taken_out_of_memory_is_read_from_the_disk_again(tmp_path):
    path = tmp_path / "data.bin"
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20) * 4)
        file.flush()
        os.fsync(file.fileno())

    def reads():
        before = disk_reads.read_by_children()
        subprocess.run([sys.executable, "-c", f"open({str(path)!r}, 'rb').read()"], check=True)
        return disk_reads.read_by_children() - before

    if read_again(path) < 4 << 20:
        pytest.skip("this file system keeps its files in memory")
    assert reads() < 1 << 20
    disk_reads.forget([str(path), str(tmp_path / "is not there")])
    assert reads() >= 4 << 20
    assert reads() < 1 << 20
