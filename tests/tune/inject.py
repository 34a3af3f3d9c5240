"""Plants every fault of the list in a real `flatout tune` of a small real script, and looks at what is left.

    python tests/tune/inject.py                       once each
    python tests/tune/inject.py --times 10 --lanes 4  as often as one wants to believe it
    python tests/tune/inject.py --only hang@timed

Needs Linux, torch, and mount namespaces (for the disks that are full). Exit code 0: all passed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from injections import BY_NAME, INJECTIONS, Injection
from processes import gone

from flatout.launch.scratch import LASTING

sys.path.pop(0)
PLANTED = HERE / "planted_tune"
FRONT_LINE = 7  # of the journal, for faults of the front's own
BALLAST = "ballast"
LONGEST_S = 600
MOST_STRIKES = 3  # children: one that says it is at its end is believed once

# In a namespace of its own, so that the disks go with it, whatever happens. What trials write may lie in `LASTING`.
ON_SMALL_DISKS = """
mount -t tmpfs -o size=24m none "$1" && mount -t tmpfs -o size=24m none "$2" && mount --bind "$3" "$4" || exit 96
shift 4
exec "$@"
"""


class Case:
    """One injection in folders of its own."""

    def __init__(self, injection: Injection, place: Path) -> None:
        self.injection = injection
        self.home, self.temporary, self.notes = (place / name for name in ("home", "temporary", "notes"))
        self.record = place / "record"  # the disk with the run's folder
        for folder in (self.home / "out", self.temporary, self.notes, self.record):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(PLANTED / "train.py", self.home)
        (self.home / "out" / "precious.pt").write_bytes(os.urandom(5000))
        (self.home / "out" / "best.pt").write_bytes(os.urandom(5000))
        (self.home / "notes.txt").write_text("the whole story", encoding="ascii")
        self.told: list[str] = []

    def carry_out(self) -> list[str]:
        """What is wrong, if anything."""
        before, injection = self.hashes(), self.injection
        (self.home / ".flatout").symlink_to(self.record)
        code = self.tune("--budget", "300s", "--only", "channels_last", planted=True)
        wrong = [f"exit code {code}, not {injection.code}"] if code != injection.code else []
        if injection.moment != "journal" and not (self.notes / "struck").exists():
            wrong.append("nothing struck")
        wrong += self.left_behind()
        for disk in (self.temporary, *self.record.glob("runs/*")):
            (disk / BALLAST).unlink(missing_ok=True)
        if injection.resumed:
            (folder,) = self.record.glob("runs/*")
            way_on = f"continue with: flatout tune --resume .flatout/runs/{folder.name} --budget"
            if injection.code > 0 and way_on not in self.told[0]:
                wrong.append("the way on is not named")
            code = self.tune("--resume", str(folder))
            wrong += [f"resumed: exit code {code}"] if code else []
            wrong += self.left_behind()
        if injection.moment != "first-start":
            wrong += self.journal_faults()
        if any("Traceback" in text for text in self.told):
            wrong.append("a traceback")
        return wrong + (["the user's files have changed"] if self.hashes() != before else [])

    def tune(self, *options: str, planted: bool = False) -> int:
        environ = {**os.environ, "FLATOUT_LANG": "en", "OMP_NUM_THREADS": "1", "INJECT_NOTES": str(self.notes)}
        environ.update(TMPDIR=str(self.temporary), INJECT="", INJECT_FRONT="")
        if planted and self.injection.moment == "journal":
            environ["INJECT_FRONT"] = f"{self.injection.fault.removesuffix('-front')}:{FRONT_LINE}"
        elif planted:
            environ["INJECT"] = self.injection.name
        command = [sys.executable, str(PLANTED / "hurried.py"), "tune", *options, "--no-parity", "train.py"]
        front = subprocess.Popen(
            command, cwd=self.home, env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self.told.append(self.said_until_its_end(front))
        return front.returncode

    def said_until_its_end(self, front: subprocess.Popen[str]) -> str:
        """And meanwhile the front gets the signals that the script asks for, which cannot see it."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            try:
                return front.communicate(timeout=0.02)[1]
            except subprocess.TimeoutExpired:
                self.send_signals(front)
        front.kill()
        raise TimeoutError(front.communicate()[1])

    def send_signals(self, front: subprocess.Popen[str]) -> None:
        asked = self.notes / "signals"
        text = asked.read_text(encoding="ascii") if asked.exists() else ""
        if text.endswith("\n"):  # whole
            asked.unlink()
            for name in text.split():
                front.send_signal(signal.Signals[name])

    def hashes(self) -> dict[str, str]:
        files = [path for path in sorted(self.home.rglob("*")) if path.is_file() and ".flatout" not in path.parts]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.name != "flatout.toml"}

    def left_behind(self) -> list[str]:
        """After a front that was killed, its keeper has a moment."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            processes = list(self.processes())
            places = (self.temporary, Path(LASTING))
            folders = [path.name for place in places for path in place.iterdir() if path.name.startswith("flatout-")]
            if not processes and not folders:
                break
            time.sleep(0.05)
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "flatout-tmp" in line]
        told = {"processes": processes, "folders": folders, "mounts": mounts}
        return [f"left behind: {name} {left}" for name, left in told.items() if left]

    def processes(self):
        mark = os.fsencode(f"INJECT_NOTES={self.notes}")
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes() and not gone(path.name):
                    yield int(path.name)
            except OSError:
                continue

    def journal_faults(self) -> list[str]:
        """The journal is whole, the struck segments have their kind, the offender had two tries, the search came to its end."""
        (folder,) = self.record.glob("runs/*")
        lines = [json.loads(line) for line in (folder / "tune.jsonl").read_text(encoding="ascii").splitlines()]
        results = [line for line in lines if line.get("result")]
        wrong = []
        if [line["result"]["id"] for line in results] != list(range(1, len(results) + 1)):
            wrong.append("segments are missing in the journal")
        if not (folder / "tune.json").exists():
            return [*wrong, "the search did not come to its end"]
        end = json.loads((folder / "tune.json").read_text(encoding="utf-8"))
        if end["ending"] not in ("tuned", "already-flat-out", "nothing-shown"):
            wrong.append(f"it ended: {end['ending']}")
        faults = [line["result"]["status"] for line in results if line["result"]["status"] not in ("ok", "ended", "refused")]
        decision = next((one for one in end["decisions"] if one["knob"] == "channels_last"), {})
        injection = self.injection
        expected = {injection.kind} if injection.kind else set()
        if injection.moment == "start":
            expected.add("killed")  # by which there was a second child
        if set(faults) != expected or len(faults) > 2:
            wrong.append(f"faults in the journal: {faults}, not {sorted(expected)}")
        verdict = "failed" if injection.kind else "not-applied" if injection.refused else decision.get("verdict")
        if decision.get("verdict") != verdict:
            wrong.append(f"decided: {decision.get('verdict')} {decision.get('code')}")
        struck = self.notes / "struck"
        strikes = len(set(struck.read_text(encoding="ascii").split())) if struck.exists() else 0
        if strikes > MOST_STRIKES:
            wrong.append(f"struck {strikes} children")
        return wrong


def one(injection: Injection) -> tuple[str, list[str], str]:
    """In a process of its own, on small disks."""
    with tempfile.TemporaryDirectory(prefix="inject-") as place:
        folders = [os.path.join(place, name) for name in ("temporary", "record", "lasting")]
        for folder in folders:
            os.mkdir(folder)
        unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
        inside = [sys.executable, __file__, "--inside", injection.name, place]
        ended = subprocess.run(
            [*unshare, "sh", "-c", ON_SMALL_DISKS, "sh", *folders, LASTING, *inside],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ended.returncode != 0:
            return injection.name, [f"the runner failed: {ended.stderr[-2000:]}"], ""
        told = json.loads(ended.stdout)
        return injection.name, told["wrong"], told["told"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults planted in flatout tune, by a fixed list.")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--only", action="append", choices=sorted(BY_NAME))
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in what a shell runs in the background, and that is inherited
        case = Case(BY_NAME[asked.inside[0]], Path(asked.inside[1]))
        wrong = case.carry_out()
        print(json.dumps({"wrong": wrong, "told": "\n".join(case.told)}))
        return 0
    wanted = [BY_NAME[name] for name in asked.only] if asked.only else INJECTIONS
    failed = 0
    with ThreadPoolExecutor(asked.lanes) as lanes:
        began = time.monotonic()
        for number, (name, wrong, told) in enumerate(lanes.map(one, wanted * asked.times), 1):
            print(f"{number:4} {time.monotonic() - began:6.0f} s  {name:26} {'; '.join(wrong) or 'passed'}", flush=True)
            if wrong:
                failed += 1
                print(told, flush=True)
    print(f"{len(wanted) * asked.times - failed} of {len(wanted) * asked.times} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
