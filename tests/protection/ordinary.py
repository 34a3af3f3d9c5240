"""Habits of training scripts, each in several places: what they write so that they can go on, and read again.

A trial runs it: `ordinary.py PLACES`, with a folder of every habit's name in each place, planted with what an earlier run left;
OUTPUT_DIR names one of them. Every variant is a process of its own, with torch imported; it prints `reached HABIT PLACE`
after its steps. Each habit is tried in half of the places, or with ORDINARY_EVERYWHERE in all of them.
"""

import csv
import fcntl
import glob
import json
import logging
import multiprocessing
import os
import pathlib
import pickle
import queue
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from logging.handlers import RotatingFileHandler
from multiprocessing import shared_memory

import numpy
import torch
import yaml
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

HABITS = []


def habit(function):
    HABITS.append(function)
    return function


class Training:
    def __init__(self):
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.steps = 0

    def epochs(self, count=2, loader=None):
        for epoch in range(count):
            for batch in loader if loader is not None else [torch.randn(8, 4) for _ in range(2)]:
                self.optimizer.zero_grad()
                loss = self.model(batch.float()).square().mean()
                loss.backward()
                self.optimizer.step()
                self.steps += 1
            yield epoch, loss.item()

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


@habit
def log_file(at, training):
    logger = logging.getLogger(at)
    logger.addHandler(logging.FileHandler(f"{at}/train.log"))
    for epoch, loss in training.epochs():
        logger.warning("epoch %d loss %f", epoch, loss)
    assert "epoch 1" in pathlib.Path(f"{at}/train.log").read_text()


@habit
def csv_of_results(at, training):
    for epoch, loss in training.epochs():
        new = not os.path.exists(f"{at}/results.csv")
        with open(f"{at}/results.csv", "a", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(["epoch", "loss"])
            writer.writerow([epoch, loss])
    with open(f"{at}/results.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 4  # two were there


@habit
def checkpoint_and_best(at, training):
    os.makedirs(f"{at}/checkpoints", exist_ok=True)
    for epoch, _ in training.epochs():
        torch.save(training.state(), f"{at}/checkpoints/epoch{epoch}.pt")
        shutil.copyfile(f"{at}/checkpoints/epoch{epoch}.pt", f"{at}/checkpoints/best.pt")
    training.model.load_state_dict(torch.load(f"{at}/checkpoints/best.pt")["model"])
    assert sorted(os.listdir(f"{at}/checkpoints")) == ["best.pt", "epoch0.pt", "epoch1.pt", "old.pt"]


@habit
def save_then_rename_and_link(at, training):
    for epoch, _ in training.epochs():
        torch.save(training.state(), f"{at}/tmp.pt")
        os.rename(f"{at}/tmp.pt", f"{at}/step{epoch}.pt")
        if os.path.islink(f"{at}/latest.pt") or os.path.exists(f"{at}/latest.pt"):
            os.remove(f"{at}/latest.pt")
        os.symlink(f"step{epoch}.pt", f"{at}/latest.pt")
    assert os.path.realpath(f"{at}/latest.pt").endswith("step1.pt")
    torch.load(f"{at}/latest.pt")


@habit
def empty_the_outputs_first(at, training):
    if os.path.exists(f"{at}/checkpoints"):
        shutil.rmtree(f"{at}/checkpoints")
    os.makedirs(f"{at}/checkpoints")
    for epoch, _ in training.epochs():
        torch.save(training.state(), f"{at}/checkpoints/{epoch}.pt")
    assert len(glob.glob(f"{at}/checkpoints/*.pt")) == 2


@habit
def configuration_beside(at, training):
    settings = json.loads(pathlib.Path(at, "config.json").read_text())
    settings["lr"] = 0.1
    with open(f"{at}/config.json", "w") as file:
        json.dump(settings, file, indent=2)
    for _ in training.epochs():
        pass
    assert json.loads(pathlib.Path(at, "config.json").read_text())["lr"] == 0.1


@habit
def resume_if_there(at, training):
    path = pathlib.Path(at, "last.pt")
    if path.exists():
        torch.load(path)
    for epoch, _ in training.epochs():
        torch.save({**training.state(), "epoch": epoch}, path)
    assert torch.load(path)["epoch"] == 1


@habit
def prepared_data(at, training):
    cached = f"{at}/cache/train.npy"
    if not os.path.isfile(cached):
        os.makedirs(os.path.dirname(cached), exist_ok=True)
        numpy.save(cached, numpy.random.rand(16, 4))
    data = numpy.load(cached, mmap_mode="r")
    loader = DataLoader([torch.tensor(row) for row in data], batch_size=8)
    for _ in training.epochs(loader=loader):
        pass


@habit
def memory_map_of_tokens(at, training):
    tokens = numpy.memmap(f"{at}/tokens.bin", dtype="u2", mode="w+", shape=(64,))
    tokens[:] = numpy.arange(64)
    tokens.flush()
    again = numpy.memmap(f"{at}/tokens.bin", dtype="u2", mode="r")
    assert again[5] == 5
    for _ in training.epochs(loader=[torch.tensor(again[:32].astype("f4").reshape(8, 4))]):
        pass


@habit
def metrics_in_sqlite(at, training):
    database = sqlite3.connect(f"{at}/metrics.db")
    database.execute("create table if not exists losses (epoch, loss)")
    for row in training.epochs():
        database.execute("insert into losses values (?, ?)", row)
        database.commit()
    database.close()
    assert sqlite3.connect(f"{at}/metrics.db").execute("select count(*) from losses").fetchone() == (2,)


@habit
def run_folder_entered(at, training):
    run = pathlib.Path(at, "runs", time.strftime("%Y-%m-%d"), "0")
    run.mkdir(parents=True, exist_ok=True)
    os.chdir(run)
    for epoch, _ in training.epochs():
        torch.save(training.state(), f"{epoch}.pt")
        pathlib.Path("log.txt").write_text("done")
    assert os.getcwd().endswith("/0")
    assert sorted(os.listdir()) == ["0.pt", "1.pt", "log.txt"]


@habit
def pictures(at, training):
    for epoch, _ in training.epochs():
        Image.new("RGB", (8, 8)).save(f"{at}/samples.png")
        Image.new("L", (8, 8)).save(pathlib.Path(at) / f"epoch{epoch}.jpg")
    assert Image.open(f"{at}/samples.png").size == (8, 8)


@habit
def last_three_kept(at, training):
    for epoch, _ in training.epochs(5):
        torch.save(training.state(), f"{at}/kept{epoch}.pt")
        for old in sorted(glob.glob(f"{at}/kept*.pt"), key=os.path.getmtime)[:-3]:
            os.unlink(old)
    assert len(glob.glob(f"{at}/kept*.pt")) == 3


class Cached(Dataset):
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)

    def __len__(self):
        return 16

    def __getitem__(self, index):
        path = self.folder / f"{index}.pkl"
        if not path.exists():
            with path.open("wb") as file:
                pickle.dump([random.random()] * 4, file)
        with path.open("rb") as file:
            return torch.tensor(pickle.load(file))


@habit
def workers_cache_samples(at, training):
    data = Cached(f"{at}/samples")
    for _ in training.epochs(loader=DataLoader(data, batch_size=8, num_workers=2)):
        pass
    assert len(list(data.folder.iterdir())) == 16


@habit
def replaced_at_once(at, training):
    for _, loss in training.epochs():
        descriptor, name = tempfile.mkstemp(dir=at)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"loss": loss}, file)
        os.replace(name, f"{at}/config.json")
    assert "loss" in json.loads(pathlib.Path(at, "config.json").read_text())


@habit
def script_saved(at, training):
    for _ in training.epochs():
        pass
    torch.jit.script(training.model).save(f"{at}/model.ts")
    torch.jit.load(f"{at}/model.ts")


@habit
def outputs_packed(at, training):
    for epoch, _ in training.epochs():
        with zipfile.ZipFile(f"{at}/runs.zip", "a") as archive:
            archive.writestr(f"{epoch}.txt", "done")
    shutil.make_archive(f"{at}/packed", "gztar", f"{at}/checkpoints")
    assert os.path.getsize(f"{at}/packed.tar.gz")


@habit
def one_at_a_time(at, training):
    with open(f"{at}/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        counter = multiprocessing.Value("i", 0)
        for _ in training.epochs():
            with counter.get_lock():
                counter.value += 1
    os.remove(f"{at}/.lock")
    assert counter.value == 2


@habit
def mkdir_by_the_shell(at, training):
    subprocess.run(["mkdir", "-p", f"{at}/by-shell"], check=True)
    for epoch, _ in training.epochs():
        torch.save(training.state(), f"{at}/by-shell/{epoch}.pt")


@habit
def commit_noted(at, training):
    noted = subprocess.run(["git", "rev-parse", "HEAD"], cwd=at, capture_output=True, text=True, check=False).stdout
    with open(f"{at}/version.txt", "w") as file:
        print(noted, torch.__version__, file=file)
    for _ in training.epochs():
        pass


@habit
def output_folder_from_yaml(at, training):
    settings = yaml.safe_load(pathlib.Path(at, "train.yaml").read_text())
    output = pathlib.Path(os.path.expandvars(settings["output_dir"])).expanduser()
    output.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"{at}/train.yaml", output)
    for epoch, _ in training.epochs():
        torch.save(training.state(), output / f"{epoch}.pt")
    with open(output / "train.yaml", "a") as file:
        yaml.safe_dump({"done": True}, file)
    assert yaml.safe_load((output / "train.yaml").read_text())["done"]


@habit
def output_folder_from_the_environment(at, training):
    output = os.path.join(os.environ["OUTPUT_DIR"], os.path.basename(os.path.dirname(at)), time.strftime("%H"))
    os.makedirs(output, exist_ok=True)
    for epoch, loss in training.epochs():
        with open(f"{output}/metrics.jsonl", "a") as file:
            file.write(json.dumps({"epoch": epoch, "loss": loss}) + "\n")
    assert len(pathlib.Path(output, "metrics.jsonl").read_text().splitlines()) == 2


@habit
def what_was_downloaded_is_cached(at, training):
    """As hubs do it: a lock, a part that is renamed, and a link by the name that people know."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "hub", os.path.basename(at))
    os.makedirs(f"{cache}/blobs", exist_ok=True)
    os.makedirs(f"{cache}/snapshots/main", exist_ok=True)
    descriptor = os.open(f"{cache}/lock", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    torch.save(training.model.state_dict(), f"{cache}/blobs/abc.incomplete")
    os.replace(f"{cache}/blobs/abc.incomplete", f"{cache}/blobs/abc")
    if not os.path.lexists(f"{cache}/snapshots/main/weights.pt"):
        os.symlink("../../blobs/abc", f"{cache}/snapshots/main/weights.pt")
    os.close(descriptor)
    training.model.load_state_dict(torch.load(f"{cache}/snapshots/main/weights.pt"))
    for _ in training.epochs():
        pass


@habit
def workers_share_memory(at, training):
    block = shared_memory.SharedMemory(create=True, size=64)
    try:
        strategy = torch.multiprocessing.get_sharing_strategy()
        torch.multiprocessing.set_sharing_strategy("file_system")
        loader = DataLoader(torch.randn(16, 4), batch_size=8, num_workers=2)
        for _ in training.epochs(loader=loader):
            block.buf[0] = training.steps
        torch.multiprocessing.set_sharing_strategy(strategy)
        assert block.buf[0] == 4
    finally:
        block.close()
        block.unlink()


@habit
def archive_unpacked_first(at, training):
    with tarfile.open(f"{at}/data.tar.gz", "w:gz") as archive:
        for number in range(4):
            numpy.save(f"{at}/{number}.npy", numpy.random.rand(4))
            archive.add(f"{at}/{number}.npy", arcname=f"data/{number}.npy")
            os.remove(f"{at}/{number}.npy")
    with tarfile.open(f"{at}/data.tar.gz") as archive:
        archive.extractall(at, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(at)
    data = [torch.from_numpy(numpy.load(path)) for path in sorted(pathlib.Path(at, "data").rglob("*.npy"))]
    for _ in training.epochs(loader=DataLoader(data, batch_size=2, num_workers=1)):
        pass


@habit
def weights_as_safetensors(at, training):
    for _ in training.epochs():
        save_file(training.model.state_dict(), f"{at}/model.safetensors", metadata={"format": "pt"})
    with safe_open(f"{at}/model.safetensors", framework="pt") as opened:
        names = list(opened.keys())
        training.model.load_state_dict({name: opened.get_tensor(name) for name in names})


@habit
def events_by_a_thread(at, training):
    """As TensorBoard's writer does: a queue, and a thread that appends and flushes."""
    os.makedirs(f"{at}/tb", exist_ok=True)
    waiting = queue.Queue()

    def write():
        with open(f"{at}/tb/events.out.{int(time.time())}.{os.getpid()}", "ab") as file:
            while (one := waiting.get()) is not None:
                file.write(one)
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    for epoch, loss in training.epochs():
        waiting.put(f"{epoch} {loss}\n".encode())
    waiting.put(None)
    writer.join()
    assert sum(path.stat().st_size for path in pathlib.Path(at, "tb").glob("events.*"))


@habit
def prepared_by_a_program_of_python(at, training):
    code = "import json, sys; json.dump([[1.0] * 4] * 8, open(sys.argv[1] + '/rows.json', 'w'))"
    subprocess.run([sys.executable, "-c", code, at], check=True)
    rows = json.loads(pathlib.Path(at, "rows.json").read_text())
    for _ in training.epochs(loader=[torch.tensor(rows)]):
        pass


@habit
def logs_that_turn_over(at, training):
    handler = RotatingFileHandler(f"{at}/train.log", maxBytes=50, backupCount=2)
    logger = logging.getLogger(f"turning {at}")
    logger.addHandler(handler)
    for epoch, loss in training.epochs(3):
        logger.warning("epoch %d loss %f and some more words", epoch, loss)
    assert os.path.exists(f"{at}/train.log.1")


@habit
def copied_by_the_shell(at, training):
    """Another program, which finds nothing of what Python wrote: refused, or kept from it, and that is said."""
    with open(f"{at}/config.json", "w") as file:
        json.dump({"lr": 0.1}, file)
    subprocess.run(["cp", f"{at}/config.json", f"{at}/checkpoints/config.json"], check=True)
    for _ in training.epochs():
        pass


def main(places):
    for _ in Training().epochs():  # what a first step imports, imported once
        pass
    for number, at in enumerate(places):
        for other, one in enumerate(HABITS):
            if (number + other) % 2 and not os.environ.get("ORDINARY_EVERYWHERE"):
                continue
            sys.stdout.flush()
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
                continue
            try:
                training = Training()
                one(f"{at}/{one.__name__}", training)
                sys.stdout.write(f"reached {one.__name__} {at}\n" if training.steps >= 2 else "")
            except BaseException as error:  # noqa: BLE001 (told, and looked at by the test)
                sys.stdout.write(f"failed {one.__name__} {at}: {type(error).__name__}: {error}\n")
            sys.stdout.flush()
            os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main([os.path.abspath(os.path.expanduser(place)) for place in sys.argv[1].split(":")])
