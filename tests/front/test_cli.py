"""The command line: help in two languages with examples, quick, lazy; errors as one sentence."""

import subprocess
import sys
import time

import pytest

from flatout.base.words import LANGUAGES, catalogue
from flatout.cli.main import COMMANDS
from flatout.knobs.catalogue import KNOBS

PAGES = [[], *([name] for name in COMMANDS)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("command", PAGES, ids=lambda words: " ".join(words) or "flatout")
def test_every_help_ends_with_examples(command, language, flatout):
    ended = flatout("--lang", language, *command, "--help")
    assert ended.returncode == 0
    text = ended.stdout.decode()
    examples = catalogue(language)[f"command.{command[0] if command else 'flatout'}.examples"].strip().splitlines()
    assert [line.strip() for line in text.rstrip().splitlines()[-len(examples) :]] == [line.strip() for line in examples]
    assert "command." not in text
    assert "option." not in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_command_has_an_example_of_its_own(language):
    """On its own page, and on the first one."""
    first_page = catalogue(language)["command.flatout.examples"]
    for name in COMMANDS:
        assert f"flatout {name}" in catalogue(language)[f"command.{name}.examples"]
        assert f"flatout {name}" in first_page


def test_version(flatout):
    assert flatout("--version").stdout.startswith(b"flatout 0.")


def test_unknown_command_and_flag(flatout):
    for arguments in (["nope"], ["facts", "--nope"], ["--lang", "xx", "facts"]):
        ended = flatout(*arguments)
        assert ended.returncode == 2
        assert ended.stdout == b""
        assert ended.stderr.startswith("flatout: ")
        assert ended.stderr.count("\n") == 1


def test_facts_in_text_and_json(flatout):
    import json

    text = flatout("facts")
    assert text.returncode == 0
    assert "Processor" in text.stdout.decode()
    record = json.loads(flatout("facts", "--json").stdout)
    assert record["kind"] == "machine"
    assert record["processor"]["cores"] >= 1
    assert record["memory"]["total_bytes"] > 2**30


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_knob_has_a_page(language, flatout):
    listing = flatout("--lang", language, "explain").stdout.decode()
    for knob in KNOBS:
        assert knob.name in listing
        for part in ("what", "why"):
            assert f"knob.{knob.name}.{part}" in catalogue(language)
    page = flatout("--lang", language, "explain", "workers").stdout.decode()
    assert catalogue(language)["numerics.resampled"] in page


def test_unknown_knob_suggests_the_nearest(flatout):
    ended = flatout("explain", "worker")
    assert ended.returncode == 2
    assert ended.stderr == "flatout: There is no page called worker; did you mean workers?\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["run", "--mixed-precison", "bf16", "x.py"], "There is no option --mixed-precison; did you mean --mixed-precision?"),
        (["tune", "--budgt=5", "x.py"], "There is no option --budgt; did you mean --budget?"),
        (["tune", "--skip", "precison", "x.py"], "--skip: there is no knob precison; did you mean precision?"),
        (
            ["run", "--zzz", "x.py"],
            "There is no option --zzz in flatout. Put flatout's options before the script and the script's own options "
            "after it.",
        ),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(typed, said, flatout):
    ended = flatout(*typed)
    assert ended.returncode == 2
    assert ended.stderr == f"flatout: {said}\n"


WRONG = [
    (["watch", "--bogus"], "There is no option --bogus; flatout watch --help lists the options."),
    (["doctor", "--jsn"], "There is no option --jsn; did you mean --json?"),
    (["doctor", "a.py", "b.py"], "Got unexpected extra argument (b.py); see flatout doctor --help."),
    (["watch", "--for"], "Option '--for' requires an argument; see flatout watch --help."),
    (["tun", "train.py"], "There is no command tun; did you mean tune?"),
    (["xyzzy"], "There is no command xyzzy; flatout --help lists them."),
]


@pytest.mark.parametrize(("typed", "said"), WRONG, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_a_wrong_command_line_ends_in_one_sentence(typed, said, flatout):
    ended = flatout(*typed)
    assert (ended.returncode, ended.stderr, ended.stdout) == (2, f"flatout: {said}\n", b"")


def best_of(command, times):
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - began)
    return best


@pytest.mark.alone
def test_help_is_quick():
    """At most three times `import click`: nothing else is loaded before it is needed."""
    click = best_of([sys.executable, "-c", "import click"], 5)
    ours = best_of([sys.executable, "-m", "flatout", "--help"], 5)
    assert ours <= 3 * click, (ours, click)


def test_help_loads_little():
    code = "import sys\nfrom flatout.cli.main import main\ntry:\n    main(['--help'])\nfinally:\n    print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = {name.split(".")[0] for name in loaded.splitlines()[-1].split()}
    assert not names & {"torch", "rich", "psutil", "pynvml", "msgspec", "numpy"}
