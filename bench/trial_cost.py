"""What holding a trial costs: its start, and what it does per second inside against outside, for every kind of protection.

    python bench/trial_cost.py [--folder FOLDER] [--starts 20] [--rounds 30] [--only small,large,image,steps,loader]

`none` is a trial that nothing holds (`--no-sandbox`); it is there twice, and the second says how much chance there is. The
kinds take turns, in another order each round, so that whatever else the machine does meets all of them. Ratios are those of one
round's pairs: their median, and the middle half of them. Where others are at work as well, the processor's time says more than
the wall's: both are told. Written for Linux; the files that are read lie in FOLDER (default: the working folder), and are
removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from flatout.launch.landlock import Landlock
from flatout.launch.overlay import Overlay
from flatout.launch.protection import Protection, Unprotected
from flatout.launch.python_guard import Guard
from flatout.launch.scratch import Scratch
from flatout.launch.trial_process import TrialChild

TASKS = {
    "open and read 4 KiB": "small",
    "open and read 100 KiB": "large",
    "open and decode a JPEG of 500 x 375": "image",
    "training steps": "steps",
    "samples of a loader with two workers": "loader",
}
IMAGES = 32
COUNT, SMALL, LARGE = 512, 4 << 10, 100 << 10
CHUNK_S, LONGEST_S = 0.4, 60.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path.cwd())
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(TASKS.values()))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trial-cost-", dir=asked.folder) as made, contextlib.ExitStack() as stack:
        folder = Path(made).resolve()
        for number in range(COUNT):
            (folder / f"{number}.small").write_bytes(os.urandom(SMALL))
            (folder / f"{number}.large").write_bytes(os.urandom(LARGE))
        for number in range(IMAGES):
            picture = Image.frombytes("RGB", (125, 94), os.urandom(125 * 94 * 3)).resize((500, 375))
            picture.save(folder / f"{number}.jpeg", quality=90)
        helds = [held for held in (stack.enter_context(one) for one in kinds(folder)) if held.ready]
        places = [stack.enter_context(scratch_of(held)) for held in helds]
        show_starts(helds, places, asked.starts)
        both = zip(helds, places, strict=True)
        insides = [stack.enter_context(Inside(held, place, folder)) for held, place in both]
        for name, task in TASKS.items():
            if task in asked.only:
                show_rates(name, task, insides, asked.rounds)


def kinds(folder: Path) -> list[Protection]:
    line, folders = [sys.executable], [folder]
    again = Unprotected()
    again.kind = "none too"
    return [
        Unprotected(),
        again,
        Overlay(line, folders, os.environ, False),
        Landlock(folders, os.environ),
        Guard(folders, os.environ),
    ]


def turns(kinds: list[Protection] | list[Inside], rounds: int) -> Iterator[list[int]]:
    order = list(range(len(kinds)))
    for number in range(rounds):
        random.Random(number).shuffle(order)
        yield order


def show_starts(helds: list[Protection], places: list[Path], rounds: int) -> None:
    """From the moment when the search wants a child to the end of a Python that does nothing, our agent in it."""
    took: list[list[float]] = [[] for _ in helds]
    worked: list[list[float]] = [[] for _ in helds]
    for number, order in enumerate(turns(helds, rounds)):
        for index in order:
            held = helds[index]
            began, before = time.perf_counter(), of_children()
            wrapped = held.wrap([sys.executable, "-c", "pass"])
            child = TrialChild(wrapped, environ_of(held), places[index] / f"start-{number}", **held.job)
            child.process.wait(LONGEST_S)
            took[index].append(time.perf_counter() - began)
            worked[index].append(of_children() - before)
            assert child.process.returncode == 0, child.said()
            child.kill()
    print(f"start of a trial, {rounds} of each")
    for what, times in (("wall", took), ("processor", worked)):
        for held, own in zip(helds, times, strict=True):
            more = [one - other for one, other in zip(own, times[0], strict=True)]
            best = min(own) - min(times[0])
            print(
                f"  {what:9}  {held.kind:9} {middle(own, '{:.3f} s')}   more: {middle(more, '{:+.3f} s')}   best {best:+.3f} s"
            )


def of_children() -> float:
    """Seconds of the processor, of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show_rates(name: str, task: str, insides: list[Inside], rounds: int) -> None:
    rates: list[list[tuple[float, float]]] = [[] for _ in insides]
    for inside in insides:
        inside.rate(task)  # what is done once is done
    for order in turns(insides, rounds):
        for index in order:
            rates[index].append(insides[index].rate(task))
    print(f"{name}, {rounds} rounds of {CHUNK_S} s")
    for index, what in enumerate(("wall", "processor")[: 1 if task == "loader" else 2]):  # workers are not in the second
        plain = [pair[index] for pair in rates[0]]
        for inside, pairs in zip(insides, rates, strict=True):
            found = [pair[index] for pair in pairs]
            ratios = [one / other for one, other in zip(found, plain, strict=True)]
            told = f"{middle(found, '{:,.0f}/s')}   of none: {middle(ratios, '{:.3f}')}   best {max(found) / max(plain):.3f}"
            print(f"  {what:9}  {inside.kind:9} {told}")


def middle(values: list[float], form: str) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"{form.format(median)} ({form.format(low)} to {form.format(high)})"


@contextlib.contextmanager
def scratch_of(held: Protection) -> Iterator[Path]:
    scratch = Scratch(held.shared_place)
    held.share(scratch.path)
    try:
        yield scratch.path
    finally:
        scratch.remove()


def environ_of(held: Protection) -> dict[str, str]:
    return {**os.environ, **held.environ, "OMP_NUM_THREADS": "1"}


class Inside:
    """A trial that does what it is told by files, a chunk at a time."""

    def __init__(self, held: Protection, place: Path, folder: Path) -> None:
        self.kind = held.kind
        self._held, self._place, self._folder = held, place, folder
        self._asked = 0

    def __enter__(self) -> Inside:
        line = [sys.executable, str(Path(__file__).resolve()), "--inside", str(self._place), str(self._folder)]
        self._child = TrialChild(self._held.wrap(line), environ_of(self._held), self._place / "inside", **self._held.job)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()

    def rate(self, task: str) -> tuple[float, float]:
        """Per second of the wall's clock, and of the processor."""
        self._asked += 1
        question, answer = self._place / f"asked-{self._asked}", self._place / f"told-{self._asked}"
        (self._place / "new").write_text(task)
        (self._place / "new").rename(question)
        end = time.monotonic() + LONGEST_S
        while not answer.exists():
            assert self._child.process.poll() is None, self._child.said()
            assert time.monotonic() < end, f"{self.kind}: {task} takes too long"
            time.sleep(0.005)
        wall, processor = answer.read_text().split()
        return float(wall), float(processor)


def inside(place: str, folder: str) -> None:
    read = {kind: reads(folder, kind) for kind in ("small", "large")}
    tasks = {**read, "image": images(folder), "steps": steps(), "loader": batches(folder)}
    asked = 0
    while True:
        asked += 1
        while not os.path.exists(f"{place}/asked-{asked}"):
            time.sleep(0.005)
        with open(f"{place}/asked-{asked}", encoding="ascii") as file:
            task = tasks[file.read()]
        done, began, before = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < CHUNK_S:
            done += next(task)
        rates = done / (time.perf_counter() - began), done / (time.process_time() - before)
        with open(f"{place}/telling", "w", encoding="ascii") as file:
            file.write(f"{rates[0]} {rates[1]}")
        os.rename(f"{place}/telling", f"{place}/told-{asked}")


def reads(folder: str, kind: str) -> Iterator[int]:
    while True:
        for number in range(COUNT):
            with open(f"{folder}/{number}.{kind}", "rb") as file:
                file.read()
            yield 1


def images(folder: str) -> Iterator[int]:
    while True:
        for number in range(IMAGES):
            with Image.open(f"{folder}/{number}.jpeg") as picture:
                picture.convert("RGB")
            yield 1


def steps() -> Iterator[int]:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.Adam(net.parameters())
    while True:
        optimizer.zero_grad()
        net(torch.ones(64, 64)).square().mean().backward()
        optimizer.step()
        yield 1


def batches(folder: str) -> Iterator[int]:
    import torch

    class Files(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return COUNT * 10_000

        def __getitem__(self, index: int) -> torch.Tensor:
            with open(f"{folder}/{index % COUNT}.large", "rb") as file:
                return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).float().mean()

    for batch in torch.utils.data.DataLoader(Files(), batch_size=32, num_workers=2):
        yield len(batch)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:])
    else:
        main()
