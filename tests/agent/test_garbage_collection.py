"""What Python's garbage collector takes is told in the journal, and names itself as a cause."""

import json

import pytest

from flatout.watch.story import Story

SCRIPT = """
import gc, time
import torch

weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
kept = [[number] for number in range(400_000)]
for step in range(40):
    (weight * 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step > 5:
        gc.collect()
assert len(gc.callbacks) == 1
gc.collect()
"""


@pytest.fixture
def ended(flatout, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return flatout("run", "-q", "train.py")


def test_it_is_told(ended):
    assert (ended.returncode, ended.stderr) == (0, "")
    (journal,) = ended.run_folder.glob("journal-*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    told = [line["gc"] for line in lines if line["kind"] == "window"]
    assert told == sorted(told)
    assert 34 * 1e6 < told[-1] < ended.summary["wall_s"] * 1e9  # 400,000 lists take a millisecond at the least
    story = Story(0.0)
    spans = story.read(lines, 0.0)
    assert sum(span.gc_s for span in spans) == pytest.approx(told[-1] * 1e-9)
