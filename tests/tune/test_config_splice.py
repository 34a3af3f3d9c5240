"""Splicing: only the asked values change, whatever the file looks like; every other line stays byte for byte."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

yaml = pytest.importorskip("yaml")

from flatout.base.errors import FlatoutError
from flatout.machine.config_tree import SCALAR
from flatout.tune.config import changed_values, config_file, estimate, splice
from flatout.tune.config.estimate import MachineFacts

KNOWN = ["num_workers", "pin_memory", "use_amp", "compile_model", "batch_size", "prefetch_factor", "persistent_workers", "lr"]
WORDS = ["0", "4", "28", "1e-4", "3.0e-4", "true", "False", "no", "on", "Yes", "bf16", "'no'", '"8"', "~", "plain words",
         "0x10", '"a # b"', "'it''s'", "2024-01-01", "数据", "", "[1, 2]", "{a: 1, b: [x, y]}", ".nan", "1_000", "a:b",
         "12:30"]  # fmt: skip
CARD = MachineFacts(card="RTX 4090", source="table", capability="8.9", memory_bytes=24 << 30, cores=16.0, triton=True)

comments = st.sampled_from(["", "", "  # a comment", " # 数据加载: 0"])
keys = st.one_of(st.sampled_from(KNOWN), st.sampled_from(["name", "seed", "path", '"quoted key"', "'k'", "steps", "model.x"]))


@st.composite
def blocks(draw, depth=0, anchors=None):
    """Lines of a block mapping, without indentation or line ends."""
    anchors = [] if anchors is None else anchors
    lines = []
    for key in draw(st.lists(keys, min_size=1, max_size=6, unique_by=lambda key: key.strip("'\""))):
        if draw(st.integers(0, 6)) == 0:
            lines.append(draw(st.sampled_from(["", "# a line of its own", "   # indented: 7"])))
        kind = draw(st.integers(0, 9))
        if kind < 2 and depth < 2:
            lines.append(f"{key}:{draw(comments)}")
            lines += ["  " + line if line else line for line in draw(blocks(depth + 1, anchors))]
        elif kind == 2 and depth < 2:
            lines.append(f"{key}:")
            lines += [f"- {word}" for word in draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))]
        elif kind == 3:
            lines += [f"{key}: |", "    a block: 1", "    # not a comment"]
        elif kind == 4 and anchors:
            lines.append(f"{key}: *{draw(st.sampled_from(anchors))}{draw(comments)}")
        else:
            anchor = f"a{len(anchors)}" if kind == 5 else ""
            if anchor:
                anchors.append(anchor)
            word = draw(st.sampled_from(WORDS))
            value = f"&{anchor} {word or '~'}" if anchor else word
            space = draw(st.sampled_from([" ", " ", "   "])) if value else ""
            lines.append(f"{key}:{space}{value}{draw(comments) if value else ''}")
    return lines


@st.composite
def documents(draw):
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    head = draw(st.sampled_from([[], ["# top"], ["---"], ["%YAML 1.1", "---"]]))
    text = end.join([*head, *draw(blocks())])
    return draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from([end, ""]))


def opened(text):
    return config_file.parsed(Path("x.yaml"), text)


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, str(key)))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, str(number)))
    else:
        yield path, "nan" if isinstance(value, float) and math.isnan(value) else (type(value), value)


def shown(text):
    return dict(leaves(yaml.safe_load(text.removeprefix("\ufeff"))))


few = settings(
    max_examples=30, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@few
@given(text=documents(), data=st.data())
def test_only_the_asked_values_change(text, data):
    configuration = opened(text)
    free = [entry for entry in configuration.tree.entries if entry.kind == SCALAR and entry.key_start >= 0 and not entry.shared]
    chosen = data.draw(st.lists(st.sampled_from(free), max_size=3, unique_by=lambda one: one.path)) if free else []
    edits = [edit for entry in chosen if (edit := splice.replaced(configuration, entry, "31")) is not None]
    new, tree = splice.checked(configuration, edits)
    asked = {edit.path for edit in edits}
    before, after = shown(text), shown(new)
    assert {path: value for path, value in before.items() if path not in asked} == {
        path: value for path, value in after.items() if path not in asked
    }
    assert all(after[path] == (int, 31) for path in asked)
    old_lines, new_lines = configuration.text.splitlines(keepends=True), new.splitlines(keepends=True)
    touched = {configuration.text.count("\n", 0, edit.start) for edit in edits}
    assert len(old_lines) == len(new_lines)
    assert [line for number, line in enumerate(old_lines) if number not in touched] == [
        line for number, line in enumerate(new_lines) if number not in touched
    ]
    for edit in edits:
        entry = configuration.tree.at(edit.path)
        place = tree.at(edit.path)
        assert configuration.text[: entry.key_end].splitlines()[-1] == new[: place.key_end].splitlines()[-1]


@few
@given(text=documents(), preset=st.sampled_from(list(estimate.PRESETS)))
def test_wishes_touch_known_keys_alone(text, preset):
    configuration = opened(text)
    wishes = estimate.wishes(CARD, preset)
    applied = changed_values.apply(configuration, wishes, {}, changed_values.insertable(False))
    written = {one.path for one in applied.changes if one.state in ("changed", "inserted")}
    before, after = shown(text), shown(applied.text)
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {".".join(path) for path in differing} <= written
    known = {"use_gpu", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "use_amp", "use_mixed_precision",
             "compile_model"}  # fmt: skip
    assert {path[-1] for path in differing} <= known
    # What is written is what a second look finds: nothing is left to do but what cannot be written.
    if "&" not in text:  # an alias that was replaced frees what it repeated
        again = changed_values.apply(opened(applied.text), wishes, {}, changed_values.insertable(False))
        assert again.text == applied.text
    rest = iter(applied.text.splitlines(keepends=True))
    kept = [line for line in configuration.text.splitlines(keepends=True) if not _holds(line, written)]
    assert all(line.rstrip("\r\n") in (other.rstrip("\r\n") for other in rest) for line in kept)


def _holds(line, written):
    return any(path.split(".")[-1] in line for path in written)


names = st.one_of(st.sampled_from(KNOWN), st.text(max_size=5))
numbers = st.one_of(st.integers(-9, 99), st.floats(allow_nan=False, allow_infinity=False))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)


@few
@given(value=st.dictionaries(names, json_values, min_size=1, max_size=6),
       indent=st.sampled_from([None, 2, "\t"]), ascii=st.booleans(), data=st.data())  # fmt: skip
def test_json_likewise(value, indent, ascii, data):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    configuration = config_file.parsed(Path("x.json"), text)
    entry = data.draw(st.sampled_from([one for one in configuration.tree.entries if one.key_start >= 0]))
    edit = splice.replaced(configuration, entry, "31")
    if edit is None:
        assert entry.kind != SCALAR
        return
    new, _ = splice.checked(configuration, [edit])
    wanted = json.loads(text)
    holder = wanted
    for part in entry.path[:-1]:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    holder[entry.path[-1]] = 31
    assert json.loads(new) == wanted
    assert new == text[: entry.start] + "31" + text[entry.end :]
    inserted = splice.inserted(configuration, entry, "a_new_key", "true")
    if inserted is not None:
        holder = json.loads(splice.checked(configuration, [inserted])[0])
        for part in entry.path[:-1]:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        assert holder["a_new_key"] is True


def test_a_splice_that_touches_more_is_refused():
    """The check can fail: an edit that swallows the next key, and one that breaks the file."""
    configuration = opened("a: 1\nb: 2\n")
    for wrong in ("3\nc: 4", "[", "&x 3\nd: *x"):
        edit = splice.Edit(start=3, end=4, text=wrong, path=("a",))
        with pytest.raises(FlatoutError):
            splice.checked(configuration, [edit])
    swallowing = splice.Edit(start=3, end=9, text="3", path=("a",))
    with pytest.raises(FlatoutError):
        splice.checked(configuration, [swallowing])
