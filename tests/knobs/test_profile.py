"""`flatout.toml`: what is written is read back, older files are read, and what cannot be meant is one sentence."""

import contextlib
import string
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.base.errors import UsageError
from flatout.base.words import LANGUAGES, Words
from flatout.knobs import profile_file, toml_text, values
from flatout.knobs.catalogue import KNOBS
from flatout.knobs.profile import Fingerprint, Profile, Provenance, differences

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ratios = st.one_of(st.none(), st.floats(0.01, 1e6))


def values_of(knob):
    limits = values.span(knob)
    return st.integers(*limits).map(str) if limits else st.sampled_from(knob.domain)


@st.composite
def profiles(draw):
    chosen = draw(st.lists(st.sampled_from(KNOBS), unique_by=lambda knob: knob.name))
    knobs = {knob.name: draw(values_of(knob)) for knob in chosen}
    if knobs.get("workers") == "0":
        knobs = {name: value for name, value in knobs.items() if name not in values.NEED_WORKERS}
    command = draw(st.lists(anything, max_size=4))
    provenance = Provenance(command=command, date=draw(anything), ratio=draw(ratios), low=draw(ratios), high=draw(ratios))
    names = {name: draw(anything) for name in ("script", "torch", "driver", "card")}
    return Profile(
        knobs=knobs, provenance=provenance, fingerprint=Fingerprint(**names, shapes=draw(st.lists(anything, max_size=3)))
    )


@given(profiles())
def test_what_is_written_is_read_back(profile):
    assert profile_file.parse(profile_file.text_of(profile), "flatout.toml") == profile


@given(
    st.dictionaries(st.text(max_size=20), st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans()))
)
def test_any_table_is_valid_toml(table):
    read = tomllib.loads(toml_text.table("part", table))["part"]
    for name, value in table.items():
        clean = name.encode("utf-8", "replace").decode()
        if clean == name and not (isinstance(value, float) and value != value):
            assert read[name] == (value.encode("utf-8", "replace").decode() if isinstance(value, str) else value)


def test_a_file_reads_like_what_people_write(tmp_path):
    profile = Profile(knobs={"precision": "bf16", "workers": "8", "pin_memory": "on", "compile": "reduce-overhead"})
    path = tmp_path / "flatout.toml"
    profile_file.write(path, profile)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert lines == [
        'kind = "flatout-profile"',
        "version = 1",
        "[knobs]",
        'precision = "bf16"',
        "workers = 8",
        "pin_memory = true",
        'compile = "reduce-overhead"',
    ]
    assert profile_file.read(path) == profile


def test_written_by_hand():
    text = '\ufeff[knobs]\nprecision = true\ncompile = true\ntf32 = "yes"\nworkers = "4"\nchannels-last = false\n'
    assert profile_file.parse(text, "f").knobs == {
        "precision": "auto",
        "compile": "default",
        "tf32": "on",
        "workers": "4",
        "channels_last": "off",
    }


def test_an_older_version_is_upgraded(monkeypatch):
    monkeypatch.setattr(Profile, "VERSION", 2)
    monkeypatch.setattr(Profile, "UPGRADES", {1: lambda old: {"kind": old["kind"], "version": 2, "knobs": old["settings"]}})
    assert profile_file.parse("version = 1\n[settings]\nworkers = 3\n", "f").knobs == {"workers": "3"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[knobs\n", "f.toml is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 7)."),
        (
            "version = 2",
            "f.toml was written by a newer flatout (format version 2; this flatout reads up to version 1). Update flatout.",
        ),
        ("version = 0", "f.toml is not a readable record: version 0."),
        ('kind = "facts"', "f.toml is the wrong kind of flatout file: it is a facts, but a flatout-profile is needed here."),
        ("knobs = 3", "f.toml: knobs must be a table, [knobs], with one line for each knob."),
        ("[knob]\nworkers = 2", "f.toml: unknown name knob; did you mean knobs?"),
        ("workers = 2", "f.toml: unknown name workers; did you mean knobs.workers?"),
        ("[fingerprint]\ncrad = 'H200'", "f.toml: unknown name fingerprint.crad; did you mean fingerprint.card?"),
        ("[zzz]", "f.toml: unknown name zzz."),
        ("[knobs]\nworker = 2", "f.toml: there is no knob worker; did you mean workers?"),
        ("[knobs]\nqqq = 2", "f.toml: there is no knob qqq; flatout explain lists them."),
        ("[knobs]\nworkers = [2]", "f.toml: workers needs one value. Allowed values: 0..64."),
        ("[knobs]\nworkers = 2.5", "f.toml: workers cannot be 2.5. Allowed: whole numbers from 0 to 64."),
        (
            "[knobs]\nworkers = 200",
            "f.toml: workers cannot be 200. Allowed: whole numbers from 0 to 64; the nearest is 64.",
        ),
        (
            "[knobs]\nworkers = -1",
            "f.toml: workers cannot be -1. Allowed: whole numbers from 0 to 64; the nearest is 0.",
        ),
        (
            "[knobs]\nprecision = 'bf61'",
            "f.toml: precision cannot be bf61; did you mean bf16? Allowed values: no, bf16, fp16, auto.",
        ),
        ("[knobs]\ntf32 = 'perhaps'", "f.toml: tf32 cannot be perhaps. Allowed values: on, off."),
        (
            "[knobs]\nworkers = 0\npersistent_workers = true",
            "f.toml: persistent_workers=on and workers=0 contradict each other. Change one of the two.",
        ),
        ("[provenance]\nratio = 'fast'", "f.toml is not a readable record: Expected `float | null`, got `str` - at"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(text, sentence):
    with pytest.raises(UsageError) as caught:
        profile_file.parse(text, "f.toml")
    assert Words("en")(caught.value.key, **caught.value.params).startswith(sentence)
    for language in LANGUAGES:
        said = Words(language)(caught.value.key, **caught.value.params)
        assert "\n" not in said
        assert "error." not in said
        assert not set(said) & set("{}")


@given(st.text(string.printable, max_size=60))
def test_no_text_breaks_the_reader(text):
    """Either a profile or a sentence: nothing else may come of it."""
    with contextlib.suppress(UsageError):
        profile_file.parse(text, "f")


def test_differences_name_the_part_with_both_values():
    made = Fingerprint(script="a" * 64, torch="2.11.0", driver="", card="NVIDIA H200", shapes=["32x3x8x8"])
    same = Fingerprint(script="a" * 64, torch="2.11.0", driver="580.1", card="NVIDIA H200")
    assert differences(made, same) == []
    other = Fingerprint(script="", torch="2.13.0", driver="580.1", card="CPU", shapes=["64x3x8x8"])
    found = [(difference.part, difference.recorded, difference.here) for difference in differences(made, other)]
    assert found == [
        ("script", "a" * 64, ""),
        ("torch", "2.11.0", "2.13.0"),
        ("card", "NVIDIA H200", "CPU"),
        ("shapes", "32x3x8x8", "64x3x8x8"),
    ]
    assert differences(Fingerprint(), other) == []
