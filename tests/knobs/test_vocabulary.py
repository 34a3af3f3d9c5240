"""The front's catalogue and the agent's knobs are in step, and every code of the agent has its words."""

import ast
import inspect
import string
from pathlib import Path

import pytest

from _flatout_agent import knobs
from _flatout_agent.knobs import compile as compiling
from _flatout_agent.knobs.registry import KNOBS as REGISTRY
from flatout.base.words import LANGUAGES, Words, catalogue
from flatout.knobs.catalogue import KNOBS
from flatout.knobs.model import Came, KnobUse, Switch
from flatout.measure import knob_use
from flatout.report import run_knobs

FOLDER = Path(inspect.getfile(knobs)).parent

MAKERS = {"applied", "already", "refused"}
FRONT = {
    "batch-given-by-you",
    "batch-is-the-scripts",
    "batch-not-seen",
    "not-exact-here",
    "batches-do-not-add-up",
    "other-batch-seen",
    "ended-before",
    "ended-too-early",
    "slower",
    "slower-in-turn",
    "raised",
    "too-few-epochs",
    "no-time-to-race",
    "plain-not-finite",
    "too-little",
    "rather-later",
    "as-low-by-then",
    "too-noisy",
    "nothing-learned",
    "later-there",
    "never-there",
    "fewer-steps",
    "not-finite",
}


def test_names_and_switches():
    ours = {knob.name: knob for knob in KNOBS if knob.name != "batch_size"}  # the script's own flag turns that one
    assert list(ours) == list(REGISTRY)
    for name, kind in REGISTRY.items():
        assert (ours[name].switch is Switch.HOT) == kind.hot, name


def test_values():
    domains = {knob.name: knob.domain for knob in KNOBS}
    assert domains["compile"] == ("no", *compiling.MODES, compiling.GRAPHS)
    for knob in KNOBS:
        assert knob.default in (*knob.domain, "script") or ".." in knob.domain[0], knob.name


def texts(node):
    """The texts that an expression may be: both sides of a choice, both ends of a made one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [*texts(node.body), *texts(node.orelse)]
    return []


def codes_in_the_agent():
    """code -> the names of its details at each place that makes it, or None where they cannot be told."""
    found = {}
    for path in sorted(
        [*FOLDER.rglob("*.py"), FOLDER.parent / "modes" / "driver.py", FOLDER.parent / "modes" / "profile_mode.py"]
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in MAKERS:
                    details = None if any(word.arg is None for word in node.keywords) else {word.arg for word in node.keywords}
                elif name == "_stop":
                    details = set()
                else:
                    continue
                for code in texts(node.args[0]):
                    found.setdefault(code, []).append(details)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
                code, details = node.value.elts
                if isinstance(details, ast.Dict):
                    names = {key.value for key in details.keys}
                elif isinstance(details, ast.Name) and details.id == "name":
                    names = {"module"}  # compile's obstacles share one
                else:
                    continue
                for text in texts(code):
                    found.setdefault(text, []).append(names)
    found.pop("", None)
    return found


CODES = codes_in_the_agent()


def test_the_codes_are_found():
    assert len(CODES) > 60
    assert {
        "no-main-guard",
        "script-set-fused",
        "gradient-outside-the-model",
        "hooks-on-root",
        "capped",
        "torch-too-old",
    } <= CODES.keys()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_code_has_its_words(language):
    known = {key.removeprefix("outcome.") for key in catalogue(language) if key.startswith("outcome.")}
    assert known == CODES.keys() | FRONT


def test_sentences_ask_only_for_details_that_are_always_there():
    for code, places in CODES.items():
        asked = {name for _, name, _, _ in string.Formatter().parse(catalogue("en")[f"outcome.{code}"]) if name}
        for details in places:
            assert details is None or asked <= details, (code, asked, details)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_knob_has_a_page_and_a_proof(language):
    for knob in KNOBS:
        for part in ("what", "why", "traps"):
            assert f"knob.{knob.name}.{part}" in catalogue(language)
        assert knob.name == "batch_size" or f"proof.{knob.name}" in catalogue(language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_of_ending_is_said(language):
    words = Words(language)
    for came in Came:
        said = run_knobs.sentence(KnobUse(name="workers", value="4", source="flag", came=came), words)
        assert said
        assert "knobs." not in said
    unknown = KnobUse(name="workers", value="4", source="flag", came=Came.REFUSED, code="of-a-newer-agent")
    assert "of-a-newer-agent" in run_knobs.sentence(unknown, words)


def test_codes_that_only_came_too_early_are_the_agents():
    assert CODES.keys() >= knob_use.TOO_EARLY


def test_explain_shows_the_page(flatout):
    page = flatout("explain", "precision").stdout.decode()
    for part in (
        "Pitfalls:",
        "Values: no, bf16, fp16, auto",
        "Effect on results: tolerance",
        "flatout run --knob precision=bf16 train.py",
    ):
        assert part in page
    assert "注意：" in flatout("--lang", "zh", "explain", "precision").stdout.decode()
