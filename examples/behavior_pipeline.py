"""Classify behaviour from wearable-sensor series, with flatout inside: the model and data of behavior.py, trained through the library.

    python behavior_pipeline.py --test-gpu                                   does the GPU work?
    python behavior_pipeline.py --full-pipeline                              train, validate, save, report
    python behavior_pipeline.py --full-pipeline --mixed-precision            … in mixed precision, kept if it is measured faster
    python behavior_pipeline.py --full-pipeline --gpu-id 0 --batch-size 64 --gpu-memory-fraction 0.8
    python behavior_pipeline.py --full-pipeline --gpu-config configs/behavior.json
"""
import argparse
import dataclasses
import os
import sys

from flatout import GPUOptimizer, PerformanceMonitor, TrainingAccelerator, TrainingConfig
from flatout.api import config_source
from flatout.api.gpu_check import check_gpu
from flatout.base.errors import FlatoutError


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--test-gpu", action="store_true", help="test the GPU's functions and end (exit code 1 where there is none)")
    what.add_argument("--full-pipeline", action="store_true", help="train, validate, save the best model, report")
    parser.add_argument("--mixed-precision", nargs="?", const="auto", choices=("auto", "bf16", "fp16", "no"),
                        help="auto (the default of the flag) measures, and keeps it only where it is faster")
    parser.add_argument("--gpu-id", help="as nvidia-smi counts, a UUID, or cpu")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--gpu-memory-fraction", type=float, help="cap on what torch may take of the card, above 0 up to 1")
    parser.add_argument("--gpu-config", metavar="FILE", help="JSON, YAML, or a profile of flatout tune")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train-size", type=int, default=20_000)
    parser.add_argument("--small", action="store_true", help="a model for the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="behavior_out")
    return parser.parse_args(words)


def settings(args):
    """The configuration file, and over it what the command line says."""
    config = config_source.read(args.gpu_config) if args.gpu_config else TrainingConfig()
    device = GPUOptimizer(config.device_id if config.use_gpu else "cpu", gpu_id=args.gpu_id).optimize_device_selection()
    print(f"device: {device.reason}", flush=True)
    said = {"batch_size": args.batch_size, "precision": args.mixed_precision, "gpu_memory_fraction": args.gpu_memory_fraction}
    said = {name: value for name, value in said.items() if value is not None}
    if args.gpu_id is not None:
        os.environ.update(device.exports)  # before CUDA starts: this card alone is seen, and is number 0
        said["device_id"] = "cpu" if device.device == "cpu" else 0
    return dataclasses.replace(config, **said)


def train(args):
    config = settings(args)
    import torch
    from behavior import BehaviorNet, SensorWindows
    from torch.utils.data import DataLoader

    torch.manual_seed(args.seed)
    accelerator = TrainingAccelerator(config)
    model = BehaviorNet(hidden=16 if args.small else 128)
    optimizer = accelerator.make_optimizer(model, torch.optim.Adam)  # with lr, betas, eps and weight_decay of the configuration
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    data = DataLoader(SensorWindows(args.train_size), batch_size=config.batch_size or 32, shuffle=True)
    model, optimizer, batches, checks = accelerator.prepare(
        model, optimizer, data, DataLoader(SensorWindows(512), batch_size=64)
    )
    monitor = accelerator.enable_performance_monitoring()
    best = -1.0
    for epoch in range(args.epochs):
        for batch in batches:
            accelerator.train_on(batch, lambda part: criterion(model(part[0]), part[1]))
            accelerator.step(optimizer)
        scheduler.step()
        with monitor.paused():  # what it takes is none of the training's speed
            accuracy = validate(accelerator, model, checks)
        print(f"epoch {epoch} accuracy {accuracy:.3f}", flush=True)
        if accuracy > best:
            best = accuracy
            os.makedirs(args.out, exist_ok=True)
            torch.save(accelerator.unwrap(model).state_dict(), os.path.join(args.out, "best.pt"))
    report(monitor, accelerator)


def validate(accelerator, model, checks):
    right = seen = 0
    with accelerator.evaluate(model):
        for x, y in checks:
            right = right + (model(x).argmax(1) == y).sum()  # stays on the device until the end
            seen += len(y)
    return int(right) / seen


def report(monitor: PerformanceMonitor, accelerator: TrainingAccelerator):
    print(monitor.stop())
    print(f"precision: {accelerator.precision}")
    for sentence in [*accelerator.notes, *monitor.advice()]:
        print(f"- {sentence}")


def main(words=None):
    args = arguments(words)
    try:
        if args.test_gpu:
            chosen = GPUOptimizer(gpu_id=args.gpu_id).optimize_device_selection()
            os.environ.update(chosen.exports if args.gpu_id is not None else {})
            result = check_gpu()
            print(f"device: {chosen.reason}\n{result}")
            return 0 if result.passed else 1
        train(args)
    except FlatoutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
