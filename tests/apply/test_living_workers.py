"""Workers that live over the turn of the epoch: never another bit than with fresh ones, whatever a dataset does."""

import collections
import functools
import gc
import itertools
import multiprocessing
import os
import random
import tempfile
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
ImageFile = pytest.importorskip("PIL.ImageFile")

from stage import Training, seed, staged
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from _flatout_agent.knobs.loader import worker_limits
from _flatout_agent.knobs.loader.reuse import restart_cost, value_checksum, worker_reuse
from _flatout_agent.knobs.loader.reuse.restart_cost import TurnCosts
from _flatout_agent.knobs.loader.reuse.restart_reasons import Renewal

SIZE, BATCH, EPOCHS = 8, 2, 3
LARGE = 15_000_000  # numbers of four bytes
KEPT, FRESH = "kept", "fresh"
FOLDER = os.getcwd()


@pytest.fixture(autouse=True)
def _room(monkeypatch):
    monkeypatch.setattr(worker_limits, "processors", lambda: 8)
    monkeypatch.setattr(restart_cost, "LEAST_READ", 1 << 30)  # how fast this machine is decides in none of these
    gc.collect()
    yield
    forget()
    gc.collect()


class Plain(Dataset):
    """A number for each index; what subclasses add is the trap."""

    def __init__(self):
        self.x = torch.arange(float(SIZE))

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return self.x[index] + self.more(index)

    def more(self, index):
        return 0.0


def dataset_with(more, **attributes):
    kind = type("Planted", (Plain,), {"more": more})
    made = kind()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


# --- what may live ----------------------------------------------------------------------------------------------------


def draws(self, index):
    return torch.rand(()).item() + random.random() + numpy.random.rand() + torch.randn(()).item() + random.gauss(0, 1)


def seeds_told(self, index):
    info = torch.utils.data.get_worker_info()
    return (info.seed + info.id + torch.initial_seed()) % 65521


def in_shared_memory(self, index):
    return self.epoch.value * 10.0 + float(self.table[0])


# --- what a fresh worker would not know ---------------------------------------------------------------------------------


def counts(self, index):
    self.count = vars(self).get("count", 0) + 1
    return self.count


class ClassCount(Plain):
    count = 0

    def more(self, index):
        ClassCount.count += 1
        return ClassCount.count


GLOBAL = {"count": 0}
LEVEL = 1.0


def counts_globally(self, index):
    GLOBAL["count"] += 1
    return GLOBAL["count"]


def reads_a_global(self, index):
    return LEVEL


@functools.cache
def remembered(index):
    return torch.rand(()).item()


def by_a_cache(self, index):
    return remembered(index)


def default_counts(self, index, seen=[]):  # noqa: B006
    seen.append(index)
    return len(seen)


def closure_counts():
    count = 0

    def more(self, index):
        nonlocal count
        count += 1
        return count

    return more


def function_counts(self, index):
    function_counts.calls = getattr(function_counts, "calls", 0) + 1
    return function_counts.calls


def of_own_torch_generator(self, index):
    return torch.rand((), generator=self.own).item()


def of_own_numpy_generator(self, index):
    return self.own.random()


def of_own_legacy_generator(self, index):
    return self.own.rand()


def of_own_random(self, index):
    return self.own.random()


def next_of(self, index):
    return next(self.own)


def grows(self, index):
    self.own.append(index)
    return len(self.own)


def lazily_opened(self, index):
    if self.own is None:
        self.own = iter(range(100))
    return next(self.own)


def in_place(self, index):
    self.own += 1
    return float(self.own.sum())


def by_slots(self, index):
    self.own.count += 1
    return self.own.count


class Slots:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


def by_environment(self, index):
    return float(os.environ.get("PLANTED", "0"))


def by_default_dtype(self, index):
    return float(torch.tensor(0.1).element_size())


def by_folder(self, index):
    return float(len(os.getcwd()))


def by_attribute(self, index):
    return float(self.epoch)


def by_transform(self, index):
    return float(self.transform(index))


def by_array(self, index):
    return float(self.own[index % len(self.own)])


def by_the_end_of_an_array(self, index):
    return float(self.own[-1 - index])


def starts_a_thread(self, index):
    GLOBAL_THREADS.append(1)
    if len(GLOBAL_THREADS) == 1:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return float(threading.active_count() > 2)


GLOBAL_THREADS = []


def set_global(training, epoch):
    global LEVEL
    LEVEL = 10.0 * epoch


def sets(name, value):
    def between(training, epoch):
        setattr(training.loader.dataset, name, value(epoch))

    return between


def writes(training, epoch):
    training.loader.dataset.own[1] = epoch


def writes_unseen(training, epoch):
    training.loader.dataset.own.numpy()[1] = epoch  # torch does not count this one


def writes_late(training, epoch):
    training.loader.dataset.own[-3] = 10 * epoch


def writes_late_unseen(training, epoch):
    training.loader.dataset.own.numpy()[-3] = 10 * epoch


def writes_shared(training, epoch):
    training.loader.dataset.epoch.value = epoch
    training.loader.dataset.table[0] = epoch


def by_truncated(self, index):
    return float(ImageFile.LOAD_TRUNCATED_IMAGES)


def by_denormals(self, index):
    return float((torch.full((1,), 1e-40) * 1.0).item() != 0.0)


def truncated_are_loaded(training, epoch):
    ImageFile.LOAD_TRUNCATED_IMAGES = epoch % 2 == 1


def denormals_are_flushed(training, epoch):
    torch.set_flush_denormal(epoch % 2 == 1)


def environment(training, epoch):
    os.environ["PLANTED"] = str(epoch)


def default_dtype(training, epoch):
    torch.set_default_dtype(torch.float64 if epoch % 2 else torch.float32)


def other_folder(training, epoch):
    os.chdir("/" if epoch % 2 else "/tmp")


def initialises(worker):
    numpy.random.seed(torch.initial_seed() % 2**32 + worker)


def initialises_the_dataset(worker):
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.own = vars(dataset).get("own", 0) + 1


def collates_with_a_count(samples):
    GLOBAL["count"] += 1
    return torch.tensor(samples) + GLOBAL["count"]


def nothing(training, epoch):
    pass


def mapped_file():
    number, path = tempfile.mkstemp()
    os.close(number)
    mapped = numpy.memmap(path, dtype="float32", mode="w+", shape=(4,))
    os.unlink(path)
    return mapped


PLANTED = {
    # name: (dataset, what happens between two epochs, loader settings, what becomes of the workers)
    "nothing": (Plain, nothing, {}, KEPT),
    "tensor dataset": (lambda: TensorDataset(torch.arange(SIZE)), nothing, {}, KEPT),
    "draws": (lambda: dataset_with(draws), nothing, {}, KEPT),
    "seeds told": (lambda: dataset_with(seeds_told), nothing, {}, KEPT),
    "shared memory": (
        lambda: dataset_with(in_shared_memory, epoch=multiprocessing.Value("i", 0), table=torch.zeros(2).share_memory_()),
        writes_shared,
        {},
        KEPT,
    ),
    "mapped file": (lambda: dataset_with(by_array, own=mapped_file()), writes, {}, KEPT),
    "large array": (lambda: dataset_with(by_the_end_of_an_array, own=numpy.ones(LARGE, "float32")), nothing, {}, KEPT),
    "large tensor": (lambda: dataset_with(by_the_end_of_an_array, own=torch.ones(LARGE)), nothing, {}, KEPT),
    "init that seeds": (lambda: dataset_with(draws), nothing, {"worker_init_fn": initialises}, KEPT),
    "own generator of the loader": (lambda: dataset_with(draws), nothing, {"generator": True}, KEPT),
    "batch sampler": (lambda: dataset_with(draws), nothing, {"batch_sampler": True}, KEPT),
    "not batched": (lambda: dataset_with(draws), nothing, {"batch_size": None, "shuffle": False}, KEPT),
    "distributed": (lambda: dataset_with(draws), "set_epoch", {"distributed": True}, KEPT),
    "counter": (lambda: dataset_with(counts), nothing, {}, FRESH),
    "counter of the class": (ClassCount, nothing, {}, FRESH),
    "counter in a global": (lambda: dataset_with(counts_globally), nothing, {}, FRESH),
    "counter in a default": (lambda: dataset_with(default_counts), nothing, {}, FRESH),
    "counter in a closure": (lambda: dataset_with(closure_counts()), nothing, {}, FRESH),
    "counter on a function": (lambda: dataset_with(function_counts), nothing, {}, FRESH),
    "counter in slots": (lambda: dataset_with(by_slots, own=Slots()), nothing, {}, FRESH),
    "cache": (lambda: dataset_with(by_a_cache), nothing, {}, FRESH),
    "torch generator": (lambda: dataset_with(of_own_torch_generator, own=torch.Generator().manual_seed(3)), nothing, {}, FRESH),
    "numpy generator": (lambda: dataset_with(of_own_numpy_generator, own=numpy.random.default_rng(3)), nothing, {}, FRESH),
    "numpy state": (lambda: dataset_with(of_own_legacy_generator, own=numpy.random.RandomState(3)), nothing, {}, FRESH),
    "random": (lambda: dataset_with(of_own_random, own=random.Random(3)), nothing, {}, FRESH),
    "count": (lambda: dataset_with(next_of, own=itertools.count()), nothing, {}, FRESH),
    "cycle": (lambda: dataset_with(next_of, own=itertools.cycle([1.0, 2.0, 3.0])), nothing, {}, FRESH),
    "list that grows": (lambda: dataset_with(grows, own=[]), nothing, {}, FRESH),
    "deque that turns": (lambda: dataset_with(grows, own=collections.deque(maxlen=3)), nothing, {}, FRESH),
    "opened at need": (lambda: dataset_with(lazily_opened, own=None), nothing, {}, FRESH),
    "array in place": (lambda: dataset_with(in_place, own=numpy.zeros(3)), nothing, {}, FRESH),
    "tensor in place": (lambda: dataset_with(in_place, own=torch.zeros(3)), nothing, {}, FRESH),
    "thread": (lambda: dataset_with(starts_a_thread), nothing, {}, FRESH),
    "global set by the script": (lambda: dataset_with(reads_a_global), set_global, {}, FRESH),
    "epoch set by the script": (lambda: dataset_with(by_attribute, epoch=0), sets("epoch", lambda epoch: epoch), {}, FRESH),
    "transform set by the script": (
        lambda: dataset_with(by_transform, transform=float),
        sets("transform", lambda epoch: functools.partial(pow, epoch)),
        {},
        FRESH,
    ),
    "array written by the script": (lambda: dataset_with(by_array, own=numpy.zeros(3)), writes, {}, FRESH),
    "tensor written by the script": (lambda: dataset_with(by_array, own=torch.zeros(3)), writes_unseen, {}, FRESH),
    "large array written late": (
        lambda: dataset_with(by_the_end_of_an_array, own=numpy.ones(LARGE, "float32")),
        writes_late,
        {},
        FRESH,
    ),
    "large tensor written late": (lambda: dataset_with(by_the_end_of_an_array, own=torch.ones(LARGE)), writes_late, {}, FRESH),
    "large tensor written late by numpy": (
        lambda: dataset_with(by_the_end_of_an_array, own=torch.ones(LARGE)),
        writes_late_unseen,
        {},
        FRESH,
    ),
    "environment": (lambda: dataset_with(by_environment), environment, {}, FRESH),
    "default dtype": (lambda: dataset_with(by_default_dtype), default_dtype, {}, FRESH),
    "flag of a trusted package": (lambda: dataset_with(by_truncated), truncated_are_loaded, {}, FRESH),
    "denormals": (lambda: dataset_with(by_denormals), denormals_are_flushed, {}, FRESH),
    "folder": (lambda: dataset_with(by_folder), other_folder, {}, FRESH),
    "init that counts": (
        lambda: dataset_with(lambda self, index: vars(self).get("own", 0)),
        nothing,
        {"worker_init_fn": initialises_the_dataset},
        FRESH,
    ),
    "collation that counts": (Plain, nothing, {"collate_fn": collates_with_a_count}, FRESH),
}


def forget():
    """Each arm begins as the first."""
    global LEVEL
    os.chdir(FOLDER)
    LEVEL = 1.0
    GLOBAL["count"] = ClassCount.count = 0
    GLOBAL_THREADS.clear()
    remembered.cache_clear()
    vars(function_counts).pop("calls", None)
    default_counts.__defaults__[0].clear()
    os.environ.pop("PLANTED", None)
    torch.set_default_dtype(torch.float32)
    torch.set_flush_denormal(False)
    ImageFile.LOAD_TRUNCATED_IMAGES = False


def training_with(make, settings, workers):
    forget()
    seed(0)
    settings = dict(settings)
    dataset = make()
    if settings.get("generator"):
        settings["generator"] = torch.Generator().manual_seed(5)
    if settings.pop("batch_sampler", None):
        sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 3, drop_last=False)
        settings.update(batch_sampler=sampler, batch_size=1, shuffle=None)
    if settings.pop("distributed", None):
        settings.update(sampler=DistributedSampler(dataset, num_replicas=1, rank=0), shuffle=None)
    return Training(dataset=dataset, **{"batch_size": BATCH, "num_workers": workers, **settings})


def epochs_of(training, between):
    batches = []
    for epoch in range(EPOCHS):
        if between == "set_epoch":
            training.loader.sampler.set_epoch(epoch)
        elif epoch:
            between(training, epoch)
        batches.append([batch[0] if isinstance(batch, list) else batch for batch in training.loader])
    return batches, (torch.rand(1).item(), random.random(), numpy.random.rand())


def fresh_and_living(name, workers=2):
    """The epochs' batches with torch's own fresh workers, with ours, and what became of ours."""
    make, between, settings, _ = PLANTED[name]
    plain = epochs_of(training_with(make, settings, workers), between)
    training = training_with(make, settings, 0)
    with staged(training) as stage:
        assert stage.board.set({"workers": workers})["workers"].status == "applied"
        ours = epochs_of(training, between)
        turns = stage.scene.handover.control(training.loader).turns
        proof = stage.board.proofs()["workers"]
    assert proof.status == "applied", proof
    return plain, ours, turns


def same(first, second):
    (batches, draws), (others, other_draws) = first, second
    return draws == other_draws and all(
        len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(batches, others, strict=True)
    )


@pytest.mark.parametrize("name", PLANTED)
def test_never_another_bit(name):
    plain, ours, turns = fresh_and_living(name, workers=2 if PLANTED[name][3] == KEPT else 1)
    assert same(plain, ours)
    turned = EPOCHS - 1
    assert (turns.kept, turns.fresh) == ((turned, 0) if PLANTED[name][3] == KEPT else (0, turned)), turns.why
    assert turns.known == (turns.why is None or turns.why.code not in ("cannot-be-told", "failed")), turns.why


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name, planted in PLANTED.items() if planted[3] == FRESH])
def test_each_trap_would_catch_workers_that_are_kept_blindly(name, monkeypatch):
    monkeypatch.setattr(worker_reuse.Living, "_why_fresh", lambda *_: None)
    monkeypatch.setattr(worker_reuse.Life, "may_stay", lambda self: True)
    monkeypatch.setattr(worker_reuse.Living, "_ask", lambda *_: None)
    plain, ours, turns = fresh_and_living(name, workers=1)
    assert turns.kept == EPOCHS - 1
    assert not same(plain, ours)


# --- how epochs begin and end -------------------------------------------------------------------------------------------


def living_epochs(loop, dataset, workers=2, **settings):
    """What a loop over a loader saw, with torch's own fresh workers and with ours, and the turns of ours."""

    def seen(number):
        training = training_with(dataset, settings, number)
        return loop(training.loader), training

    plain, _ = seen(workers)
    training = training_with(dataset, settings, 0)
    with staged(training) as stage:
        stage.board.set({"workers": workers})
        turns = stage.scene.handover.control(training.loader).turns
        ours = loop(training.loader)
    return plain, ours, turns


def drawing():
    return dataset_with(draws)


def test_a_loader_made_anew_each_epoch():
    def loop(loader):
        dataset, workers = loader.dataset, loader.num_workers
        batches = [batch.tolist() for batch in loader]
        for _ in range(EPOCHS - 1):
            batches += [batch.tolist() for batch in DataLoader(dataset, BATCH, shuffle=True, num_workers=workers)]
        return batches

    plain, ours, turns = living_epochs(loop, drawing)
    assert plain == ours
    assert (turns.kept, turns.fresh) == (EPOCHS - 1, 0), turns.why


def test_another_dataset_is_not_followed():
    def loop(loader):
        workers = loader.num_workers
        batches = [batch.tolist() for batch in loader]
        return batches, [batch.tolist() for batch in DataLoader(Plain(), BATCH, shuffle=True, num_workers=workers)]

    plain, ours, turns = living_epochs(loop, Plain)
    assert plain == ours
    assert (turns.kept, turns.fresh) == (0, 0)


def test_left_in_mid_epoch():
    def loop(loader):
        batches = []
        for _ in range(EPOCHS):
            for batch in loader:
                batches.append(batch.tolist())
                if len(batches) % 3 == 0:
                    break
            gc.collect()
        return batches, torch.rand(1).item()

    plain, ours, turns = living_epochs(loop, drawing)
    assert plain == ours
    assert (turns.kept, turns.fresh) == (0, EPOCHS - 1)
    assert turns.why == Renewal("epoch-left")


@pytest.mark.parametrize("write", [writes_late, writes_late_unseen])
def test_written_by_the_script_in_mid_epoch(write):
    """Fresh workers know it from the next epoch on, and then nothing else."""

    def loop(loader):
        batches = []
        for epoch in range(EPOCHS + 1):
            for number, batch in enumerate(loader):
                batches.append(batch.tolist())
                if number == 1 and epoch < 2:
                    write(SimpleNamespace(loader=loader), epoch + 1)
        return batches

    def large():
        return dataset_with(by_the_end_of_an_array, own=torch.ones(LARGE))

    plain, ours, turns = living_epochs(loop, large)
    assert plain == ours
    assert (turns.kept, turns.fresh, turns.why) == (1, 2, Renewal("script-changed-it"))


def test_two_at_once(monkeypatch):
    """Against fresh workers of ours: torch's own would have a shuffled order drawn sooner than the script has it."""

    def loop(loader):
        return [[(one.tolist(), other.tolist()) for one, other in zip(loader, loader, strict=True)] for _ in range(EPOCHS)]

    _, ours, turns = living_epochs(loop, drawing, workers=1)
    assert turns.kept == 2 * (EPOCHS - 1)  # both of the last epoch's
    monkeypatch.setattr(worker_reuse.Living, "keep", lambda *_: False)
    _, fresh, turns = living_epochs(loop, drawing, workers=1)
    assert fresh == ours
    assert turns.kept == 0


def test_from_a_thread():
    def loop(loader):
        found = []
        for _ in range(EPOCHS):
            thread = threading.Thread(target=lambda: found.append([batch.tolist() for batch in loader]))
            thread.start()
            thread.join()
        return found

    plain, ours, turns = living_epochs(loop, drawing)
    assert plain == ours
    assert turns.kept == EPOCHS - 1


def test_a_worker_that_was_killed_between_two_epochs():
    def loop(loader):
        batches = []
        for _ in range(EPOCHS):
            batches.append([batch.tolist() for batch in loader])
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
        return batches

    plain, ours, turns = living_epochs(loop, drawing)
    assert plain == ours
    assert (turns.kept, turns.fresh, turns.why) == (0, EPOCHS - 1, Renewal("worker-ended"))


def raises_later(self, index):
    if self.broken.value and index == 3:
        raise KeyError("three")
    return 0.0


def test_a_dataset_that_raises_in_a_later_epoch():
    def loop(loader):
        batches = [[batch.tolist() for batch in loader]]
        loader.dataset.broken.value = 1
        batches += [batch.tolist() for _, batch in zip(range(1), loader, strict=False)]
        with pytest.raises(KeyError, match="three"):
            list(loader)
        return batches

    plain, ours, turns = living_epochs(
        loop, lambda: dataset_with(raises_later, broken=multiprocessing.Value("i", 0)), workers=1, shuffle=False
    )
    assert plain == ours
    assert turns.kept == 1


def test_workers_whose_memory_grows_are_renewed(monkeypatch):
    monkeypatch.setattr(worker_reuse, "MEMORY_GROWS", 0.0)
    monkeypatch.setattr(worker_reuse, "MEMORY_MORE", -1)
    plain, ours, turns = fresh_and_living("draws", workers=1)
    assert same(plain, ours)
    assert (turns.kept, turns.fresh) == (0, EPOCHS - 1)
    assert turns.why.code == "grown"


def test_how_much_memory_may_grow():
    life = worker_reuse.Life(
        DataLoader([1]), worker_reuse.Settings(1, False, 2, False), worker_reuse.FetchState(b""), TurnCosts()
    )
    assert not worker_reuse._grown(life, [100 << 20, 50 << 20])
    assert not worker_reuse._grown(life, [149 << 20, 110 << 20])  # half as much again, or less than 64 MiB more
    assert worker_reuse._grown(life, [170 << 20, 50 << 20]) == Renewal("grown", "100 → 170 MiB")


def test_workers_that_are_not_forked_are_started_anew(monkeypatch):
    monkeypatch.setattr(worker_reuse, "start_method", lambda loader: "spawn")
    plain, ours, turns = fresh_and_living("draws", workers=1)
    assert same(plain, ours)
    assert (turns.kept, turns.fresh, turns.why) == (0, EPOCHS - 1, Renewal("not-forked"))


@pytest.mark.parametrize("first", [8, 1 << 30])
def test_what_takes_longer_to_read_than_workers_to_start(first, monkeypatch):
    """It is known from the first look on, or once a start was timed."""
    monkeypatch.setattr(restart_cost, "LEAST_READ", 8)
    monkeypatch.setattr(restart_cost, "FIRST_READ", first)
    monkeypatch.setattr(restart_cost, "READ_A_SECOND", 0)
    plain, ours, turns = fresh_and_living("nothing", workers=1)
    assert same(plain, ours)
    assert (turns.kept, turns.fresh, turns.why.code) == (0, EPOCHS - 1, "too-much-to-read")
    assert not turns.known


def test_what_is_read_at_most(monkeypatch):
    monkeypatch.setattr(restart_cost, "LEAST_READ", 32 << 20)
    costs = TurnCosts()
    assert costs.most_bytes(4) == restart_cost.FIRST_READ
    costs.started(4, 0.4)
    costs.started(2, 0.4)  # something was in the way
    assert costs.most_bytes(4) == pytest.approx(0.4 * restart_cost.READ_A_SECOND, abs=8)
    costs.looked(1 << 20, 1.0)  # too little to tell
    costs.looked(100 << 20, 0.05)
    costs.looked(100 << 20, 0.5)
    assert costs.most_bytes(4) == pytest.approx(0.4 * (2000 << 20), abs=8)
    assert not costs.too_much(4)
    assert costs.most_bytes(1) == pytest.approx(0.1 * (2000 << 20), abs=8)
    assert costs.most_bytes(15) == pytest.approx(1.5 * (2000 << 20) / 2, abs=8)  # sixteen on eight processors
    costs.looked(900 << 20, 0.5)
    assert costs.too_much(4)
    costs = TurnCosts()
    costs.started(1, 1e-6)
    assert costs.most_bytes(1) == 32 << 20


def test_every_byte_counts_wherever_it_lies(monkeypatch):
    monkeypatch.setattr(value_checksum, "AT_ONCE", 16)
    memory = torch.zeros(50, dtype=torch.uint8)

    def told():
        return tuple(value_checksum.checksums_of(memory.data_ptr() + 1, 49))

    assert len(told()) == 4
    seen = {told()}
    for index in range(1, 50):
        memory[index] = 1
        seen.add(told())
        memory[index] = 0
    assert len(seen) == 50
    memory[0] = 1
    assert told() in seen


@pytest.mark.parametrize("changes", [False, True])
def test_with_the_knob_what_is_opened_at_need_stays_open(changes):
    """What the script has changed meanwhile is known to fresh workers alone."""
    kept = 0 if changes else EPOCHS - 1
    training = training_with(lambda: dataset_with(lazily_opened, own=None, epoch=0), {}, 0)
    with staged(training) as stage:
        stage.board.set({"workers": 1, "persistent_workers": "on"})
        turns = stage.scene.handover.control(training.loader).turns
        for epoch in range(EPOCHS):
            training.loader.dataset.epoch = epoch * changes
            list(training.loader)
    assert (turns.kept, turns.fresh) == (kept, EPOCHS - 1 - kept), turns.why


def test_beside_tf32():
    """As the knob sets it: newer torch then answers no question by the older name."""
    matmul = torch.backends.cuda.matmul
    name = "fp32_precision" if hasattr(matmul, "fp32_precision") else "allow_tf32"
    before = getattr(matmul, name)
    setattr(matmul, name, "tf32" if name == "fp32_precision" else True)
    try:
        plain, ours, turns = fresh_and_living("draws", workers=1)
    finally:
        setattr(matmul, name, before)
    assert same(plain, ours)
    assert (turns.kept, turns.fresh) == (EPOCHS - 1, 0), turns.why


def test_nothing_is_left_when_the_knob_is_off():
    training = training_with(drawing, {}, 0)
    others = set(multiprocessing.active_children())  # that tests before this one have left
    with staged(training) as stage:
        stage.board.set({"workers": 2})
        list(training.loader)
        assert len(set(multiprocessing.active_children()) - others) == 2
        stage.board.clear()
        assert not set(multiprocessing.active_children()) - others


def test_the_dataset_may_go():
    training = training_with(drawing, {}, 0)
    with staged(training) as stage:
        stage.board.set({"workers": 1})
        list(training.loader)
        held = weakref.ref(training.loader.dataset)
        training.loader = stage.training.loader = None
        ends = time.monotonic() + 10.0
        while held() is not None and time.monotonic() < ends:  # a worker that is just ending holds it for a moment
            gc.collect()
            time.sleep(0.05)
        assert held() is None, gc.get_referrers(held())


# --- loaders that are evaluated from ------------------------------------------------------------------------------------


def trained_and_validated(dataset, knobs, own=0, **settings):
    training = training_with(Plain, {"shuffle": True}, 0)
    evaluation = DataLoader(dataset(), batch_size=BATCH, num_workers=own, **settings)
    seen = []
    with staged(training) as stage:
        stage.board.set(knobs)
        for _ in range(EPOCHS + 1):
            for batch in training.loader:
                seen.append(batch.tolist())
                stage.scene.steps_done += 1
            with torch.no_grad():
                seen.append([batch.tolist() for batch in evaluation])
        proof = stage.board.proofs().get("workers")
        control = stage.scene.handover.known(evaluation)
    return (seen, torch.rand(1).item(), random.random(), numpy.random.rand()), proof, control


@pytest.mark.parametrize("own", [0, 2])
def test_evaluation_gets_workers_that_live(own):
    plain, _, _ = trained_and_validated(Plain, {}, own)
    ours, proof, control = trained_and_validated(Plain, {"workers": 2}, own)
    assert plain == ours
    assert control.turns.kept == EPOCHS - 1
    assert proof.details["evaluation_loaders"] == 1
    assert proof.details["evaluation_workers"] == (own or 1)


@pytest.mark.parametrize("settings", [{"persistent_workers": True}, {"shuffle": True}, {}])
def test_evaluation_keeps_the_number_of_its_workers(settings):
    """With another number the same seeds would draw other numbers for a sample."""
    plain, _, _ = trained_and_validated(drawing, {}, 1, **settings)
    ours, _, control = trained_and_validated(drawing, {"workers": 4}, 1, **settings)
    assert plain == ours
    assert control is None or control.last.workers == 1


def test_evaluation_with_draws():
    """In this process its draws are the script's; in its own workers they are those of fresh ones."""
    plain, _, _ = trained_and_validated(drawing, {})
    ours, proof, control = trained_and_validated(drawing, {"workers": 2})
    assert plain == ours
    assert control is None
    assert "evaluation_workers" not in proof.details
    plain, _, _ = trained_and_validated(drawing, {}, 1)
    ours, _, control = trained_and_validated(drawing, {"workers": 2}, 1)
    assert plain == ours
    assert control.turns.kept == EPOCHS - 1
