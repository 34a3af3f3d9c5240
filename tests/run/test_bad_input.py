"""Scripts that fail, exit, read, ask for a terminal: what plain Python does, and one sentence where we are at fault."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest


@pytest.mark.parametrize(
    "text",
    [
        "import sys; print('out'); sys.exit(3)",
        "print('before'); raise ValueError('boom')",
        "import no_such_module",
        "this is not python at all",
        "import sys; sys.stdout.buffer.write(bytes(range(256)))",
        "import sys; sys.stderr.write('words on stderr\\n'); sys.exit('a message')",
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "raise KeyboardInterrupt",
        "raise SystemExit(None)",
        "import sys; print(sys.path, sys.argv, __name__, __file__)",
        "print(input() + '!')",
        "import sys; print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)])",
        "import sitecustomize; print('mine' in sitecustomize.__dict__)",
    ],
)
def test_ends_as_under_plain_python(text, flatout, plain, script, tmp_path):
    path = script(text)
    stdin = b"line\n" if "input()" in text else None
    alone = plain(path, "-x", "--json", stdin=stdin)
    ours = flatout("run", "-q", path, "-x", "--json", stdin=stdin)
    assert ours.returncode == alone.returncode
    assert ours.stdout == alone.stdout
    assert ours.stderr == alone.stderr.decode()
    expected = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
    assert ours.summary["exit_code"] == expected
    assert ours.summary["signal"] == (-alone.returncode if alone.returncode < 0 else None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nope.py"], "flatout: There is no script nope.py."),
        (["nope"], "flatout: There is no script nope."),
        (["folder/nope"], "flatout: There is no script folder/nope."),
        (["-m"], "flatout: -m needs the name of a module."),
        (["-u", "train.py"], "flatout: There is no option -u in flatout."),
        (["--python", "/no/python", "train.py"], "flatout: There is no Python interpreter at /no/python."),
        (
            ["--gpu-memory-fraction", "1.5", "train.py"],
            "flatout: --gpu-memory-fraction 1.5 is not valid: give a number above 0",
        ),
        (["--gpu-memory-fraction", "0", "train.py"], "flatout: --gpu-memory-fraction 0.0 is not valid: give a number above 0"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments, sentence, flatout, tmp_path):
    if "--gpu-memory-fraction" in arguments:
        (tmp_path / "train.py").write_text("")
    ended = flatout("run", *arguments)
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert ended.stderr.startswith(sentence)
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / ".flatout").exists()


def test_gpu_id(flatout, script):
    """`cpu` hides every card; an id on a machine without one falls back to the CPU and says so."""
    path = script("import os; print(repr(os.environ.get('CUDA_VISIBLE_DEVICES')))")
    hidden = flatout("run", "-q", "--gpu-id", "cpu", path)
    assert (hidden.stdout, hidden.stderr) == (b"''\n", "flatout: CPU: you asked for it.\n")
    ended = flatout("run", "-q", "--gpu-id", "0", path)
    if ended.stdout == b"None\n":
        assert ended.stderr == "flatout: CPU: no GPU was found. flatout doctor shows what is missing.\n"


def test_chinese_sentence(flatout):
    ended = flatout("--lang", "zh", "run", "nope.py")
    assert ended.stderr == "flatout: 没有脚本 nope.py。\n"


def test_no_script_at_all_is_a_usage_error(flatout):
    ended = flatout("run")
    assert ended.returncode == 2
    assert "SCRIPT" in ended.stderr


def test_switched_off_leaves_nothing(flatout, plain, script, tmp_path):
    path = script("import os, sys; print(sorted(os.environ), sys.path, 'sitecustomize' in sys.modules)")
    off = {"FLATOUT": "off", "FLATOUT_LANG": "en"}
    ours = flatout("run", path, env=off)
    assert ours.stdout == plain(path, env=off).stdout
    assert ours.stderr == ""
    assert not (tmp_path / ".flatout").exists()


def test_users_sitecustomize_still_runs(flatout, plain, script, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.mine = 'ran'")
    path = script("import sys, sitecustomize; print(sys.mine, sys.path, sitecustomize.__file__)")
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    assert flatout("run", "-q", path, env=environment).stdout == plain(path, env=environment).stdout


def test_users_broken_sitecustomize_is_told_as_python_tells_it(flatout, plain, script, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import no_such_module")
    path = script("print('runs')")
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    alone, ours = plain(path, env=environment), flatout("run", "-q", path, env=environment)
    # The front is a Python too, and says it once for itself.
    assert (ours.stdout, ours.stderr) == (alone.stdout, alone.stderr.decode() * 2)


def test_module_and_package(flatout, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "train.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])")
    (tmp_path / "pkg" / "__main__.py").write_text("print('as a folder')")
    assert flatout("run", "-m", "pkg.train", "--lr", "1").stdout == b"__main__ pkg ['--lr', '1']\n"
    assert flatout("run", "pkg").stdout == b"as a folder\n"


def test_a_command_of_the_users(flatout, script):
    path = script("import sys; print(sys.argv[1:], '_flatout_agent' in sys.modules)")
    assert flatout(
        "run", os.path.basename(sys.executable), path, "a", env={"PATH": os.path.dirname(sys.executable)}
    ).stdout == (b"['a'] True\n")


def test_descriptors_are_inherited(tmp_path, script):
    path = script("import os; os.write(int(os.environ['FD']), b'through')")
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    subprocess.run(
        [sys.executable, "-m", "flatout", "run", "-q", path],
        env={**os.environ, "FD": str(writer)},
        cwd=tmp_path,
        close_fds=False,
        check=True,
    )
    os.close(writer)
    assert os.read(reader, 100) == b"through"
    os.close(reader)


def test_unwritable_folder_still_runs(flatout, script, tmp_path):
    path = script("print('ran')")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / ".flatout").write_text("a file where the folder should be")
    ended = flatout("run", path, cwd=closed)
    assert ended.returncode == 0
    assert ended.stdout == b"ran\n"
    assert "Record:" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_script(number, script, tmp_path):
    path = script(
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('caught', flush=True), sys.exit(5)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "flatout", "run", "-q", path], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.stdout.read() == b"caught\n"
    assert process.wait(20) == 5
    process.stdout.close()


def test_terminal_and_control_c(script, tmp_path):
    """On a real terminal: the script sees it, Ctrl-C reaches it once, and the shell sees a death by SIGINT."""
    path = script(
        "import signal, sys, time\n"
        "print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)], flush=True)\n"
        "hits = []\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
        "    time.sleep(1)\n    raise\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "flatout", "run", str(path)])
    seen = _read_until(terminal, b"]")
    assert b"[True, True, True]" in seen
    time.sleep(0.3)
    os.write(terminal, b"\x03")
    seen = _read_until(terminal, b"Record:")
    assert seen.count(b"interrupted") == 1
    assert b"KeyboardInterrupt" in seen
    _read_until(terminal, b"\x00never", limit=3)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGINT


def _read_until(terminal, mark, limit=30):
    seen = b""
    end = time.monotonic() + limit
    while mark not in seen and time.monotonic() < end:
        try:
            seen += os.read(terminal, 1000)
        except OSError:
            break
    return seen
