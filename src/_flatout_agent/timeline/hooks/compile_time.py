"""torch.compile and torch.export: their time, and staying out of their sight.

Dynamo reads the methods of `torch.Tensor` when it traces, and would break the graph at a wrapper of ours (a `.to()`
in the model's forward split the graph in three). So our patches on tensors are lifted while it compiles. Hooks that
must stay, because compiled code guards on their number, ask `is_compiling()` first, which Dynamo folds to a constant.
After a graph break it takes every Python frame for one to compile: ours are marked to be run as they are.
"""

from __future__ import annotations

import os
import sys
from threading import get_ident
from time import perf_counter_ns
from types import CodeType
from typing import Any, Callable, Iterator

from _flatout_agent.core.after_import import after_import
from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress, leave_us_out, passed_over
from _flatout_agent.timeline.event_buffer import Call, Tape


def watch(tape: Tape, on_tensors: Patches, patches: Patches) -> None:
    start, end, is_lifted = _boundaries(tape, on_tensors)

    def dynamo_arrived(module: Any, _: int) -> None:
        try:
            if hasattr(module, "compile_frame"):  # export and ahead-of-time compilation go through it and tell nobody
                patches.put(module, "compile_frame", _between(module.compile_frame, start, end, is_lifted))
            if module.__name__ == "torch._dynamo.callback":
                _call_back(module.callback_handler, start, end, patches)
            elif not os.path.exists(os.path.join(os.path.dirname(module.__file__), "callback.py")):
                patches.put(module, "_compile", _between(module._compile, start, end, is_lifted))
        except Exception:
            tape.dynamo = True
            on_tensors.take_off()  # not told when it compiles, we would be in its way
            raise

    after_import("torch._dynamo.callback", dynamo_arrived)
    after_import("torch._dynamo.convert_frame", dynamo_arrived)  # torch 2.0 to 2.2 has no callbacks
    after_import("torch._dynamo.eval_frame", _run_ours_as_it_is)


def _boundaries(tape: Tape, on_tensors: Patches) -> tuple[Call, Call, Callable[[], bool]]:
    began, lifted = 0, False

    def start(*_: Any) -> None:
        nonlocal began, lifted
        try:
            lifted = True
            _lift(tape, on_tensors)
            began = perf_counter_ns() if get_ident() == tape.owner else 0
        except Exception as error:
            fault("compiling.start", error)

    def end(*_: Any) -> None:
        nonlocal began, lifted
        try:
            lifted = False
            _put_back(tape, on_tensors)
            if began:
                tape.inside(tape.clock.compiled, perf_counter_ns() - began)
                began = 0
        except Exception as error:
            fault("compiling.end", error)

    return start, end, lambda: lifted


def _call_back(handler: Any, start: Call, end: Call, patches: Patches) -> None:
    def register() -> None:
        handler.register_start_callback(start)
        handler.register_end_callback(end)

    original_clear = handler.clear

    def clear() -> None:  # torch._dynamo.reset() calls it, and means the script's callbacks
        original_clear()
        try:
            register()
        except Exception as error:
            fault("compiling.clear", error)

    register()
    patches.put(handler, "clear", clear)
    patches.on_take_off(lambda: handler.remove_start_callback(start))
    patches.on_take_off(lambda: handler.remove_end_callback(end))


def _between(original: Any, start: Call, end: Call, is_lifted: Callable[[], bool]) -> Any:
    def compile_frame(*args: Any, **kwargs: Any) -> Any:
        outermost = not is_lifted()
        if outermost:
            start()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            if outermost:
                end()

    return dress(compile_frame, original)


def _lift(tape: Tape, on_tensors: Patches) -> None:
    tape.dynamo = True
    if tape.inputs is not None:
        tape.inputs.end()  # its hooks would be traced, and compiled code guards on their number
    tape.something_new()  # the hooks of a glance do not ask whether they are being traced
    if tape.driver is not None:
        tape.driver.scene.lift()
    on_tensors.lift()


def _put_back(tape: Tape, on_tensors: Patches) -> None:
    if tape.owner:
        on_tensors.put_back()
    if tape.driver is not None:
        tape.driver.scene.put_back()


def _run_ours_as_it_is(eval_frame: Any, _: int) -> None:
    skip = getattr(eval_frame, "skip_code", None)
    if skip is not None:
        for code in _our_code():
            skip(code)
            skip(passed_over(code))  # as wrappers have it


def _our_code() -> Iterator[CodeType]:
    """Every function of the agent; those made inside others are constants of their makers."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("_flatout_agent.")]
    for module in modules:
        for value in vars(module).values():
            functions = vars(value).values() if isinstance(value, type) else (value,)
            for function in functions:
                code = getattr(function, "__code__", None)
                if code is not None and function.__module__ == module.__name__:
                    yield from _with_inner(code)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
