"""Keys found in three shapes, values in the file's own words, estimates by card, names of files, and every refusal."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "machine"))
try:
    from fake_nvml import H200, FakeNvml
finally:
    sys.path.pop(0)

import flatout
from conftest import EXAMPLES
from flatout.base.errors import UsageError
from flatout.base.words import catalogue
from flatout.cli import main
from flatout.knobs import config_keys
from flatout.knobs.catalogue import find as find_knob
from flatout.tune.config import changed_values, config_file, estimate, known_keys, machine_facts
from flatout.tune.config.estimate import PRESETS, MachineFacts
from flatout.tune.config.wishes import Wish

SOURCE = Path(flatout.__file__).parent
H100 = MachineFacts(card="H100", source="table", capability="9.0", memory_bytes=80 << 30, cores=16.0, triton=True)


def opened(text, name="x.yaml"):
    return config_file.parsed(Path(name), text)


def after(text, wishes, name="x.yaml", own=None, naming=None):
    configuration = opened(text, name)
    places = known_keys.own_keys(configuration, own)
    return changed_values.apply(configuration, wishes, places, naming or changed_values.insertable(name.endswith("json")))


def wish(key, value):
    return Wish(key=key, value=value, code="kept")


# -- the table ---------------------------------------------------------------------------------------------------------


def test_every_key_of_the_documents_is_known_and_no_name_is_claimed_twice():
    asked = (
        "use_gpu, device_id, use_amp, use_mixed_precision, compile_model, multi_gpu, batch_size, gradient_accumulation_steps, "
        "lr, betas, eps, weight_decay, grad_clip, num_workers, pin_memory, persistent_workers, prefetch_factor, base_channels, "
        "num_blocks, patch_size, use_perceptual"
    )
    assert all(config_keys.find(name) for name in asked.split(", "))
    names = [name for key in config_keys.KEYS for name in key.names]
    assert len(names) == len(set(names))
    assert all(find_knob(key.knob) for key in config_keys.KEYS if key.knob)


@pytest.mark.parametrize(
    ("file", "places"),
    [
        (
            "lightweight_config.yaml",
            {"num_workers": "num_workers", "batch_size": "batch_size", "use_amp": "use_mixed_precision"},
        ),
        ("training_config.yaml", {"num_workers": "train.num_workers", "batch_size": "train.batch_size", "lr": "optimizer.lr"}),
        ("behavior.json", {"num_workers": "dataloader_params.num_workers", "batch_size": "batch_size", "use_amp": "use_amp"}),
    ],
)
def test_three_shapes(file, places):
    configuration = config_file.read(EXAMPLES / "configs" / file)
    for name, place in places.items():
        assert ".".join(known_keys.find(configuration, name, {}).path) == place


def test_the_place_that_feeds_the_training_is_meant():
    text = "batch_size: 1\nval:\n  num_workers: 0\ntrain:\n  num_workers: 0\n  batch_size: 2\n"
    assert after(text, [wish("num_workers", 4), wish("batch_size", 8)]).text == (
        "batch_size: 1\nval:\n  num_workers: 0\ntrain:\n  num_workers: 4\n  batch_size: 8\n"
    )
    several = after("a:\n  num_workers: 0\nb:\n  num_workers: 1\n", [wish("num_workers", 4)])
    (row,) = several.changes
    assert (row.state, row.code, row.params["places"]) == ("left", "several-places", "a.num_workers, b.num_workers")
    own = after(
        "a:\n  num_workers: 0\nb:\n  bs: 1\n", [wish("num_workers", 4), wish("batch_size", 9)], own={"batch_size": "b.bs"}
    )
    assert own.text == "a:\n  num_workers: 4\nb:\n  bs: 9\n"


@pytest.mark.parametrize(
    ("before", "key", "value", "now"),
    [
        ("use_amp: no", "use_amp", "bf16", "use_amp: yes"),
        ("use_amp: Off # later", "use_amp", "fp16", "use_amp: On # later"),
        ("use_amp: TRUE", "use_amp", "no", "use_amp: FALSE"),
        ("use_amp: ", "use_amp", "bf16", "use_amp: true "),
        ("mixed_precision: 'no'", "use_amp", "bf16", "mixed_precision: 'bf16'"),
        ("mixed_precision: no", "use_amp", "bf16", "mixed_precision: bf16"),
        ("precision: 32", "use_amp", "bf16", "precision: bf16-mixed"),
        ("precision: 32-true", "use_amp", "fp16", "precision: 16-mixed"),
        ("precision: float32", "use_amp", "bf16", "precision: bfloat16"),
        ("bf16: false", "use_amp", "bf16", "bf16: true"),
        ("precision: auto", "use_amp", "bf16", None),
        ("compile_model: false", "compile_model", "default", "compile_model: true"),
        ("compile_model: false", "compile_model", "reduce-overhead", None),
        ("compile_model: default", "compile_model", "reduce-overhead", "compile_model: reduce-overhead"),
        ('num_workers: "0"', "num_workers", 4, 'num_workers: "4"'),
        ("num_workers: 0x10", "num_workers", 4, None),
        ("num_workers: auto", "num_workers", 4, None),
        ("num_workers: ${oc.env:W}", "num_workers", 4, None),
        ("num_workers: [0, 1]", "num_workers", 4, None),
        ("num-workers: 0", "num_workers", 4, "num-workers: 4"),
        ("pin_memory: 0", "pin_memory", True, "pin_memory: 1"),
        ("x: {num_workers: 0, y: 1}", "num_workers", 4, "x: {num_workers: 4, y: 1}"),
        ("w: &w 0\nnum_workers: *w", "num_workers", 4, "w: &w 0\nnum_workers: 4"),
        ("num_workers: &w 0\nother: *w", "num_workers", 4, None),
        ("num_workers: &w 0", "num_workers", 4, "num_workers: &w 4"),
        ("d: &d\n  num_workers: 0\ntrain:\n  <<: *d\n  lr: 1", "num_workers", 4,
         "d: &d\n  num_workers: 0\ntrain:\n  <<: *d\n  num_workers: 4\n  lr: 1"),
        ("- a\n", None, None, None),
        ("use_amp: !!bool maybe\n", None, None, None),
        ("a: {num_workers, b: 1}", "pin_memory", True, None),
        ("a: {num_workers, b: 1}", "num_workers", 4, None),
        (": num_workers: 0", "num_workers", 4, None),
        ("16: {num_workers: 0}", "num_workers", 4, None),
    ],
)  # fmt: skip
def test_values_in_the_files_own_words(before, key, value, now):
    if key is None:
        with pytest.raises(UsageError):
            opened(before)
        return
    result = after(before, [wish(key, value)])
    assert result.text == (before if now is None else now)
    assert [row.state for row in result.changes] in (["left"], []) if now is None else result.changes[0].state != "left"


def test_json_takes_a_word_in_quotes_where_a_number_stood():
    assert after('{"precision": 32}', [wish("use_amp", "bf16")], "x.json").text == '{"precision": "bf16-mixed"}'


def test_what_is_missing_stands_beside_its_siblings():
    one = after(
        "num_workers: 0 # here\r\nlr: 1\r\n", [wish("num_workers", 2), wish("pin_memory", True), wish("prefetch_factor", 4)]
    )
    assert one.text == "num_workers: 2 # here\r\npin_memory: true\r\nprefetch_factor: 4\r\nlr: 1\r\n"
    assert after("train:\n  num_workers: 0", [wish("pin_memory", True)]).text == "train:\n  num_workers: 0\n  pin_memory: true"
    assert (
        after("num_workers: 0\n", [wish("persistent_workers", True)]).text == "num_workers: 0\n"
    )  # no workers, nothing to keep
    json_text = '{\n\t"batch_size": 8,\n\t"num_workers": 0\n}\n'
    assert json.loads(after(json_text, [wish("pin_memory", True)], "x.json").text)["pin_memory"] is True
    assert after("num_workers: 1\n", [wish("prefetch_factor", 2)]).text == "num_workers: 1\n"  # torch's own value
    reads_it = changed_values.read_by(["cfg['pin_memory']"])
    named = after("num_workers: 1\n", [wish("pin_memory", True), wish("persistent_workers", True)], naming=reads_it)
    assert named.text == "num_workers: 1\npin_memory: true\n"


# -- estimates ---------------------------------------------------------------------------------------------------------


def derived(name, preset="balanced", **more):
    facts = {**machine_facts._named(name), "cores": 12.0, "triton": True, "host_bytes": 64 << 30, **more}
    return {one.key: one.value for one in estimate.wishes(MachineFacts(**facts), preset)}


@pytest.mark.parametrize(
    ("card", "precision"),
    [("RTX 4050", "bf16"), ("RTX 4070", "bf16"), ("RTX 4080", "bf16"), ("RTX 4090", "bf16"), ("RTX 5090", "bf16"),
     ("H200", "bf16"), ("GTX 1080", "no"), ("RTX 2080", "fp16"), ("T4", "fp16"), ("GTX 1660", "no"), ("V100 PCIe", "fp16")],
)  # fmt: skip
def test_precision_by_capability(card, precision):
    assert derived(card)["use_amp"] == precision


def test_presets_are_shares_of_the_machine():
    counts = {name: derived("RTX 4090", name)["num_workers"] for name in PRESETS}
    assert counts == {"high_performance": 11, "balanced": 7, "lightweight": 3}
    assert derived("RTX 4090", "high_performance")["compile_model"] == "default"
    assert derived("RTX 4090")["compile_model"] is None
    assert derived("GTX 1080", "high_performance")["compile_model"] is False
    assert derived("RTX 4090", "high_performance", triton=False)["compile_model"] is False
    assert derived("RTX 4090", "high_performance", system="Windows", cores=32.0)["num_workers"] == 8
    assert derived("RTX 4090", "high_performance", cores=192.0)["num_workers"] == 16
    assert derived("RTX 4090", host_bytes=4 << 30)["num_workers"] == 2
    assert derived("RTX 4090", cores=1.0)["num_workers"] is None
    assert derived("RTX 4090")["batch_size"] is None
    usual, careful = (estimate.ground(H100, name).memory_usable_gib for name in ("balanced", "lightweight"))
    assert careful < usual < 80


def test_without_a_card_only_the_processors_part_is_derived():
    found = {one.key: one.value for one in estimate.wishes(MachineFacts(missing="nvml-library-not-found", cores=8.0))}
    assert found["num_workers"] == 4
    assert found["use_amp"] is None
    assert "pin_memory" not in found
    assert "use_gpu" not in found


def test_the_cards_own_facts_come_from_the_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(H200))
    facts = machine_facts.facts({})
    assert (facts.card, facts.source, facts.capability) == ("NVIDIA H200", "nvml", "9.0")
    assert machine_facts.facts({"CUDA_VISIBLE_DEVICES": ""}).missing == "not-visible"
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert machine_facts.facts({}).missing == "no-device"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine_facts.facts({}).missing == "nvml-package-missing"
    with pytest.raises(UsageError) as error:
        machine_facts.facts({}, "RTX 4091")
    assert "RTX 4090" in str(error.value)


# -- names and refusals ------------------------------------------------------------------------------------------------


def test_names_of_optimised_files():
    names = [Path("c/lightweight_config.yaml")]
    for _ in range(3):
        names.append(config_file.target_of(names[-1]))
    assert [path.name for path in names[1:]] == [
        "lightweight_gpu_optimized.yaml",
        "lightweight_gpu_optimized_optimized.yaml",
        "lightweight_gpu_optimized_optimized_optimized.yaml",
    ]
    assert config_file.target_of(Path("config.json")).name == "config_gpu_optimized.json"


def tune(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main.main(["--lang", "en", "tune", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\tnum_workers: 0\n", "is not valid YAML or JSON"),
        ("a: [1\n", "is not valid YAML or JSON"),
        ("num_workers: 0\nnum_workers: 1\n", "same key twice"),
        ("a: !!python/object/apply:os.system ['true']\nnum_workers: 0\n", "tag"),
        ("- num_workers: 0\n- num_workers: 1\n", "not a list"),
        ("a: 1\n---\nb: 2\n", "several YAML documents"),
        ("just words", "not a list"),
        ("", "not a list"),
        (b"\xff\xfea\x00:\x00", "not UTF-8"),
        ("a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
         "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
         "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d, *d]\n", "repeat its contents"),
        ("a: &a {b: *a}\n", "repeat its contents"),
        ("x" * 300_000, "larger than"),
    ],
)  # fmt: skip
def test_files_that_are_refused(content, said, capsys, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = tune(capsys, "--config", path)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["x.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "nowhere.yaml"], "no configuration"),
        (["--force", "train.py"], "--force needs a configuration"),
        ([], "Nothing to tune"),
        (["--config", "CONFIG", "--preset", "fast"], "high_performance"),
        (["--config", "CONFIG", "--card", "RTX 4091"], "RTX 4090"),
        (["--config", "CONFIG", "--key", "batch_size=train.bs"], "no key train.bs"),
        (["--config", "CONFIG", "--key", "speed=train.bs"], "NAME=PATH"),
        (["--config", "CONFIG", "-o", "CONFIG"], "is the original configuration"),
        (["--config", "CONFIG", "-o", "x.json"], "another format"),
        (["--config", "CONFIG", "-o", "no/such/x.yaml"], "its folder does not exist"),
        (["--config", "CONFIG", "-o", "link.yaml"], "is a link"),
        (["--config", "CONFIG", "--explore", "num_workers=1,2"], "needs the training command"),
        (["--config", "CONFIG", "--explore", "num_workers", "--", "python", "x.py", "{config}"], "KEY=VALUE"),
        (["--config", "CONFIG", "--", "python", "x.py"], "where its path belongs"),
        (["--config", "CONFIG", "--", "python", "x.py", "{config}", "{config}"], "2 times"),
    ],
)
def test_wishes_that_cannot_be_meant(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x_config.yaml").write_text("num_workers: 0\n", encoding="utf-8")
    Path("link.yaml").symlink_to("elsewhere.yaml")
    code, out, err = tune(capsys, *("x_config.yaml" if word == "CONFIG" else word for word in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(os.listdir()) == ["link.yaml", "x_config.yaml"]


def test_the_command_without_a_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(start=12))
    shutil.copy(EXAMPLES / "configs" / "lightweight_config.yaml", ".")
    before = Path("lightweight_config.yaml").read_bytes()
    code, out, err = tune(capsys, "--config", "lightweight_config.yaml", "--card", "RTX 4050", "--json")
    record = json.loads(out)
    assert (code, record["how"], record["target"]) == (0, "estimated", "lightweight_gpu_optimized.yaml")
    assert "estimated" in err
    assert "RTX 4050 Laptop GPU" in err
    rows = {row["key"]: row for row in record["changes"]}
    assert rows["use_amp"]["after"] is True
    assert rows["use_amp"]["how"] == "estimated"
    assert rows["batch_size"]["state"] == "left"
    assert "use_mixed_precision: true\n" in Path("lightweight_gpu_optimized.yaml").read_text(encoding="utf-8")
    code, _, err = tune(capsys, "--config", "lightweight_config.yaml")
    assert code == 2
    assert "--force" in err
    code, _, err = tune(capsys, "--config", "lightweight_config.yaml", "--force")
    assert code == 0
    assert "No GPU is known" in err
    assert Path("lightweight_config.yaml").read_bytes() == before


def test_a_linked_configuration_is_read_through_and_its_name_kept(tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "a_config.yaml"
    real.write_bytes("\ufeffnum_workers: 0\r\nuse_amp: off\r\n".encode())
    link = tmp_path / "b_config.yaml"
    link.symlink_to(real)
    found = flatout.auto_optimize_config(link, card="RTX 4090", preset="high_performance")
    assert found["use_amp"] is True
    assert isinstance(found["num_workers"], int)
    written = (tmp_path / "b_gpu_optimized.yaml").read_bytes()
    assert written.startswith("\ufeff".encode())
    assert b"use_amp: on\r\n" in written
    assert b"\n" not in written.replace(b"\r\n", b"")
    with pytest.raises(ValueError, match=r"already exists|已经存在"):
        flatout.auto_optimize_config(link, card="RTX 4090")
    with pytest.raises(ValueError, match="exit 2"):  # the command has no place for the configuration
        flatout.auto_optimize_config(link, tmp_path / "c.yaml", command=[sys.executable, "main.py"])
    again = flatout.auto_optimize_config(link, tmp_path / "b_gpu_optimized.yaml", card="GTX 1080")
    assert again["use_amp"] is False


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody can write, root included")
def test_a_folder_that_cannot_be_written(capsys, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("num_workers: 0\n", encoding="utf-8")
    code, _, err = tune(capsys, "--config", path, "-o", "/proc/x.yaml")
    assert code == 2
    assert "cannot be written" in err
    assert len(err.strip().splitlines()) == 1


def test_every_word_that_is_asked_for_is_there():
    known = catalogue("en")
    text = "".join(
        path.read_text(encoding="utf-8") for path in [*SOURCE.glob("tune/config_*.py"), *SOURCE.glob("*/*config*.py")]
    )
    for key in re.findall(r'"(config-error\.[a-z-]+)"', text):
        assert key in known, key
    for code in re.findall(r'code="([a-z0-9-]+)"', (SOURCE / "tune/config/estimate.py").read_text(encoding="utf-8")):
        assert f"config-why.{code}" in known, code
    assert {"missing.not-visible", "missing.no-device"} <= known.keys()
    reasons = ["by-cores", "by-host-memory", "by-windows", "by-most", "one-core", *estimate.LEFT_TO_MEASURING.values(),
               "several-places", "shared", "other-words", "nowhere", "kept", "kept-gain"]  # fmt: skip
    assert all(f"config-why.{code}" in known for code in reasons)
    ends = ["verified-faster", "verified-same", "verified-unknown", "verified-slower", "unverified-nothing-changed",
            "unverified-new-fails", "unverified-old-fails", "unverified-too-short", "unverified-parity"]  # fmt: skip
    assert all(f"config.{end}" in known for end in ends)


@pytest.mark.parametrize("page", ["configurations.md", "configurations.zh.md"])
def test_the_table_in_the_docs_is_what_is_derived(page):
    text = (EXAMPLES.parent / "docs" / page).read_text(encoding="utf-8")
    yes, no = ("是", "否") if ".zh." in page else ("yes", "no")
    for name in ("RTX 4050", "RTX 4070", "RTX 4080", "RTX 4090", "RTX 5090", "GTX 1080"):
        facts = MachineFacts(**machine_facts._named(name), cores=16.0, triton=True)
        wanted = {preset: {one.key: one.value for one in estimate.wishes(facts, preset)} for preset in PRESETS}
        usual, careful = (estimate.ground(facts, preset) for preset in ("balanced", "lightweight"))
        compiled = yes if wanted["high_performance"]["compile_model"] else no
        row = f"| {facts.card} | {facts.capability} | {usual.memory_gib:g} | {wanted['balanced']['use_amp']} | {compiled} |"
        assert f"{row} {usual.memory_usable_gib:g} / {careful.memory_usable_gib:g} |" in text
    assert [wanted[preset]["num_workers"] for preset in PRESETS] == [15, 8, 5]
