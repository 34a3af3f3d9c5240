"""Versioned records: whole or not at all, old ones still read."""

from typing import ClassVar

import pytest

from flatout.base import records
from flatout.base.errors import RecordError
from flatout.base.records import Missing, Record


class Thing(Record):
    KIND: ClassVar[str] = "thing"
    VERSION: ClassVar[int] = 3
    UPGRADES: ClassVar = {
        1: lambda old: {**old, "size": old.pop("length")},
        2: lambda old: {**old, "unit": "m"},
    }

    size: int | Missing
    unit: str


def test_round_trip(tmp_path):
    path = tmp_path / "thing.json"
    for thing in (Thing(size=3, unit="m"), Thing(size=Missing("not-measured", "why"), unit="m")):
        records.write(path, thing)
        assert records.read(path, Thing) == thing
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text().startswith('{\n  "kind": "thing",\n  "version": 3,')


def test_older_versions_are_upgraded():
    assert records.decode('{"kind": "thing", "version": 1, "length": 5}', Thing) == Thing(size=5, unit="m")
    assert records.decode('{"kind": "thing", "version": 2, "size": 5}', Thing) == Thing(size=5, unit="m")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{", "error.record-damaged"),
        ("", "error.record-damaged"),
        ("[]", "error.record-kind"),
        ('{"kind": "other", "version": 1}', "error.record-kind"),
        ('{"kind": "thing", "version": 4}', "error.record-newer"),
        ('{"kind": "thing"}', "error.record-newer"),
        ('{"kind": "thing", "version": 3, "size": "five", "unit": "m"}', "error.record-damaged"),
    ],
)
def test_what_cannot_be_read_is_said(text, key):
    with pytest.raises(RecordError) as caught:
        records.decode(text, Thing, "a file")
    assert caught.value.key == key
    assert caught.value.exit_code == 1


def test_missing_file(tmp_path):
    with pytest.raises(RecordError) as caught:
        records.read(tmp_path / "none.json", Thing)
    assert caught.value.key == "error.record-unreadable"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "thing.json"
    records.write(path, Thing(size=1, unit="m"))
    monkeypatch.setattr(records.os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        records.write(path, Thing(size=2, unit="m"))
    assert records.read(path, Thing).size == 1
    assert list(tmp_path.iterdir()) == [path]
