"""Made-up data in the formats that public training scripts read. Needs NumPy and Pillow; the same seed gives the same files."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

SEED = 20


def mnist(folder: Path) -> None:
    """70,000 digits of 28 x 28 in the IDX files of torchvision's MNIST, with a bright square where the label says."""
    random = np.random.default_rng(SEED)
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = random.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for digit in range(10):
            row, column = divmod(digit, 4)
            images[labels == digit, 7 * row : 7 * row + 7, 7 * column : 7 * column + 7] += 190
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def cifar10(folder: Path) -> None:
    """Five batches of 10,000 training images and one of test images, pickled as the original's are."""
    random = np.random.default_rng(SEED)
    place = folder / "cifar-10-batches-py"
    place.mkdir(exist_ok=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = random.integers(0, 10, 10_000)
        data = random.integers(0, 128, (10_000, 3072), dtype=np.uint8) + (labels * 12).astype(np.uint8)[:, None]
        (place / name).write_bytes(pickle.dumps({"data": data, "labels": labels.tolist()}))
    names = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))


def masks(folder: Path, count: int = 480) -> None:
    """Photographs of 640 x 480 with a mask of the ellipse on each, for a segmentation."""
    random = np.random.default_rng(SEED)
    rows, columns = np.mgrid[0:480, 0:640]
    for name in ("imgs", "masks"):
        (folder / name).mkdir(exist_ok=True)
    for number in range(count):
        row, column, size = random.integers(120, 360), random.integers(160, 480), random.integers(40, 110)
        inside = ((rows - row) / size) ** 2 + ((columns - column) / (1.4 * size)) ** 2 < 1
        image = _blurred_noise(random, 480, 640)
        image[inside] = 255 - image[inside] // 2
        Image.fromarray(image).save(folder / "imgs" / f"{number:04}.jpg", quality=88)
        Image.fromarray(inside.astype(np.uint8)).save(folder / "masks" / f"{number:04}_mask.gif")


def photos(folder: Path, count: int = 200) -> None:
    """Photographs of 481 x 321 in the folders `train` and `test`."""
    random = np.random.default_rng(SEED)
    for name, share in (("train", count), ("test", count // 2)):
        (folder / name).mkdir(exist_ok=True)
        for number in range(share):
            Image.fromarray(_blurred_noise(random, 321, 481)).save(folder / name / f"{number:04}.jpg", quality=90)


def _blurred_noise(random: np.random.Generator, height: int, width: int) -> np.ndarray:
    coarse = random.integers(0, 255, (height // 16, width // 16, 3), dtype=np.uint8)
    return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def text(file: Path) -> None:
    file.write_text("O God, O God!\n" + _prose(1_000_000), encoding="ascii")  # what minGPT's chargpt goes on from


def characters(folder: Path) -> None:
    """A text of one million characters as nanoGPT keeps it: train.bin, val.bin and meta.pkl."""
    prose = _prose(1_115_394)
    letters = sorted(set(prose))
    numbers = {letter: number for number, letter in enumerate(letters)}
    encoded = np.array([numbers[letter] for letter in prose], dtype=np.uint16)
    cut = int(0.9 * len(encoded))
    encoded[:cut].tofile(folder / "train.bin")
    encoded[cut:].tofile(folder / "val.bin")
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def words(folder: Path) -> None:
    for name, length in (("train", 1_200_000), ("valid", 120_000), ("test", 120_000)):
        (folder / f"{name}.txt").write_text(_prose(length), encoding="ascii")


def tokens(folder: Path) -> None:
    """Tokens of GPT-2's vocabulary in llm.c's file format."""
    random = np.random.default_rng(SEED)
    count = 4_000_000
    head = np.zeros(256, dtype=np.int32)
    head[:3] = 20240520, 1, count
    steps = np.cumsum(random.integers(0, 40, count)) % 50_000
    (folder / "made_up.bin").write_bytes(head.tobytes() + steps.astype(np.uint16).tobytes())


def _prose(length: int) -> str:
    """Sentences of a made-up language of 8,000 words, the frequent ones short."""
    random = np.random.default_rng(SEED)
    letters = np.array(list("etaoinshrdlcumwfgypbvkjxqz"))
    vocabulary = ["".join(letters[random.zipf(1.4, 2 + number // 1500) % 26]) for number in range(8000)]
    chosen = random.zipf(1.3, length // 4) % 8000
    text = " ".join(vocabulary[number] + (".\n" if place % 12 == 11 else "") for place, number in enumerate(chosen))
    return (text * 2)[:length]


MAKERS: dict[str, Callable[[Path], None]] = {
    "mnist": mnist,
    "cifar10": cifar10,
    "masks": masks,
    "photos": photos,
    "text": text,
    "characters": characters,
    "words": words,
    "tokens": tokens,
}


def make(kind: str, place: Path) -> None:
    """Once: what is there is left as it is."""
    if place.suffix:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            MAKERS[kind](place)
        return
    place.mkdir(parents=True, exist_ok=True)
    done = place / f".made-up-{kind}"
    if not done.exists():
        MAKERS[kind](place)
        done.touch()
