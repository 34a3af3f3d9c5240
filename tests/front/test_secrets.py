"""Keys and passwords: found by their names, their places and their looks; found nowhere in what is written."""

import base64
import io
import json
import os
import sys
import time
from urllib.parse import quote, quote_plus

import pytest

from flatout.base import secret_forms
from flatout.base.secret_forms import cut_scrubbed, scrubbed
from flatout.base.secrets import hide, secrets_in
from flatout.launch import error_texts
from flatout.launch.trial_process import TrialChild

WANDB = "deadbeef0123456789deadbeef0123456789aaaa"


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        (["t.py", "--api-key", "abc def", "--lr", "0.1"], ["t.py", "--api-key", "***", "--lr", "0.1"]),
        (["--token=xyz123456"], ["--token=***"]),
        (["--hf_token", "x", "x.py"], ["--hf_token", "***", "x.py"]),
        (["+logger.api_key=foo"], ["+logger.api_key=***"]),
        (["--password", "-x9-y", "--note", "of -x9-y"], ["--password", "***", "--note", "of -x9-y"]),
        (["--password", "hunter22", "--note", "my hunter22"], ["--password", "***", "--note", "my ***"]),
        (["--data", "https://me:pw@host/x?a=1&token=abc&b=2"], ["--data", "https://***@host/x?a=1&token=***&b=2"]),
        ([WANDB], ["***"]),
        (["--run", f"a,{WANDB}"], ["--run", "a,***"]),
        (["sk-proj-abcdefghijklmnop"], ["***"]),
        (["--wandb-key", "\udce9x"], ["--wandb-key", "***"]),
        (['{"api_key": "x", "lr": 0.1}'], ['{"api_key": "***", "lr": 0.1}']),
        (["logger={api_key:x,project:y}"], ["logger={api_key:***,project:y}"]),
        (["--set=password=x"], ["--set=password=***"]),
        (["--opts", "lr=0.1,password=x,seed=2"], ["--opts", "lr=0.1,password=***,seed=2"]),
        (["{'db': {'user': 'me', 'password': 'a b'}}"], ["{'db': {'user': 'me', 'password': '***'}}"]),
        (["--api-keys", "one", "two", "--lr", "1"], ["--api-keys", "***", "***", "--lr", "1"]),
        (["--kaggle-key", "x"], ["--kaggle-key", "***"]),
        (["--fancy-key", "q7Jk39fLw2"], ["--fancy-key", "***"]),
        (["--token", "a", "q7Jk39fLw2"], ["--token", "***", "***"]),
        (["--auth", "me:pw"], ["--auth", "***"]),
        (["--host", "me:pw@host.org/db"], ["--host", "***@host.org/db"]),
        (["me:pw@localhost"], ["***@localhost"]),
        (["--data", "s3://me:pa/ss@b"], ["--data", "s3://***@b"]),
        (["https://me:p@ss@h"], ["https://***@h"]),
        (["https://abc123@o1.ingest.sentry.io/1"], ["https://***@o1.ingest.sentry.io/1"]),
        (["wJalrXUtnFEMI/K7MDENG/bPxRfiCYEX4MPL3K3Y"], ["***"]),
        (["--header", "Authorization: Bearer abcdefgh12"], ["--header", "Authorization:***"]),
        (["AccountName=me;AccountKey=Zm9v+/8=;x"], ["AccountName=me;AccountKey=***;x"]),
        (["--db-pass", "x", "--passwords", "a", "b"], ["--db-pass", "***", "--passwords", "***", "***"]),
    ],
)
def test_hidden(words, hidden):
    assert hide(words) == hidden


@pytest.mark.parametrize(
    "words",
    [
        ["--pad-token", "0", "--max-tokens", "512", "--tokenizer", "gpt2", "--token-dim", "64"],
        ["--ckpt", "/data/resnet50_imagenet_pretrained_v2_weights.pt", f"/runs/{WANDB}/last.pt"],
        ["--name", "ViT-B-16-224-in21k-ft-in1k-384aug", "--run", "20231105checkpointfinalversionxx"],
        ["--compass", "north", "--bypass", "x1", "--key-frames", "3", "--sort-key", "date", "--auth-token", "none"],
        [
            "--num-tokens",
            "32000",
            "--train-tokens",
            "300B",
            "--eos-token",
            "</s>",
            "--pad-token",
            "50256",
            "--mask-token",
            "[MASK]",
        ],
        [
            "--image-key",
            "jpg",
            "--state-dict-key",
            "model_ema",
            "--key-dim",
            "64",
            "--label-key",
            "label2",
            "--tokens-per-step",
            "8",
        ],
        [
            "--commit",
            WANDB,
            f"--revision={WANDB}",
            "--data-hash",
            WANDB,
            "--metric",
            "val:acc@5",
            "--image",
            "torch:2.1@sha256:1a2",
        ],
        [
            "runs/exp1/2024/v3/part12/x",
            "data/imagenet1k/v2/train3/part4/file5",
            "git@github.com:me/repo.git",
            "ssh://git@github.com/x",
        ],
        ['{"tokenizer": "gpt2", "max_tokens": 4096, "pad_token": "<pad>", "monitor_key": "acc"}', "optimizer=adamw,sgd"],
        ["--when", "2024-01-02T03:04:05", "hf://datasets/me/x@main/f", "https://host:8080/path@1", "https://host/a@b:c"],
        ["--user", "1000:1000", "--dict-key", "layer1.weight2", "--resume", "wandb://me/proj/run:v3"],
        ["--user", "me", "--author", "me:you", "--auth", "basic", "--pass", "2", "--passes", "many", "--compass-key", "north"],
        ["--token", "0", "resnet50", "cifar10.yaml", "--secret-santa", "x"],
        ["--url", "https://host:8080/path?page=2", "--device", "GPU-8f6d1a2b-1111-2222-3333-444455556666"],
    ],
)
def test_what_is_no_secret_stays(words):
    assert hide(words) == words
    assert secrets_in(words) == []


def test_texts_lose_what_the_command_and_the_environment_know():
    known = secrets_in(["--password", "hunter22", "ftp://me:sesame7@h"], {"WANDB_API_KEY": WANDB, "HOME": "/root/abcdef"})
    assert (
        scrubbed(f"Namespace(password='hunter22') {WANDB} sesame7 /root/abcdef", known)
        == "Namespace(password='***') *** *** /root/abcdef"
    )


def test_the_environment_is_searched_by_what_stands_in_it():
    environ = {
        "https_proxy": "http://me:sesame7@proxy:3128",
        "KAGGLE_KEY": "kaggle77",
        "DATABASE_URL": "postgres://me:p%40ss77@db/x",
        "SENTRY_DSN": "https://abc1234@o1.ingest.sentry.io/1",
        "AZURE_STORAGE_KEY": "azure77+/==",
        "STORE": "AccountName=me;AccountKey=Zm9v+/8=;x",
        "HEADERS": "Authorization: Bearer abcdefgh12",
        "GIT_COMMIT": WANDB,
        "HOSTNAME": "3f9c1d2e4b5a3f9c1d2e4b5a",
        "PATH": "/usr/bin:/opt/a1b2c3d4e5f6a7b8c9d0e1f2/bin",
    }
    known = secrets_in(["--header", "Authorization: Bearer ijklmnop34"], environ)
    told = "sesame7 kaggle77 p%40ss77 p@ss77 abc1234 azure77+/== Zm9v+/8= abcdefgh12 ijklmnop34"
    assert set(scrubbed(told, known).split()) == {"***"}
    rest = [environ[name] for name in ("GIT_COMMIT", "HOSTNAME", "PATH")]
    assert scrubbed(" ".join(rest), known).split() == rest


@pytest.mark.parametrize(
    "secret",
    ["p\u00e4ss77 w\"x'", "a+b/c&d%e\\f", "\u5bc6\u7801\u5bc6\u7801\u5bc6\u7801", "\udce9xabcde", "line one\nline two"],
)
def test_no_form_of_a_secret_is_left(secret, tmp_path):
    octets = secret.encode("utf-8", "surrogateescape")
    forms = [json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret), ascii(secret), quote(octets, safe="")]
    forms += [quote(octets), quote_plus(octets), octets.decode("utf-8", "replace")]
    assert {scrubbed(f"<{form}>", [secret]) for form in forms} <= {"<***>", '<"***">', "<'***'>"}
    for before in ("", "u:", "me:", "you:"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            told = encode(before.encode() + octets).decode()
            left = scrubbed(told, [secret]).replace("***", "")
            assert len(left) <= len(encode(before.encode())) + 4, (told, left)


def test_what_is_printed_loses_its_secrets_across_pieces(monkeypatch):
    """Of any size, and with no line ends; what is no text stays as it is."""
    text = b"\xff\xfe".join([b"hunter22planted", b"x" * 50, "p\u00e4ss77".encode()] * 40)
    for piece in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(secret_forms, "CHUNK", piece)
        target = io.BytesIO()
        secret_forms.copy_scrubbed(io.BytesIO(text), target, ["hunter22planted", "p\u00e4ss77", "hunter"])
        assert target.getvalue() == b"\xff\xfe".join([b"***", b"x" * 50, b"***"] * 40)
    target = io.BytesIO()
    secret_forms.copy_scrubbed(io.BytesIO(text), target, [])
    assert target.getvalue() == text


def test_a_text_that_was_cut_ends_in_no_part_of_a_secret():
    assert cut_scrubbed("ftp failed: me:hunter22pla", ["hunter22planted"]) == "ftp failed: me:***"
    assert cut_scrubbed("ftp failed: hun", ["hunter22planted"]) == "ftp failed: hun"


@pytest.mark.parametrize(
    "part", ["a", "1a", "a:", "a:b@", "://", "password:", 'token="', "x://a:b@c ", "password=a1, ", '{"a":']
)
def test_words_as_long_as_they_may_be(part):
    """Linux takes 128 KiB; quadratic, they took minutes."""
    word = (part * 120_000)[:120_000]
    began = time.process_time()
    hide([word])
    assert time.process_time() - began < 6.0


def test_folders_are_no_secrets(tmp_path):
    """The shell's PWD is the working folder: hidden, no path that a trial met could be read."""
    environ = {"PWD": str(tmp_path), "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "not there" / "key.json")}
    assert secrets_in(["train.py", "--credentials", str(tmp_path)], environ) == []
    assert hide(["--credentials", str(tmp_path)]) == ["--credentials", str(tmp_path)]
    assert secrets_in([], {"AWS_SECRET_ACCESS_KEY": "/bPxR/fiCYEXAMPLEKEY"}) == ["/bPxR/fiCYEXAMPLEKEY"]


def test_the_end_of_what_a_trial_printed_begins_in_no_secret(tmp_path):
    """Also where characters have three bytes."""
    prints = "import sys; sys.stdout.buffer.write((sys.argv[2] + '\u5bc6' * 30).encode() * 9)"
    line = [sys.executable, "-c", prints, "--password", "hunter22planted"]
    child = TrialChild(line, os.environ, tmp_path / "trial")
    try:
        assert not child.died(30)
        for most in range(1, 500):
            text = child.printed(most)
            assert set(text) <= set("*\u5bc6"), (most, text)
            assert len(text) == most or most > 250
    finally:
        child.kill()


def test_errors_that_the_agent_tells_of_lose_the_secrets(tmp_path):
    """And nothing else: numbers, names and codes may look like somebody's password."""
    journal, answer = tmp_path / "journal-7.jsonl", tmp_path / "result-1.json"
    window = b'{"kind":"window","t":1234567}\n'
    fault = b'{"kind":"fault","where":"window","text":"OSError: no window at 1234567 p\\u00e4ss77"}\n'
    journal.write_bytes(window + fault + b'{"kind":"fault","text":"cut short: p\\u00e4ss77')
    answer.write_text('{"id": 1, "outcomes": {"tf32": {"code": "window", "details": {"error": "1234567"}}}}')
    (tmp_path / "journal-8.jsonl").write_bytes(window)
    as_it_was = (tmp_path / "journal-8.jsonl").stat()
    error_texts.scrub_files(tmp_path, ["window", "1234567", "p\u00e4ss77"])
    lines = journal.read_bytes().splitlines(keepends=True)
    assert lines[0] == window
    assert lines[1] == b'{"kind":"fault","where":"window","text":"OSError: no *** at *** ***"}\n'
    assert lines[2] == b'{"kind":"fault","text":"cut short: ***'
    assert json.loads(answer.read_bytes())["outcomes"]["tf32"] == {"code": "window", "details": {"error": "***"}}
    assert (tmp_path / "journal-8.jsonl").stat().st_ino == as_it_was.st_ino
    assert {file.name for file in tmp_path.iterdir()} == {"journal-7.jsonl", "journal-8.jsonl", "result-1.json"}


TRAINS = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset
print(os.getcwd(), sys.argv, os.environ.get("WANDB_API_KEY"), flush=True)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000000 if "--long" in sys.argv else 3):
    for (x,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
told = f"Expected all tensors to be on the same device as {sys.argv[2]} of {sys.argv[4]}"
raise RuntimeError(told.ljust(490) + sys.argv[2])  # cut in its midst
"""
WORDS = ["--password", "hunter22planted", "--data", "s3://me:sesame7planted@bucket", WANDB, '{"api_key": "json77planted"}']
PLANTED = ["hunter22planted", "sesame7planted", WANDB, "0123planted4567", "proxy77planted", "json77planted"]
BEGINNINGS = ["hunter22", "sesame7", "deadbeef01", "0123plant", "proxy77", "json77"]  # where one is cut short


@pytest.fixture
def at_home(flatout, tmp_path):
    """The command with all that it may write to below one folder, and secrets in its environment."""
    places = {name: tmp_path / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    for place in places.values():
        place.mkdir()
    environment = {name: str(place) for name, place in places.items()}
    environment |= {
        "WANDB_API_KEY": "0123planted4567",
        "https_proxy": "http://me:proxy77planted@proxy:3128",
        "PWD": str(tmp_path),
    }
    said = {}

    def run(*words):
        ended = flatout(*words, env=environment)
        lines = [line for line in ended.stderr.splitlines() if not line.startswith("RuntimeError: ")]  # the script's own
        assert len(ended.stderr.splitlines()) - len(lines) <= 1
        said[f"{len(said)} {words[0]}"] = "\n".join(lines).encode() + (b"" if words[0] == "run" else ended.stdout)
        return ended

    run.said = said
    return run


def no_secret_in(said, folder, script):
    written = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file != script}
    for place, text in {**written, **said}.items():
        for secret in (*PLANTED, *BEGINNINGS, *(base64.b64encode(one.encode()).decode().rstrip("=")[:-1] for one in PLANTED)):
            assert secret.encode() not in text, (place, secret, text[-2000:])
    return written


# Halving the settings of a run that fails starts it three times: one is enough every time.
@pytest.mark.parametrize("more", [[], pytest.param(["--bisect", "--workers", "2"], marks=pytest.mark.thorough)])
def test_no_secret_is_written_or_said_after_a_run(more, at_home, script, tmp_path):
    pytest.importorskip("torch")
    path = script(TRAINS)
    failed = at_home("run", *(more or ["--json"]), path.name, *WORDS)
    assert failed.returncode == 1
    assert b"hunter22planted" in failed.stdout  # the script's own, as plain Python
    if more:
        at_home("run", "--json", path.name, *WORDS)
    at_home("doctor", "--json", "--save", "facts.json", path.name)
    at_home("facts", "--json")
    at_home("tune", "--dry-run", path.name, *WORDS)
    written = no_secret_in(at_home.said, tmp_path, path)
    kept = [text for file, text in written.items() if file.name == "output.txt"]
    assert len(kept) == bool(more)
    assert all(b"RuntimeError: Expected all tensors" in text and str(tmp_path).encode() in text for text in kept)
    assert sum(b'"kind":"devices"' in text for file, text in written.items() if file.name.startswith("journal-")) == (
        3 if more else 1
    )
    assert "facts.json" in {file.name for file in written}


def test_no_secret_is_written_or_said_after_a_search(at_home, script, tmp_path):
    """The script itself gets what was typed, and the search can be gone on with."""
    pytest.importorskip("torch")
    path = script(TRAINS)
    tuned = at_home("tune", "--budget", "6s", "--no-parity", "--json", path.name, *WORDS, "--long")
    assert tuned.returncode == 0
    first = next(tmp_path.glob(".flatout/runs/*/tune.jsonl")).parent
    again = at_home("tune", "--resume", first, "--no-parity", path.name, *WORDS, "--long")
    assert again.returncode == 0, again.stderr
    other = at_home("tune", "--resume", first, path.name, *WORDS[:2], "--long")
    assert "was about" in other.stderr or other.returncode == 2
    written = no_secret_in(at_home.said, tmp_path, path)
    (printed,) = (text for file, text in written.items() if file.name == "trials.log" and file.parent == first)
    assert str(tmp_path).encode() in printed  # what the script says of its folder
