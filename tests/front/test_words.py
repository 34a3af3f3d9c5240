"""The catalogues: same keys, same placeholders, nothing asked for that is not there."""

import ast
import fnmatch
import io
import re
import string
from pathlib import Path

import pytest

from flatout.base.errors import FlatoutError
from flatout.base.printable import printable
from flatout.base.words import LANGUAGES, Words, catalogue, choose_language
from flatout.report.terminal import Text, show

SOURCE = Path(__file__).resolve().parents[2] / "src" / "flatout"


def placeholders(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_same_keys_in_every_language():
    english = catalogue("en")
    for language in LANGUAGES:
        assert catalogue(language).keys() == english.keys(), language


@pytest.mark.parametrize("language", LANGUAGES)
def test_same_placeholders(language):
    for key, text in catalogue(language).items():
        assert placeholders(text) == placeholders(catalogue("en")[key]), key


def test_every_key_in_the_code_has_a_sentence():
    """Literal keys handed to `words(...)` and to errors exist; keys built from values are covered by their own tests."""
    known = catalogue("en")
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for key in re.findall(r"""words\(\s*f?["']([a-z][a-z-]*\.[a-z.-]+)["']""", text):
            assert key in known, f"{path.name}: {key}"
        for key in re.findall(r"""Error\(\s*["'](error\.[a-z-]+)["']""", text):
            assert key in known, f"{path.name}: {key}"


def test_chinese_has_no_english_punctuation_between_characters():
    for key, text in catalogue("zh").items():
        assert not re.search(r"[\u4e00-\u9fff][,;:!?][\u4e00-\u9fff ]", text), key


def test_one_rule_for_gpu_and_chinese():
    """GPU利用率 without a space, everywhere."""
    for key, text in catalogue("zh").items():
        assert not re.search(r"GPU [\u4e00-\u9fff]|[\u4e00-\u9fff] GPU", text), key


@pytest.mark.parametrize(
    ("asked", "environment", "language"),
    [
        ("zh", {}, "zh"),
        ("en", {"LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"FLATOUT_LANG": "zh", "LANG": "de_DE"}, "zh"),
        (None, {"LC_ALL": "zh_TW.UTF-8"}, "zh"),
        (None, {"LANG": "Chinese (Simplified)_China.936"}, "zh"),
        (None, {"LANG": "C.UTF-8"}, "en"),
    ],
)
def test_language(asked, environment, language):
    assert choose_language(asked, environment) == language


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_key_is_ever_shown(language):
    """A sentence that is missing, or that wants what it is not given, says what is known; the key tells nobody anything."""
    said = Words(language)("library.no-such-key", value=1, path="a.py")
    assert "library" not in said
    assert "value 1, path a.py" in said
    assert "budget" in Words(language)("error.budget", other=1) or "other 1" in Words(language)("error.budget", other=1)
    assert "no such thing" in Words(language)("error.no-such-thing")


def test_no_key_follows_the_sentence_of_an_error(monkeypatch):
    monkeypatch.setenv("FLATOUT_LANG", "en")
    assert (
        str(FlatoutError("error.budget", value="x"))
        == "--budget x is not valid: give a time such as 90s, 5m or 1h, at most one year."
    )


def keys_asked_for():
    """(file, key with * where a value stands) of every call of words and every error, in the whole source."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("words", "filled") or name.endswith("Error"):
                for part in node.args[:2] if name == "filled" else node.args[:1]:
                    yield from ((path.name, key) for key in literals(part) if re.fullmatch(r"[a-z*][\w*-]*\.[\w.*-]+", key))


def literals(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)


def test_every_key_that_the_code_asks_for_is_there():
    known = list(catalogue("en"))
    asked = set(keys_asked_for())
    assert len(asked) > 400
    wanting = [(name, key) for name, key in sorted(asked) if not fnmatch.filter(known, key)]
    assert not wanting


def test_what_comes_from_outside_is_shown_without_control_characters():
    evil = "a\x1b[31mred\x1b]0;title\x07\x9b2J\rb\u202ec\udce9"
    assert printable(evil) == "ared2Jbc\\xe9"
    assert Words("en")("error.cannot-read", path=evil, detail="x\x1bcy") == "ared2Jbc\\xe9 cannot be read: xy."
    stream = io.StringIO()
    show(stream, Text(f"{evil} and more"))
    assert stream.getvalue() == "ared0;title2Jbc\\xe9 and more\n"  # rich takes the bell that ends a title by itself


@pytest.mark.parametrize("file", ["measure/time_to_loss.py", "tune/batch/learning_race.py"])
def test_a_batch_that_was_not_shown_to_learn_faster_has_its_reason_in_words(file):
    """A code without a sentence would be shown as it is: "not shown to reach the same loss sooner, because too-little"."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    codes = set(re.findall(r'code="([a-z-]+)"', text)) | set(re.findall(r'Learned\.(?:SLOWER|UNKNOWN), "([a-z-]+)"', text))
    assert codes
    assert not [code for code in codes if f"outcome.{code}" not in catalogue("en")]
