"""The catalogues: same keys, same placeholders, nothing asked for that is not there."""

import re
import string
from pathlib import Path

import pytest

from flatout.base.words import LANGUAGES, Words, catalogue, choose_language

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


def test_missing_key_is_said_not_raised():
    assert Words("zh")("no.such.key", value=1) == "no.such.key {'value': 1}"
