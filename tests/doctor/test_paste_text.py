"""The paste reader: text that was quoted, wrapped, cut, coloured, contradicts itself, or is no text at all."""

from __future__ import annotations

import random
import time

import pytest
from test_paste_samples import COLLECT_ENV, MIB, NEW_TABLE, OLD_TABLE, QUERY, codes, strict

from flatout.base.records import dump
from flatout.doctor.paste.clean import HEAD, TAIL
from flatout.doctor.paste.reader import read
from flatout.machine.machine_facts import Facts

# -- what happens to text on its way ---------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def barred(text: str) -> str:
    return "\n".join(f"| {line}" for line in text.split("\n"))


def coloured(text: str) -> str:
    return "\n".join(f"\x1b[1;31m{line}\x1b[0m" for line in text.split("\n"))


def hard_wrapped(width: int):
    def wrap(text: str) -> str:
        return "\n".join(
            "\n".join(line[i : i + width] for i in range(0, max(len(line), 1), width)) for line in text.split("\n")
        )

    return wrap


WAYS = {
    "quoted": quoted,
    "quoted twice": lambda text: quoted(quoted(text)),
    "barred": barred,
    "coloured": coloured,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "html": lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace(" ", "&nbsp;"),
    "utf-16 read as bytes": lambda text: "".join(character + "\0" for character in text),
    "fenced": lambda text: f"```\n{text}\n```",
    "indented": lambda text: "\n".join(f"    {line}" for line in text.split("\n")),
    "byte order mark": lambda text: "\ufeff" + text,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", [OLD_TABLE, NEW_TABLE, COLLECT_ENV], ids=["old", "new", "collect_env"])
def test_read_alike(text, way):
    assert dump(strict(WAYS[way](text))) == dump(strict(text))


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_hard_wrapped_table(width):
    gpu = strict(hard_wrapped(width)(NEW_TABLE)).driver.gpus[0]
    assert (gpu.name, gpu.pstate, gpu.memory_total_bytes) == ("NVIDIA GeForce RTX 5080", "P8", 16303 * MIB)


@pytest.mark.parametrize("width", [25, 33, 40, 61])
def test_hard_wrapped_message(width):
    text = (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "Failed to initialize NVML: Driver/library version mismatch\n"
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed.\n"
    )
    assert {"no-kernel-image", "arch-not-compatible", "nvml-version-mismatch", "smi-failed"} <= codes(
        strict(hard_wrapped(width)(text))
    )


def test_any_order():
    parts = [COLLECT_ENV, NEW_TABLE, "RuntimeError: CUDA error: no kernel image is available for execution on the device"]
    facts = [strict("\n\n".join(order)) for order in (parts, parts[::-1])]
    assert facts[0].torch.version == facts[1].torch.version == "2.4.1+cu121"
    assert codes(facts[0]) == codes(facts[1])


@pytest.mark.parametrize("text", [OLD_TABLE, QUERY, COLLECT_ENV], ids=["table", "query", "collect_env"])
def test_cut_anywhere(text):
    for end in range(0, len(text), 37):
        facts = strict(text[:end])
        assert facts.source == "pasted"
        assert codes(strict(text[end:])) <= {"healthy-remark"}


def test_contradictions():
    installed = strict("I updated to torch 2.8.0 yesterday and it worked before.\n" + COLLECT_ENV)
    assert installed.torch.version == "2.4.1+cu121"
    two = strict("pip show torch says 2.3.0+cu121 but the script imports torch 2.1.0+cpu")
    assert (two.torch.version, two.torch.cuda, two.torch.others) == ("2.1.0+cpu", "none", ["2.3.0+cu121"])
    assert strict("after downgrading to torch 2.1 it works; with torch 2.5.1+cu124 it fails").torch.version == "2.5.1+cu124"
    assert strict(NEW_TABLE + "\ndriver 470.57 did not work").driver.version == "572.16"


# -- junk and size -----------------------------------------------------------------------------------------------------

EMPTY = dump(Facts(source="pasted"))


@pytest.mark.parametrize("seed", range(5))
def test_binary_is_nothing(seed):
    data = random.Random(seed).randbytes(20_000)
    for encoding in ("latin-1", "utf-8", "utf-16-le", "cp437"):
        assert dump(read(data.decode(encoding, "replace"))) == EMPTY


@pytest.mark.parametrize("text", ["", " ", "\n" * 1000, "\0" * 1000, "|" * 1000, "> " * 1000, "。" * 1000, "\ud800 x"])
def test_emptiness_is_nothing(text):
    assert dump(read(text)) == EMPTY


HUGE = 50_000_000
LINE = "step {0} loss 0.1 gpu memory 10 gb cuda driver kernel container power pcie link worker slow 1 2 3 sm_80 torch 2.1 {0}\n"


@pytest.mark.parametrize(
    "piece", [LINE, "x", " ", "\n", "1 2 3 ", "sm_80 ", "/a/b c-d/", NEW_TABLE], ids=lambda piece: piece[:6]
)
def test_huge(piece):
    text = "".join(piece.format(i) for i in range(20_000)) if piece is LINE else ""
    text = (text or piece) * (HUGE // len(text or piece))
    start = time.process_time()
    read(text)
    assert time.process_time() - start < 10  # of the processor: others may be at work


def test_head_and_tail_are_read():
    text = (
        COLLECT_ENV
        + "step done in 0.1 s, all is well so far\n" * ((HEAD + TAIL) // 20)
        + "NVRM: Xid (PCI:0000:01:00): 79, pid=4"
    )
    facts = read(text)
    assert facts.torch.version == "2.4.1+cu121"
    assert "xid" in codes(facts)
