"""Runs a training script as `__main__` and writes a digest of what it has learned: trained.py DIGEST SCRIPT ARGS."""

import atexit
import hashlib
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

digest, script, *arguments = sys.argv[1:]
optimizers = {}
register_optimizer_step_post_hook(lambda optimizer, args, kwargs: optimizers.setdefault(id(optimizer), optimizer))


@atexit.register
def write_digest():
    seen = hashlib.sha256()
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                seen.update(parameter.detach().cpu().numpy().tobytes())
                for name, value in sorted(optimizer.state[parameter].items()):
                    seen.update(name.encode() + torch.as_tensor(value).cpu().numpy().tobytes())
    seen.update(torch.get_rng_state().numpy().tobytes())
    with open(digest, "w") as file:
        file.write(seen.hexdigest())


sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
