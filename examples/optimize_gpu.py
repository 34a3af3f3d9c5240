"""The flags of the well-known optimize_gpu.py, on flatout's parts.

    python optimize_gpu.py --config configs/lightweight_config.yaml
    python optimize_gpu.py --config configs/lightweight_gpu_optimized.yaml --benchmark -- python src/main.py --config {config}
    python optimize_gpu.py --monitor 300

The first writes an estimate beside the file, and says that it is one. The second measures: the script is run in trials, and
the written file is compared with the old one. The third watches the cards (0: until Ctrl-C) and ends with averages and peaks.
"""
import argparse
import os
import subprocess
import sys
import time

from flatout.base.words import Words, choose_language
from flatout.machine import nvml
from flatout.machine.card_load import Load
from flatout.report import load as report

# Where people keep the script that trains, for --benchmark without a command.
USUAL_SCRIPTS = ("src/main.py", "main.py", "train.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="YAML or JSON configuration of a training; the optimised one is written beside it")
    parser.add_argument("--benchmark", action="store_true", help="measure with the command that trains instead of estimating")
    parser.add_argument("--output", "-o", metavar="FILE", help="where the optimised configuration goes")
    parser.add_argument("--force", action="store_true", help="write over it if it is there already")
    parser.add_argument("--monitor", type=float, metavar="SECONDS", help="watch the cards for so long; 0: until stopped")
    parser.add_argument("command", nargs="*", help="after --: the command that trains, {config} in the place of the configuration")
    args = parser.parse_args()
    if args.config is None and args.monitor is None:
        parser.error("--config or --monitor is wanted")
    words = Words(choose_language(None))
    code = optimize(parser, args) if args.config is not None else 0
    if code == 0 and args.monitor is not None:
        code = monitor(args.monitor, words)
    return code


def optimize(parser, args):
    line = [sys.executable, "-m", "flatout", "tune", "--config", args.config]
    line += ["--output", args.output] if args.output is not None else []
    line += ["--force"] if args.force else []
    if args.benchmark:
        line += ["--", *(args.command or usual_command(parser))]
    elif args.command:
        parser.error("a command is only run with --benchmark")
    return subprocess.run(line).returncode


def usual_command(parser):
    script = next((name for name in USUAL_SCRIPTS if os.path.exists(name)), None)
    if script is None:
        parser.error("--benchmark measures: it wants the command that trains, as in -- python src/main.py --config {config}")
    return [sys.executable, script, "--config", "{config}"]


def monitor(seconds, words):
    """About one look a second; a line is only drawn on a terminal, the summary always."""
    load, began, drawn = Load(), time.monotonic(), sys.stdout.isatty()
    with nvml.looks() as look:
        try:
            while True:
                gpus = look()
                if not gpus:
                    reason = nvml.driver().gpus
                    why = "?" if isinstance(reason, list) else words(f"missing.{reason.reason}")
                    print(words("load.nothing", why=why), file=sys.stderr)
                    return 1
                load.add(gpus)
                if drawn:
                    print("\r\x1b[K" + " | ".join(report.look(gpu, words) for gpu in gpus), end="", flush=True)
                left = seconds - (time.monotonic() - began)
                if seconds > 0 and left <= 0:
                    break
                time.sleep(min(1.0, left) if seconds > 0 else 1.0)
        except KeyboardInterrupt:
            pass
    print("\n" if drawn else "", end="")
    for card in load.cards():
        print("\n".join(report.summary(card, words)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
