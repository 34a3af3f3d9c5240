"""Keys and passwords: found by their names, their places and their looks; found nowhere in what is written."""

import pytest

from flatout.base.secrets import hide, scrubbed, secrets_in

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


def test_folders_are_no_secrets(tmp_path):
    """The shell's PWD is the working folder: hidden, no path that a trial met could be read."""
    environ = {"PWD": str(tmp_path), "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "not there" / "key.json")}
    assert secrets_in(["train.py", "--credentials", str(tmp_path)], environ) == []
    assert hide(["--credentials", str(tmp_path)]) == ["--credentials", str(tmp_path)]
    assert secrets_in([], {"AWS_SECRET_ACCESS_KEY": "/bPxR/fiCYEXAMPLEKEY"}) == ["/bPxR/fiCYEXAMPLEKEY"]


TRAINS = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset
print(os.getcwd(), sys.argv, flush=True)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000000 if "--long" in sys.argv else 3):
    for (x,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
sys.exit(f"bad password {sys.argv[2]}")
"""


def test_no_secret_is_written_or_said(flatout, script, tmp_path):
    """After run, tune and doctor; the script itself gets what was typed, and a search can be gone on with."""
    pytest.importorskip("torch")
    path = script(TRAINS)
    words = ["--password", "hunter22planted", "--data", "s3://me:sesame7planted@bucket", WANDB]
    environment = {"WANDB_API_KEY": "0123planted4567", "FLATOUT_LANG": "en", "PWD": str(tmp_path)}
    ran = flatout("run", path.name, *words, env=environment)
    assert b"hunter22planted" in ran.stdout  # the script's own, as plain Python
    tuned = flatout("tune", "--budget", "12s", "--no-parity", "--json", path.name, *words, "--long", env=environment)
    assert tuned.returncode == 0
    first = next(tmp_path.glob(".flatout/runs/*/tune.jsonl")).parent
    again = flatout("tune", "--resume", first, "--no-parity", path.name, *words, "--long", env=environment)
    assert again.returncode == 0, again.stderr
    other = flatout("tune", "--resume", first, path.name, *words[:2], "--long", env=environment)
    assert "was about" in other.stderr or other.returncode == 2
    told = flatout("doctor", "--json", path.name, env=environment)
    written = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file != path}
    (printed,) = (text for file, text in written.items() if file.name == "trials.log" and file.parent == first)
    assert str(tmp_path).encode() in printed  # what the script says of its folder
    said = {"run": ran.stderr.rpartition("bad password")[0].encode(), "tune": tuned.stderr.encode() + tuned.stdout}
    said |= {"again": again.stderr.encode(), "other": other.stderr.encode(), "doctor": told.stdout}
    for place, text in {**written, **said}.items():
        for secret in (b"hunter22planted", b"sesame7planted", WANDB.encode(), b"0123planted4567"):
            assert secret not in text, (place, secret)
