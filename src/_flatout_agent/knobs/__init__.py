"""Knobs: how each setting is put on a running script, proved to take effect, and taken off without a trace.

    scene = Scene(torch, device_type)                   # what the agent found; holds the script's objects weakly
    scene.found(roots, optimizers, loaders)             # as often as more is found
    scene.steps_done += 1                               # at every step; `autocast_seen`, `compiled_seen` from the RootFinder
    board = Switchboard(scene, KNOBS)
    board.set({"precision": "bf16", "workers": 4})      # exactly these, at a step boundary -> {name: Outcome}
    board.proofs(), board.numerics(), board.clear()     # what was seen since; the class as found; all as in the script

A knob (one file each, named in `registry.KNOBS`) has `put_on(scene, value)`, `take_off()`, `proof()` and `numerics(scene)`.
An `Outcome` is `applied`, `already` (by the script itself) or `refused`, with a code that needs no language and details as
JSON values. A proof tells what was *seen*: a dtype inside an operation, graphs captured, workers alive.

The agent's hooks call `scene.handover.next_batch(iterator, original)` and `.start_epoch(loader, original)` while
`scene.handover.busy`, `RootFinder` during the first steps, and `scene.lift()`/`.put_back()` around Dynamo's compiling.
Nothing is called per step while no knob is on.

Decided: roots give back float32 under mixed precision; evaluation (`eval()` or without gradients) always runs plain; a
call that raises is repeated without our layers, after random state and buffers were put back, and the knob is off.
"""
