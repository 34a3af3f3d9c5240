"""The history: what it keeps and for how long, how large it is, and what a disk may do to it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from flatout.base.records import Missing, replace
from flatout.machine import host
from flatout.machine.telemetry import CardProcess, CardSample, HostSample, Sample
from flatout.watch import history, place, reading, tables
from flatout.watch.columns import CARD, HOST, RUN, names_of

GIB = 1 << 30
START = 1_760_000_000.0
NOT_SUPPORTED = Missing("nvml-not-supported", "a text that differs every time")


def card(index=0, **changed):
    plain = CardSample(
        index=index,
        name="NVIDIA H200",
        uuid=f"GPU-{index}",
        utilisation=97,
        memory_busy=40,
        memory_used_bytes=40 * GIB,
        memory_total_bytes=140 * GIB,
        processes=(CardProcess(pid=7, name="python3", memory_bytes=39 * GIB),),
        temperature_c=64,
        power_w=655.3,
        power_limit_w=700.0,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        memory_clock_mhz=3201,
        fan_percent=NOT_SUPPORTED,
        link_received_bytes_s=12_000_000,
        link_sent_bytes_s=400_000,
        encoder_percent=0,
        decoder_percent=0,
        idle=False,
        held_by=("SW_POWER_CAP",),
        ecc_uncorrected=0,
    )
    return replace(plain, **changed)


def host_sample(**changed):
    plain = HostSample(
        cpu_percent=31.4,
        core_percent=(10.0, 52.8),
        memory_used_bytes=30 * GIB,
        memory_total_bytes=128 * GIB,
        swap_used_bytes=0,
        swap_total_bytes=0,
        swap_in_bytes_s=0.0,
        swap_out_bytes_s=0.0,
        disk_read_bytes_s=5e7,
        disk_written_bytes_s=1e6,
        net_received_bytes_s=1e4,
        net_sent_bytes_s=1e4,
        io_stalled=0.012,
    )
    return replace(plain, **changed)


def sample(t, *cards):
    return Sample(t=t, cards=cards or (card(),), host=host_sample())


@pytest.fixture
def environ(tmp_path):
    return {"FLATOUT_HISTORY": str(tmp_path / "kept"), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def file_of(environ):
    return place.choose(environ).file


def test_what_is_kept_comes_back(environ):
    kept = history.begin(environ)
    for second in range(30):
        kept.add(sample(START + second, card(utilisation=90 + second % 3)))
    kept.add_run(START + 30, "run-1", {"steps": 100, "step_s": 0.0123, "loss": 0.4375, "share_input": 0.25})
    read = reading.open_reader(file_of(environ))  # beside the writer
    points = read.points(CARD, "GPU-0", "utilisation", START, START + 60)
    assert [point.mean for point in points[:4]] == [90, 91, 92, 90]
    assert (len(points), points[0].t, points[-1].t) == (30, START, START + 29)
    assert read.over(CARD, "GPU-0", "power_w", START, START + 60).mean == pytest.approx(655.3)
    assert read.over(CARD, "GPU-0", "memory_used_bytes", START, START + 60).high == 40 * GIB
    assert read.over(HOST, "host", "io_stalled", START, START + 60).mean == pytest.approx(0.012)
    assert read.points(CARD, "GPU-0", "fan_percent", START, START + 60) == []
    assert read.over(CARD, "GPU-0", "fan_percent", START, START + 60) == Missing("nvml-not-supported")
    assert read.constant(CARD, "GPU-0", "power_limit_w", START + 60) == 700.0
    assert read.constant(CARD, "GPU-0", "holders", START + 60) == [[7, "python3", 39 * GIB]]
    assert names_of(int(read.points(CARD, "GPU-0", "held_bits", START, START + 1)[0].mean)) == ("SW_POWER_CAP",)
    assert read.over(RUN, "run-1", "loss", START, START + 60).mean == 0.4375
    assert read.over(RUN, "run-1", "step_s", START, START + 60).mean == pytest.approx(0.0123)
    assert kept.notes == []
    kept.close()


def test_a_reason_holds_for_its_time(environ):
    kept = history.begin(environ)
    gone = card(temperature_c=Missing("nvml-gpu-lost"))
    for second, one in enumerate([gone, card(), card(), card(temperature_c=Missing("implausible", "0"))]):
        kept.add(sample(START + second, one))
    read = reading.Reader(kept.base)
    assert read.why(CARD, "GPU-0", "temperature_c", START) == Missing("nvml-gpu-lost")
    assert read.why(CARD, "GPU-0", "temperature_c", START + 9) == Missing("implausible")
    assert read.why(CARD, "GPU-0", "temperature_c", START - 9) == Missing("not-kept")
    assert len(read.points(CARD, "GPU-0", "temperature_c", START, START + 9)) == 2
    kept.close()


def simulated(kept, seconds, cards, every=1.0):
    """A day as it might be: everything moves, by a few patterns that are made once."""
    dice = random.Random(1)
    patterns = []
    for _ in range(61):
        moment = [
            card(
                index,
                utilisation=dice.randint(80, 100),
                memory_busy=dice.randint(20, 60),
                memory_used_bytes=dice.randint(38, 42) * GIB + dice.randint(0, GIB),
                temperature_c=dice.randint(55, 70),
                power_w=round(dice.uniform(500, 700), 1),
                sm_clock_mhz=dice.randint(1600, 1980),
                link_received_bytes_s=dice.randint(0, 10**9),
            )
            for index in range(cards)
        ]
        patterns.append((tuple(moment), host_sample(cpu_percent=dice.uniform(0, 100), disk_read_bytes_s=dice.uniform(0, 1e9))))
    for number in range(int(seconds / every)):
        moment, around = patterns[number % len(patterns)]
        kept.add(Sample(t=START + number * every, cards=moment, host=around))


def size(file):
    return sum(os.path.getsize(f"{file}{end}") for end in ("", "-wal", "-shm") if os.path.exists(f"{file}{end}"))


@pytest.mark.thorough
def test_a_day_of_eight_cards(environ):
    kept = history.begin(environ)
    simulated(kept, 24 * 3600, cards=8)
    assert size(file_of(environ)) < 20e6
    read = reading.Reader(kept.base)
    looks = sum(point.looks for point in read.points(CARD, "GPU-3", "power_w", START, START + 24 * 3600))
    assert 24 * 3600 - 310 <= looks <= 24 * 3600  # what is in a bucket that is not full yet is raw
    kept.close()


def test_hours_in_little_room_and_every_moment_once(environ, monkeypatch):
    """The same with tiers that are kept for a twentieth as long."""
    for tier in (history.RAW, history.FINE, history.COARSE):
        shorter = replace(tier, width_ms=tier.width_ms, kept_ms=tier.kept_ms // 20)
        for module in (history, reading, tables):
            monkeypatch.setattr(module, tier.name.upper(), shorter, raising=False)
    monkeypatch.setattr(history, "TIERS", (history.RAW, history.FINE, history.COARSE))
    kept = history.begin(environ)
    simulated(kept, 3600, cards=1)
    read = reading.Reader(kept.base)
    points = read.points(CARD, "GPU-0", "power_w", START - 300, START + 3600)
    assert sum(point.looks for point in points) == 3600
    assert [point.t for point in points] == sorted({point.t for point in points})
    widths = {point.looks for point in points}
    assert {1, 10} <= widths
    assert max(widths) == 300
    whole = read.over(CARD, "GPU-0", "power_w", START - 300, START + 3600)
    assert whole.mean == pytest.approx(600, rel=0.05)
    assert 500 <= whole.low < 520 < 680 < whole.high <= 700
    assert size(file_of(environ)) < 2e6
    kept.close()


def test_one_writer_and_readers_beside_it(environ):
    first = history.begin(environ)
    second = history.begin(environ)
    assert [note.code for note in second.notes] == ["history-held"]
    first.add(sample(START))
    second.add(sample(START))
    second.close()
    read = reading.open_reader(file_of(environ))
    assert len(read.points(CARD, "GPU-0", "utilisation", START, START + 1)) == 1
    first.close()
    third = history.begin(environ)  # the lock has gone with its owner
    assert third.notes == []
    third.close()


def test_a_writer_that_is_killed_loses_nothing_that_it_wrote(environ):
    script = textwrap.dedent("""
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from test_history import *
        kept = history.begin(dict(os.environ))
        for second in range(75):
            kept.add(sample(START + second))
        print("written", flush=True)
        sys.stdin.read()
    """)
    here = os.path.dirname(__file__)
    child = subprocess.Popen(
        [sys.executable, "-c", script, here], env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    kept = history.begin(environ)
    assert kept.notes == []
    kept.add(sample(START + 75))
    kept.add(sample(START + 400))
    fine = kept.base.execute("SELECT n FROM card_fine ORDER BY t").fetchall()
    assert [row[0] for row in fine] == [10] * 7 + [6]
    assert kept.base.execute("SELECT n FROM card_coarse").fetchall() == [(76,)]
    kept.close()


def test_a_clock_that_was_set_back_joins_buckets(environ):
    kept = history.begin(environ)
    for second in (1, 2, 3, 15, 5, 6, 20):
        kept.add(sample(START + second, card(utilisation=10 * second)))
    rows = kept.base.execute(
        "SELECT n, utilisation_mean, utilisation_low, utilisation_high FROM card_fine ORDER BY t"
    ).fetchall()
    assert rows == [(5, 34, 10, 60), (1, 150, 150, 150)]
    kept.close()


# -- places -----------------------------------------------------------------------------------------------------------------


def test_never_on_a_network(environ, monkeypatch, tmp_path):
    real = host.file_system
    monkeypatch.setattr(host, "file_system", lambda path: "nfs4" if path.name == "kept" else real(path))
    kept = history.begin(environ)
    assert [note.code for note in kept.notes] == ["history-on-network"]
    assert file_of(environ).parent == tmp_path / "state" / "flatout" / "history"
    kept.close()
    monkeypatch.setattr(host, "file_system", lambda path: "fuse.sshfs")
    kept = history.begin(environ)
    assert [note.code for note in kept.notes] == ["history-on-network"] * 2 + ["history-in-memory"]
    kept.add(sample(START))
    assert reading.Reader(kept.base).over(CARD, "GPU-0", "utilisation", START, START + 1).mean == 97
    assert not (tmp_path / "kept").exists()
    kept.close()


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "gpfs", "9p", "remote", "fuse.s3fs"])
def test_networks(kind):
    assert place.is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "apfs", "ntfs", "zfs", "fuse.ntfs-3g"])
def test_disks(kind):
    assert not place.is_network(kind)


def test_no_folder_to_be_had(environ, tmp_path):
    (tmp_path / "kept").write_text("a file")
    (tmp_path / "state").write_text("another")
    kept = history.begin(environ)
    assert [note.code for note in kept.notes] == ["history-no-folder"] * 2 + ["history-in-memory"]
    kept.add(sample(START))
    kept.close()


# -- files that are not ours ------------------------------------------------------------------------------------------------


def written(environ):
    kept = history.begin(environ)
    kept.add(sample(START))
    kept.close()
    return file_of(environ)


def newer(file):
    base = sqlite3.connect(file)
    base.execute(f"PRAGMA user_version={tables.SCHEMA + 1}")
    base.commit()
    base.close()


def no_database(file):
    file.write_bytes(b"this is a text\n" * 500)


def torn(file):
    data = bytearray(file.read_bytes())
    data[4096 : 4096 + 6000] = os.urandom(6000)
    file.write_bytes(data)


def cut_short(file):
    file.write_bytes(file.read_bytes()[: 3 * 4096])


def of_another_program(file):
    file.unlink()
    base = sqlite3.connect(file)
    base.execute("CREATE TABLE subjects (x)")
    base.execute(f"PRAGMA user_version={tables.SCHEMA}")
    base.commit()
    base.close()


@pytest.mark.parametrize("spoil", [newer, no_database, torn, cut_short, of_another_program])
def test_what_is_not_ours_is_set_aside_and_kept(environ, spoil):
    file = written(environ)
    spoil(file)
    before = file.read_bytes()
    kept = history.begin(environ)
    (note,) = kept.notes
    assert note.code == ("history-newer" if spoil is newer else "history-damaged")
    with open(note.params["aside"], "rb") as aside:
        assert aside.read() == before
    kept.add(sample(START))
    assert reading.Reader(kept.base).over(CARD, "GPU-0", "utilisation", START, START + 1).looks == 1
    kept.close()
    assert history.begin(environ).notes == []


def test_a_reader_refuses_what_it_does_not_know(environ):
    file = written(environ)
    newer(file)
    with pytest.raises(tables.NotOursError):
        reading.open_reader(file)


# -- what a disk may do -----------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_once_and_tried_again(environ):
    kept = history.begin(environ)
    kept.add(sample(START))
    pages = kept.base.execute("PRAGMA page_count").fetchone()[0]
    kept.base.execute(f"PRAGMA max_page_count={pages}")
    for second in range(1, 50):
        kept.add(sample(START + second, *[card(index, name="x" * 2000) for index in range(4)]))
    assert [note.code for note in kept.notes] == ["history-full"]
    kept.base.execute("PRAGMA max_page_count=100000")
    kept.add(sample(START + 200))
    assert reading.Reader(kept.base).points(CARD, "GPU-0", "utilisation", START + 200, START + 201)
    kept.close()


def test_a_file_that_fails_while_it_is_written_is_left_for_memory(environ):
    kept = history.begin(environ)
    kept.add(sample(START))
    kept.base.execute("DROP TABLE card_raw")  # by whatever
    kept.add(sample(START + 1))
    assert [note.code for note in kept.notes] == ["history-lost"]
    kept.add(sample(START + 2))
    assert reading.Reader(kept.base).over(CARD, "GPU-0", "utilisation", START, START + 5).looks == 1
    kept.close()
