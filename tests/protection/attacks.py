"""Ways in which a training script may spoil what is not its own. A trial runs it: `attacks.py PLACES WHO …`.

PLACES: folders, as one would write them in a script, between colons; in each there is a folder of every way's name, planted by
`planted_home.plant`. WHO: `python` for what
Python itself calls, `library` for code in C, `program` for other programs. Each way is tried in half of the places, or with
ATTACKS_EVERYWHERE in all of them; whether it works or is refused is all the same here.
"""

import contextlib
import csv
import ctypes
import fcntl
import gzip
import io
import json
import logging
import mmap
import multiprocessing
import os
import pathlib
import pickle
import shelve
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile

WAYS = {"python": [], "library": [], "program": []}
ABOUT = set()  # ways that change rights, owner, times or attributes alone


def way(who, about=False):
    def keep(function):
        WAYS[who].append(function)
        if about:
            ABOUT.add(function.__name__)
        return function

    return keep


# -- Python's own calls ------------------------------------------------------------------------------------------------


@way("python")
def open_w(at):
    with open(f"{at}/kept.txt", "w") as file:
        file.write("spoilt")


@way("python")
def open_a(at):
    with open(f"{at}/log.csv", "a") as file:
        file.write("spoilt")


@way("python")
def open_update(at):
    with open(f"{at}/kept.bin", "r+b") as file:
        file.write(b"spoilt")


@way("python")
def open_x(at):
    with open(f"{at}/new.txt", "x") as file:
        file.write("new")


@way("python")
def open_bytes_name(at):
    with open(os.fsencode(f"{at}/kept.txt"), "wb") as file:
        file.write(b"spoilt")


@way("python")
def open_with_opener(at):
    with open(f"{at}/kept.txt", "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("spoilt")


@way("python")
def open_through_link(at):
    with open(f"{at}/link", "w") as file:
        file.write("spoilt")


@way("python")
def open_through_folder_link(at):
    with open(f"{at}/way/inner/deep.bin", "w") as file:
        file.write("spoilt")


@way("python")
def open_dots(at):
    with open(f"{at}/full/inner/../../kept.txt", "w") as file:
        file.write("spoilt")


@way("python")
def open_descriptor_again(at):
    descriptor = os.open(f"{at}/kept.txt", os.O_RDONLY)
    with open(f"/proc/self/fd/{descriptor}", "w") as file:
        file.write("spoilt")


@way("python")
def os_open_truncate(at):
    os.write(os.open(f"{at}/kept.bin", os.O_WRONLY | os.O_TRUNC), b"spoilt")


@way("python")
def os_open_read_truncate(at):
    os.close(os.open(f"{at}/kept.bin", os.O_RDONLY | os.O_TRUNC))


@way("python")
def os_open_create(at):
    os.close(os.open(f"{at}/made", os.O_CREAT | os.O_RDONLY, 0o644))


@way("python")
def os_open_in_folder(at):
    folder = os.open(f"{at}/full", os.O_RDONLY)
    os.write(os.open("inner/deep.bin", os.O_WRONLY | os.O_APPEND, dir_fd=folder), b"spoilt")


@way("python")
def posix_open(at):
    import posix

    posix.write(posix.open(f"{at}/kept.bin", os.O_WRONLY), b"spoilt")


@way("python")
def posix_unlink(at):
    import posix

    posix.unlink(f"{at}/kept.bin")


@way("python")
def file_io(at):
    with io.FileIO(f"{at}/kept.bin", "w") as file:
        file.write(b"spoilt")


@way("python")
def memory_map(at):
    with open(f"{at}/kept.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:6] = b"spoilt"


@way("python")
def os_truncate(at):
    os.truncate(f"{at}/kept.bin", 3)


@way("python")
def os_ftruncate(at):
    os.ftruncate(os.open(f"{at}/kept.bin", os.O_RDWR), 3)


@way("python")
def os_remove(at):
    os.remove(f"{at}/kept.bin")


@way("python")
def os_unlink_in_folder(at):
    folder = os.open(f"{at}/full/inner", os.O_RDONLY)
    os.unlink("deep.bin", dir_fd=folder)


@way("python")
def remove_link(at):
    os.remove(f"{at}/link")


@way("python")
def os_rename(at):
    os.rename(f"{at}/kept.bin", f"{at}/moved.bin")


@way("python")
def os_rename_folder(at):
    os.rename(f"{at}/full", f"{at}/old")


@way("python")
def os_replace(at):
    with open(f"{at}/best.pt.part", "w") as file:
        file.write("spoilt")
    os.replace(f"{at}/best.pt.part", f"{at}/best.pt")


@way("python")
def os_renames(at):
    os.renames(f"{at}/full/inner/deep.bin", f"{at}/elsewhere/deep.bin")


@way("python")
def os_mkdir(at):
    os.mkdir(f"{at}/made-folder")


@way("python")
def os_makedirs(at):
    os.makedirs(f"{at}/runs/1/checkpoints", exist_ok=True)


@way("python")
def os_rmdir(at):
    os.rmdir(f"{at}/empty")


@way("python")
def os_removedirs(at):
    os.removedirs(f"{at}/empty")


@way("python")
def rmtree(at):
    shutil.rmtree(f"{at}/full")


@way("python")
def rmtree_ignoring(at):
    shutil.rmtree(f"{at}/full", ignore_errors=True)


@way("python")
def rmtree_and_make(at):
    shutil.rmtree(f"{at}/full")
    os.makedirs(f"{at}/full/inner")


@way("python")
def copy(at):
    shutil.copy(__file__, f"{at}/kept.txt")


@way("python")
def copy2(at):
    shutil.copy2(f"{at}/other.bin", f"{at}/best.pt")


@way("python")
def copytree(at):
    shutil.copytree(f"{at}/full", f"{at}/empty", dirs_exist_ok=True)


@way("python")
def move(at):
    shutil.move(f"{at}/kept.bin", f"{at}/full/inner/deep.bin")


@way("python")
def move_into(at):
    shutil.move(f"{at}/kept.bin", f"{at}/empty")


@way("python")
def path_write_text(at):
    pathlib.Path(at, "kept.txt").write_text("spoilt")


@way("python")
def path_touch(at):
    pathlib.Path(at, "kept.txt").touch()


@way("python")
def path_unlink(at):
    pathlib.Path(at, "kept.bin").unlink()


@way("python")
def path_rename(at):
    pathlib.Path(at, "kept.bin").rename(pathlib.Path(at, "kept.txt"))


@way("python")
def path_mkdir(at):
    pathlib.Path(at, "a", "b").mkdir(parents=True)


@way("python", about=True)
def path_chmod(at):
    pathlib.Path(at, "kept.bin").chmod(0o777)


@way("python", about=True)
def os_chmod(at):
    os.chmod(f"{at}/kept.txt", 0o600)


@way("python", about=True)
def os_chmod_folder(at):
    os.chmod(f"{at}/full", 0o711)


@way("python", about=True)
def os_fchmod(at):
    os.fchmod(os.open(f"{at}/kept.txt", os.O_RDONLY), 0o600)


@way("python", about=True)
def os_utime(at):
    os.utime(f"{at}/kept.txt", (1, 1))


@way("python", about=True)
def os_utime_of_link(at):
    os.utime(f"{at}/link", (1, 1), follow_symlinks=False)


@way("python", about=True)
def os_utime_descriptor(at):
    os.utime(os.open(f"{at}/kept.txt", os.O_RDONLY), (1, 1))


@way("python", about=True)
def os_chown(at):
    os.chown(f"{at}/kept.txt", os.getuid() and -1, 12345 if os.getuid() == 0 else os.getgid())


@way("python", about=True)
def os_setxattr(at):
    os.setxattr(f"{at}/kept.txt", "user.spoilt", b"1")


@way("python")
def os_link(at):
    os.link(f"{at}/kept.txt", f"{at}/second")
    with open(f"{at}/second", "w") as file:
        file.write("spoilt")


@way("python")
def os_symlink(at):
    os.symlink("best.pt", f"{at}/latest.pt")
    with open(f"{at}/latest.pt", "w") as file:
        file.write("spoilt")


@way("python")
def symlink_from_temporary(at):
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(f"{at}/kept.txt"), f"{folder}/link")
        with open(f"{folder}/link", "w") as file:
            file.write("spoilt")


@way("python")
def posix_through_made_link(at):
    import posix

    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(f"{at}/kept.txt"), f"{folder}/link")
        posix.close(posix.open(f"{folder}/link", os.O_WRONLY | os.O_TRUNC))


@way("python")
def link_into_temporary(at):
    import posix

    with tempfile.TemporaryDirectory() as folder:
        posix.link(os.path.abspath(f"{at}/kept.txt"), f"{folder}/double")
        with open(f"{folder}/double", "w") as file:
            file.write("spoilt")


@way("python")
def os_mkfifo(at):
    os.mkfifo(f"{at}/pipe")


@way("python")
def named_temporary(at):
    with tempfile.NamedTemporaryFile(dir=at, delete=False) as file:
        file.write(b"new")


@way("python")
def unnamed_temporary(at):
    with tempfile.TemporaryFile(dir=at) as file:
        file.write(b"new")


@way("python")
def temporary_folder(at):
    tempfile.mkdtemp(dir=at)


@way("python")
def json_dump(at):
    with open(f"{at}/config.json", "w") as file:
        json.dump({}, file)


@way("python")
def pickle_dump(at):
    with open(f"{at}/best.pt", "wb") as file:
        pickle.dump({}, file)


@way("python")
def csv_rows(at):
    with open(f"{at}/log.csv", "a", newline="") as file:
        csv.writer(file).writerow([1, 2])


@way("python")
def gzip_file(at):
    with gzip.open(f"{at}/kept.bin", "wb") as file:
        file.write(b"spoilt")


@way("python")
def zip_append(at):
    with zipfile.ZipFile(f"{at}/kept.zip", "a") as archive:
        archive.writestr("b", "b")


@way("python")
def zip_extract(at):
    with zipfile.ZipFile(f"{at}/kept.zip") as archive:
        archive.extractall(at)


@way("python")
def tar_write(at):
    with tarfile.open(f"{at}/kept.bin", "w") as archive:
        archive.add(__file__, arcname="a")


@way("python")
def log_file(at):
    handler = logging.FileHandler(f"{at}/log.csv")
    handler.emit(logging.LogRecord("a", 40, "b", 1, "spoilt", (), None))
    handler.close()


@way("python")
def rotating_log(at):
    from logging.handlers import RotatingFileHandler

    handler = RotatingFileHandler(f"{at}/log.csv", maxBytes=1, backupCount=1)
    handler.emit(logging.LogRecord("a", 40, "b", 1, "spoilt", (), None))
    handler.close()


@way("python")
def sqlite_insert(at):
    with contextlib.closing(sqlite3.connect(f"{at}/kept.db")) as database:
        database.execute("insert into kept values (1)")
        database.commit()


@way("python")
def sqlite_address(at):
    with contextlib.closing(sqlite3.connect(f"file:{at}/kept.db?mode=rw", uri=True)) as database:
        database.execute("insert into kept values (1)")
        database.commit()


@way("python")
def sqlite_connection_class(at):
    with contextlib.closing(sqlite3.Connection(f"{at}/kept.db")) as database:
        database.execute("insert into kept values (1)")
        database.commit()


@way("python")
def sqlite_attach(at):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"attach '{at}/kept.db' as other")
        database.execute("insert into other.kept values (1)")
        database.commit()


@way("python")
def sqlite_vacuum_into(at):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table a (b)")
        database.execute(f"vacuum into '{at}/made.db'")


@way("python")
def shelf(at):
    with shelve.open(f"{at}/shelf") as held:
        held["a"] = 1


@way("python")
def torch_save(at):
    import torch

    torch.save({"a": torch.ones(2)}, f"{at}/best.pt")


@way("python")
def torch_save_then_rename(at):
    import torch

    torch.save({"a": torch.ones(2)}, f"{at}/best.tmp")
    os.replace(f"{at}/best.tmp", f"{at}/best.pt")


@way("python")
def torch_save_old_format(at):
    import torch

    torch.save({"a": torch.ones(2)}, pathlib.Path(at, "best.pt"), _use_new_zipfile_serialization=False)


@way("python")
def script_save(at):
    import torch

    torch.jit.save(torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1, 1), check_trace=False), f"{at}/best.pt")


@way("python")
def script_method_save(at):
    import torch

    torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1, 1), check_trace=False).save(f"{at}/best.pt")


@way("python")
def storage_from_file(at):
    import torch

    torch.from_file(f"{at}/kept.bin", shared=True, size=4, dtype=torch.uint8).fill_(0)


@way("python")
def numpy_save(at):
    import numpy

    numpy.save(f"{at}/kept.bin", numpy.ones(2))
    numpy.savez(f"{at}/best.pt", a=numpy.ones(2))


@way("python")
def numpy_memmap(at):
    import numpy

    numpy.memmap(f"{at}/kept.bin", mode="r+", dtype="u1")[:4] = 0


@way("python")
def numpy_to_file(at):
    import numpy

    numpy.ones(2).tofile(f"{at}/kept.bin")


@way("python")
def in_thread(at):
    thread = threading.Thread(target=quietly, args=(open_w, at))
    thread.start()
    thread.join()


@way("python")
def in_fork(at):
    pid = os.fork()
    if pid == 0:
        quietly(rmtree, at)
        quietly(open_w, at)
        os._exit(0)
    os.waitpid(pid, 0)


@way("python")
def working_folder(at):
    here = os.getcwd()
    os.chdir(at)
    try:
        with open("kept.txt", "w") as file:
            file.write("spoilt")
        os.makedirs("sub/run")
        os.chdir("sub/run")
        with open("../../kept.bin", "w") as file:
            file.write("spoilt")
    finally:
        os.chdir(here)


@way("python")
def environment_override(at):
    before = os.environ["TMPDIR"]
    os.environ["TMPDIR"] = at
    tempfile.tempdir = None
    try:
        tempfile.mkdtemp()
    finally:
        os.environ["TMPDIR"] = before
        tempfile.tempdir = None


@way("python")
def lock_file(at):
    with open(f"{at}/kept.txt", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("spoilt")


@way("python")
def bind_socket(at):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{at}/socket")


def quietly(attack, at):
    with contextlib.suppress(Exception):
        attack(at)


# -- once each, over all places: what takes long -------------------------------------------------------------------------


def in_spawned(places):
    for context in ("spawn", "forkserver"):
        child = multiprocessing.get_context(context).Process(target=everywhere, args=(places,))
        child.start()
        child.join()


def everywhere(places):
    for at in places:
        quietly(open_w, at)
        quietly(rmtree, at)
        quietly(os_replace, at)


class Spoiler:
    def __init__(self, places):
        self.places = places

    def __len__(self):
        return 2

    def __getitem__(self, index):
        everywhere(self.places)
        return index


def in_loader_workers(places):
    from torch.utils.data import DataLoader

    assert len(list(DataLoader(Spoiler(places), num_workers=2))) == 2


def in_python_child(places):
    code = "import attacks, sys; attacks.everywhere(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, *places], check=True)


def by_refused_programs(places):
    """Programs that are there to remove, move and overwrite: the guard does not start them."""
    for at in places:
        for line in (
            ["rm", "-rf", f"{at}/full"],
            ["mv", f"{at}/kept.txt", f"{at}/x"],
            ["cp", f"{at}/other.bin", f"{at}/best.pt"],
            ["dd", "if=/dev/zero", f"of={at}/kept.bin", "count=1"],
            ["truncate", "-s", "0", f"{at}/kept.bin"],
            ["bash", "-c", f"echo > {at}/kept.txt"],
        ):
            with contextlib.suppress(Exception):
                subprocess.run(line, stderr=subprocess.DEVNULL)
        quietly(lambda at: os.system(f"rm -f {at}/kept.bin"), at)
        quietly(lambda at: os.system(f"cd {at} && rm -f kept.bin 2>/dev/null"), at)
        quietly(lambda at: os.spawnlp(os.P_WAIT, "rm", "rm", "-f", f"{at}/kept.bin"), at)
        quietly(lambda at: os.waitpid(os.posix_spawnp("rm", ["rm", "-f", f"{at}/kept.bin"], os.environ), 0), at)


ONCE = {"python": [in_spawned, in_loader_workers, in_python_child, by_refused_programs], "library": [], "program": []}


# -- libraries in C ------------------------------------------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)


def c(name, *args):
    given = [os.fsencode(one) if isinstance(one, str) else one for one in args]
    return getattr(libc, name)(*given)


@way("library")
def c_unlink(at):
    c("unlink", f"{at}/kept.bin")


@way("library")
def c_rename(at):
    c("rename", f"{at}/kept.txt", f"{at}/moved")


@way("library")
def c_rename_into_own(at):
    c("rename", f"{at}/kept.txt", os.environ["TMPDIR"] + "/moved")


@way("library")
def c_exchange(at):
    c("renameat2", -100, f"{at}/kept.txt", -100, f"{at}/other.bin", 2)


@way("library")
def c_creat(at):
    c("creat", f"{at}/new-by-c", 0o644)


@way("library")
def c_open(at):
    c("open", f"{at}/kept.txt", os.O_WRONLY | os.O_TRUNC)


@way("library")
def c_stdio(at):
    libc.fopen.restype = ctypes.c_void_p
    file = c("fopen", f"{at}/kept.txt", "w")
    if file:
        libc.fclose(ctypes.c_void_p(file))


@way("library")
def c_truncate(at):
    c("truncate", f"{at}/kept.bin", ctypes.c_long(0))


@way("library")
def c_rmdir(at):
    c("rmdir", f"{at}/empty")


@way("library")
def c_mkdir(at):
    c("mkdir", f"{at}/made-by-c", 0o755)


@way("library")
def c_link(at):
    c("link", f"{at}/kept.txt", f"{at}/double-by-c")


@way("library")
def c_symlink(at):
    c("symlink", "kept.txt", f"{at}/link-by-c")


@way("library")
def c_mknod(at):
    c("mknod", f"{at}/node", 0o010644, 0)


@way("library")
def c_system_call(at):
    libc.syscall(263 if os.uname().machine == "x86_64" else 35, -100, os.fsencode(f"{at}/kept.txt"), 0)


@way("library")
def c_system(at):
    c("system", f"rm -rf {at}/full 2>/dev/null")


@way("library")
def c_descriptor_again(at):
    descriptor = os.open(f"{at}/kept.txt", os.O_RDONLY)
    c("open", f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_TRUNC)


@way("library", about=True)
def c_chmod(at):
    c("chmod", f"{at}/kept.txt", 0o600)


@way("library", about=True)
def c_utime(at):
    c("utime", f"{at}/kept.txt", None)


@way("library", about=True)
def c_chown(at):
    c("chown", f"{at}/kept.txt", -1, 12345)


# -- other programs ------------------------------------------------------------------------------------------------------


def program(name, *lines, about=False):
    """With `{at}` in its words."""

    def started(at):
        for line in lines:
            with contextlib.suppress(OSError):
                words = [word.format(at=at) for word in line]
                subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)

    started.__name__ = f"program_{name}"
    way("program", about)(started)


COMMIT = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "a"]
PYTHON = "import shutil, sys; open(sys.argv[1] + '/kept.txt', 'w'); shutil.rmtree(sys.argv[1] + '/full')"

program("rm", ["rm", "-rf", "{at}/full", "{at}/kept.txt"])
program("mv", ["mv", "{at}/kept.bin", "{at}/moved"])
program("mv_folder", ["mv", "{at}/full", "{at}/old"])
program("cp", ["cp", "{at}/other.bin", "{at}/best.pt"])
program("cp_over", ["cp", "-a", "--remove-destination", "{at}/other.bin", "{at}/best.pt"])
program("dd", ["dd", "if=/dev/zero", "of={at}/kept.bin", "count=1"])
program("truncate", ["truncate", "-s", "0", "{at}/kept.bin"])
program("sed", ["sed", "-i", "s/kept/spoilt/", "{at}/kept.txt"])
program("bash", ["bash", "-c", "echo spoilt > {at}/kept.txt"])
program("append", ["sh", "-c", "echo spoilt >> {at}/log.csv"])
program("ln", ["ln", "-sf", "other.bin", "{at}/link"])
program("ln_hard", ["ln", "-f", "{at}/other.bin", "{at}/kept.txt"])
program("mkdir", ["mkdir", "-p", "{at}/by/mkdir"])
program("tee", ["sh", "-c", "echo spoilt | tee {at}/kept.txt"])
program("tar", ["tar", "-cf", "{at}/kept.bin", "-C", "{at}", "full"])
program(
    "git",
    ["git", "-C", "{at}", "init"],
    ["git", "-C", "{at}", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "a"],
)
program(
    "python",
    [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import shutil, sys; open(sys.argv[1] + '/kept.txt', 'w'); shutil.rmtree(sys.argv[1] + '/full')",
        "{at}",
    ],
)
program("touch", ["touch", "{at}/kept.txt", "{at}/new-by-touch"])
program("chmod", ["chmod", "-R", "700", "{at}/full"], about=True)
program("touch_time", ["touch", "-c", "-d", "2001-01-01", "{at}/kept.txt"], about=True)


def main(places, about, *who):
    """`about`: the ways that change rights, owner, times and attributes alone; `content`: the others; or `all`."""
    count = refused = 0
    for one in who:
        for number, attack in enumerate(chosen(one, about)):
            for at in places_for(number, places, bool(os.environ.get("ATTACKS_EVERYWHERE"))):
                count += 1
                try:
                    attack(f"{at}/{attack.__name__}")
                except Exception as error:  # noqa: BLE001 (whatever it is)
                    refused += 1
                    if os.environ.get("ATTACKS_TELL"):
                        print(attack.__name__, at, type(error).__name__, error)
        for attack in ONCE[one] if about != "about" else ():
            count += len(places)
            attack([f"{at}/{attack.__name__}" for at in places])
    print("attacks", count, "refused", refused)


def places_for(number, places, everywhere=False):
    """Half of them for each way, the other half for the next."""
    return places if everywhere else places[number % 2 :: 2] or places


def chosen(who, about="all"):
    return [attack for attack in WAYS[who] if about == "all" or (attack.__name__ in ABOUT) == (about == "about")]


if __name__ == "__main__":
    main([os.path.expanduser(place) for place in sys.argv[1].split(":")], *sys.argv[2:])
