"""What would make a tuned profile permanent: the places and the edits, read off real scripts."""

from conftest import EXAMPLES
from flatout.base.words import Words
from flatout.report.tune import permanent
from flatout.tune.execution.permanent_edits import edits

PARTS = {"roots": ["Restorer"], "optimizers": ["AdamW"], "loader_sites": ["restoration.py:66"]}


def of(profile, parts=PARTS, source=None):
    path = EXAMPLES / "restoration.py"
    return edits(profile, "restoration.py", path.read_text(encoding="utf-8") if source is None else source, parts, "cuda")


def lines_of(text):
    source = (EXAMPLES / "restoration.py").read_text(encoding="utf-8").splitlines()
    return {f"restoration.py:{number}" for number, line in enumerate(source, 1) if text in line}


def test_each_knob_has_its_place():
    found = {edit.knobs[-1]: edit for edit in of(
        {"workers": "8", "pin_memory": "on", "fused_optimizer": "on", "compile": "reduce-overhead", "channels_last": "on",
         "precision": "bf16", "cudnn_benchmark": "on", "tf32": "on", "non_blocking": "on"})}  # fmt: skip
    assert found["pin_memory"].edit == "DataLoader(…, num_workers=8, pin_memory=True)"
    assert found["pin_memory"].site == "restoration.py:66"
    assert found["fused_optimizer"].site in lines_of("torch.optim.AdamW(")
    assert found["compile"].site in lines_of("model = Restorer(")
    assert found["compile"].edit == 'model = torch.compile(model.to(memory_format=torch.channels_last), mode="reduce-overhead")'
    assert found["precision"].site in lines_of(".backward()")
    assert found["cudnn_benchmark"].code == "once"
    assert set(found) == {"pin_memory", "fused_optimizer", "compile", "precision", "cudnn_benchmark", "tf32", "non_blocking"}


def test_threads_are_one_line():
    (edit,) = of({"cpu_threads": "1"})
    assert (edit.code, edit.edit) == ("once", "torch.set_num_threads(1)")


def test_recorded_graphs_are_no_single_line():
    """torch's own way would replay whatever has changed: it is not what was measured."""
    found = {edit.knobs[-1]: edit for edit in of({"compile": "graphs", "channels_last": "on"})}
    assert (found["compile"].code, found["compile"].edit) == ("not-in-a-line", "flatout run")
    assert found["channels_last"].edit == "model = model.to(memory_format=torch.channels_last)"


def test_what_is_not_found_is_said_without_a_place():
    for source in ("x = 1\n", "def broken(:\n"):
        (edit,) = of({"compile": "default"}, source=source)
        assert (edit.site, edit.edit) == ("", "model = torch.compile(model)")
    assert of({}) == []
    assert of({"workers": "2"}, {})[0].site == ""


def test_the_sentences_name_place_and_edit():
    for language in ("en", "zh"):
        said = permanent(of({"workers": "8", "precision": "fp16"}), Words(language)).plain
        assert "restoration.py:66" in said
        assert "num_workers=8" in said
        assert "torch.float16" in said
