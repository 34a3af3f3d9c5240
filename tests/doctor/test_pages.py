"""The pages of the rules: one in each language, alike in all that is not language."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import string
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from flatout.doctor import page, registry, remedy, rules
from flatout.doctor.model import Layer

RULES = registry.all_rules()
LANGUAGES = tuple(page.HEADINGS)
PAGES = resources.files(page.__package__) / "pages"
MODULES = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
PREFIXES = {Layer.HARDWARE: "HW1", Layer.DRIVER: "DR2", Layer.CUDA: "CU3", Layer.PYTORCH: "PT4", Layer.APPLICATION: "AP5"}

# Paths begin in folders that every system has; what lies in another belongs to the machine that a page was written on.
FOLDER = re.compile(r"(?<![\w./:~)}>-])/([A-Za-z][\w-]*)/[\w.]")
SYSTEM_FOLDERS = {"boot", "dev", "etc", "lib", "mnt", "opt", "proc", "run", "sys", "usr", "var"}
HOME = re.compile(r"/home/(?!u\b|user\b|you\b)\w+|/root/|[A-Z]:\\\\?Users\\(?!u\b|user\b|you\b)\w+", re.I)

# Where the English speaks of the card's memory, the Chinese must too.
GPU_MEMORY = re.compile(r"\b(?:GPU|video|card's|graphics) memory\b|\bVRAM\b|\bmemory of the (?:GPU|card)\b", re.I)
OTHER_MEMORY = re.compile(r"\b(?:host|main|system|shared|page-locked|pinned|pageable) memory\b|\bRAM\b|\bswap\b|/dev/shm", re.I)

QUOTED = re.compile(r"“[^”]*”")  # Windows calls it so on its screens


def text(code: str, language: str) -> str:
    return (PAGES / language / f"{code}.md").read_text(encoding="utf-8")


def head(code: str, language: str) -> dict:
    return tomllib.loads(text(code, language).split(page.FENCE, 2)[1])


def shared(language: str) -> dict[str, str]:
    return tomllib.loads((PAGES / language / "shared.toml").read_text(encoding="utf-8"))["fix"]


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def source(module: str) -> ast.Module:
    path = Path(importlib.import_module(f"{rules.__name__}.{module}").__file__ or "")
    return ast.parse(path.read_text(encoding="utf-8"))


def literals(node: ast.expr) -> list[str]:
    """What the expression may be: a text, or either side of a condition. Nothing where it is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return literals(node.body) + literals(node.orelse)
    return []


def calls(tree: ast.Module, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and ast.unparse(node.func) == name
    ]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((item.value for item in call.keywords if item.arg == name), None)


def every_rule(test):
    return pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)(test)


# -- files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_rule_has_a_page_and_every_page_a_rule(language):
    files = {entry.name for entry in (PAGES / language).iterdir()}
    assert files == {f"{rule.code}.md" for rule in RULES} | {"shared.toml"}


@pytest.mark.parametrize("module", MODULES)
def test_code_and_name_are_those_of_the_file(module):
    rule = importlib.import_module(f"{rules.__name__}.{module}").RULE
    assert module == f"{rule.code}_{rule.name}".lower().replace("-", "_")
    documented = ast.get_docstring(source(module)) or ""
    assert documented.startswith(f"{rule.code} {rule.name}: ")


@every_rule
def test_the_code_says_the_layer(rule):
    assert re.fullmatch(PREFIXES[rule.layer] + r"\d\d", rule.code)


def test_names_are_unique_and_kebab_case():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert len({rule.code for rule in RULES}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


@every_rule
def test_only_findings_that_exist_are_explained(rule):
    assert set(rule.explains) <= {other.name for other in RULES} - {rule.name}
    assert len(set(rule.explains)) == len(rule.explains)


# -- front matter --------------------------------------------------------------------------------------------------------


@every_rule
def test_both_languages_have_the_same_keys(rule):
    english, chinese = (head(rule.code, language) for language in LANGUAGES)
    assert english.keys() == chinese.keys()
    assert {"title", "says"} <= english.keys()
    assert english.get("fix", {}).keys() == chinese.get("fix", {}).keys()


def test_shared_sentences_are_in_both_languages():
    english, chinese = (shared(language) for language in LANGUAGES)
    assert english.keys() == chinese.keys()
    assert {key: placeholders(value) for key, value in english.items()} == {
        key: placeholders(value) for key, value in chinese.items()
    }


@every_rule
def test_both_languages_have_the_same_values_in_their_sentences(rule):
    english, chinese = (head(rule.code, language) for language in LANGUAGES)
    for key in english:
        if isinstance(english[key], str):
            assert placeholders(english[key]) == placeholders(chinese[key]), key
    for key, sentence in english.get("fix", {}).items():
        assert placeholders(sentence) == placeholders(chinese["fix"][key]), key


@every_rule
def test_titles_need_no_value(rule):
    for language in LANGUAGES:
        assert not placeholders(head(rule.code, language)["title"])


# -- the rules' side -----------------------------------------------------------------------------------------------------


def test_every_step_of_a_repair_has_its_sentence():
    for module in MODULES:
        code = module.split("_", 1)[0].upper()
        for call in calls(source(module), "Fix"):
            value = keyword(call, "text")
            for key in literals(value) if value is not None else []:
                for language in LANGUAGES:
                    assert key in page.read(code, language).fix, (module, key)


def test_every_shared_repair_has_its_sentence():
    tree = ast.parse(Path(remedy.__file__).read_text(encoding="utf-8"))
    keys = [key for call in calls(tree, "Fix") if (value := keyword(call, "text")) is not None for key in literals(value)]
    assert keys
    for language in LANGUAGES:
        assert set(keys) <= shared(language).keys()


def test_values_of_a_step_are_those_of_its_sentence():
    """Where the key and its values are both written out in the source."""
    for module in MODULES:
        code = module.split("_", 1)[0].upper()
        for call in calls(source(module), "Fix"):
            value, params = keyword(call, "text"), keyword(call, "params")
            given = (
                {item.value for item in params.keys if isinstance(item, ast.Constant)}
                if isinstance(params, ast.Dict)
                else set()
            )
            if params is not None and not isinstance(params, ast.Dict):
                continue
            for key in literals(value) if value is not None else []:
                for language in LANGUAGES:
                    assert placeholders(page.read(code, language).fix[key]) <= given, (module, key)


def test_every_value_that_a_page_wants_is_evidence():
    """`says` uses only names that its rule passes as evidence somewhere."""
    for module in MODULES:
        rule = importlib.import_module(f"{rules.__name__}.{module}").RULE
        tree = source(module)
        passed = {item.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for item in node.keywords if item.arg}
        passed |= {
            key.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Dict)
            for key in node.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        for key, sentence in head(rule.code, "en").items():
            if isinstance(sentence, str):
                assert placeholders(sentence) <= passed, (rule.code, key)


@every_rule
def test_no_sentence_is_left_over(rule):
    """Every sentence of `[fix]` is named in the rule's source."""
    module = next(name for name in MODULES if name.startswith(rule.code.lower()))
    written = {
        node.value for node in ast.walk(source(module)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert head(rule.code, "en").get("fix", {}).keys() <= written | shared("en").keys()


# -- bodies --------------------------------------------------------------------------------------------------------------


@every_rule
def test_the_five_headings_in_order(rule):
    for language in LANGUAGES:
        body = page.read(rule.code, language).body
        outside = re.sub(r"```.*?```", "", body, flags=re.S)
        assert tuple(re.findall(r"^#+ (.*)$", outside, re.M)) == page.HEADINGS[language]
        assert body.count("```") % 2 == 0
        parts = re.split(r"^## .*$", body, flags=re.M)[1:]
        assert all(part.strip() for part in parts)


@every_rule
def test_references_are_links_and_the_same(rule):
    found = [re.findall(r"https?://\S+", page.read(rule.code, language).body.rsplit("## ", 1)[1]) for language in LANGUAGES]
    assert found[0]
    assert found[0] == found[1]


@every_rule
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_page_names_a_private_folder(rule, language):
    words = text(rule.code, language)
    assert set(FOLDER.findall(words)) <= SYSTEM_FOLDERS
    assert not HOME.search(words)


@every_rule
def test_the_memory_of_the_card_is_called_so_in_chinese(rule):
    """内存 is the computer's memory; a page that speaks of the card's alone must not use it."""
    english, chinese = text(rule.code, "en"), text(rule.code, "zh")
    if GPU_MEMORY.search(english):
        assert "显存" in chinese
        if not OTHER_MEMORY.search(english):
            assert "内存" not in QUOTED.sub("", chinese)
    for key, sentence in head(rule.code, "en").get("fix", {}).items():
        if GPU_MEMORY.search(sentence) and not OTHER_MEMORY.search(sentence):
            assert "内存" not in QUOTED.sub("", head(rule.code, "zh")["fix"][key]), key


@every_rule
def test_chinese_pages_are_chinese(rule):
    words = head(rule.code, "zh")
    for sentence in (words["title"], words["says"]):
        assert re.search(r"[\u4e00-\u9fff]", sentence)
