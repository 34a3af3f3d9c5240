"""Where the agent begins: inside every interpreter of the run, before the script's first line."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from time import perf_counter_ns, time
from types import ModuleType
from typing import Any

from _flatout_agent import wire
from _flatout_agent.core import fault_guard, memory_cap
from _flatout_agent.core.after_import import after_import
from _flatout_agent.core.parent_process import Parent
from _flatout_agent.core.patches import Patches
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.step_clock import StepClock

OLDEST_TORCH = (2, 0)  # below, the script passes through


class Agent:
    """One process's observer: silent until torch is imported, and without a file until there is something to tell."""

    def __init__(self, job: dict[str, Any]) -> None:
        now = perf_counter_ns()
        self.pid = os.getpid()
        self.forked = False
        self.run_dir = job["run_dir"]
        self.journal = wire.Journal(self.run_dir, self.pid)
        began = now - max(0, int((time() - job["spawned"]) * 1e9))
        self.clock = StepClock(began)
        self.tape = Tape(self.clock, self._write_window)
        self.patches = Patches()
        self.told = False
        self.ended = 0  # when the script's last line was done
        self.torch: dict[str, Any] = {}
        self.memory_fraction = job.get("memory_fraction")
        self.wants_deep = bool(job.get("deep"))
        self.wanted = job
        self.parent = (
            Parent() if any(job.get(name) for name in ("segments", "parity", "until")) else None
        )  # of a run nobody's end is ours
        self.deep: Any = None
        self.veto: Any = None
        fault_guard.report_to(self._write_fault)

    def torch_imported(self, torch: ModuleType, nanoseconds: int) -> None:
        if self.parent is not None:
            self.parent.end_if_gone()
        began = perf_counter_ns()
        try:
            self._put_on(torch, nanoseconds)
        finally:
            self.clock.worked(perf_counter_ns() - began)

    def _put_on(self, torch: ModuleType, nanoseconds: int) -> None:
        if self.veto is not None:
            self.veto.watch(torch)
        self.torch = describe(torch, nanoseconds)
        if version_of(torch) < OLDEST_TORCH:
            self.torch["passed_through"] = True
            return
        if self.memory_fraction is not None:
            try:
                memory_cap.cap(torch, self.memory_fraction)
            except Exception as error:
                fault_guard.fault("memory.cap", error)
        try:
            install(torch, self.tape, self.patches)
        except Exception:
            self.patches.take_off()
            raise
        if self.wants_deep:
            self._look_deep(torch)
        if any(self.wanted.get(name) for name in ("knobs", "segments", "parity", "auto", "until")):
            self._drive(torch)

    def _drive(self, torch: ModuleType) -> None:
        """Put knobs on: a profile's, or those that the front asks for in its trials."""
        from _flatout_agent.modes import driver
        from _flatout_agent.modes.auto_mode import AutoCourse
        from _flatout_agent.modes.parity_mode import ParityCourse
        from _flatout_agent.modes.profile_mode import ProfileCourse
        from _flatout_agent.modes.shortened_run import EarlyEnd
        from _flatout_agent.modes.trial_mode import SegmentsCourse

        knobs = dict(self.wanted.get("knobs") or {})
        if version_of(torch) < driver.OLDEST_FOR_KNOBS:
            self._write_line(
                "knobs", step=0, outcomes=driver.all_refused(self.wanted.get("knobs") or {}, self.torch), numerics={}
            )
            return
        knobs = dict(self.wanted.get("knobs") or {})
        course: driver.Course
        if self.wanted.get("parity"):
            course = ParityCourse(torch, self.run_dir, self.wanted["parity"], self.parent)
            knobs = dict(self.wanted["parity"].get("knobs") or {})
        elif self.wanted.get("segments"):
            course = SegmentsCourse(torch, self.run_dir, self.memory_fraction, bool(self.wanted.get("endless")), self.parent)
        elif self.wanted.get("auto"):
            course = AutoCourse(self.run_dir, knobs)
        else:
            about = (self.wanted.get(name) for name in ("profile_made_for", "plain", "put_off"))
            course = ProfileCourse(knobs, bool(self.wanted.get("knobs_check", True)), *about)
            if self.wanted.get("until"):
                course = EarlyEnd(course, self.main_ended, **self.wanted["until"], parent=self.parent)
        driver.Driver(torch, self.tape, self._write_line, course, driver.early_knobs(knobs))

    def _write_line(self, kind: str, **fields: Any) -> None:
        if not self._has_no_say():
            self._introduce()
            self.journal.write(kind, **fields)

    def _look_deep(self, torch: ModuleType) -> None:
        from _flatout_agent.modes.deep_look import schedule

        if version_of(torch) < schedule.OLDEST_TORCH:
            self.deep = schedule.Refusal(self.tape, self._write_deep)
            return
        self.tape.whole_only = True
        self.deep = schedule.DeepLook(torch, self.tape, self.patches, self.run_dir, self._write_deep, self._write_in_worker)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.deep.before_fork)

    def main_ended(self) -> None:
        """After the script's last line, before anything of torch's is taken down: the last look at what settings did."""
        others = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
        if os.getpid() != self.pid or self.tape.off or others:
            return  # what a thread of the script's still does may be the training itself
        try:
            if self.tape.own_lines is not None:
                self.tape.own_lines.end()
            self.ended = self.tape.main_ended()
            self._look_last()
            self.clock.worked(perf_counter_ns() - self.ended)
        except Exception as error:
            fault_guard.fault("main_ended", error)

    def _look_last(self) -> None:
        if self.tape.driver is not None:
            self.tape.driver.finish()
        if self.deep is not None:
            self.deep.finish()

    def finish(self) -> None:
        """At exit, after all other exit handlers: ours was registered first."""
        if os.getpid() != self.pid:
            return
        try:
            self.tape.tell()
            if not self.ended:
                self._look_last()
            clock = self.clock
            worth_telling = clock.steps or clock.backwards or clock.batches or clock.validation_batches
            self.tape.finish()
            if self._has_no_say():
                return
            if worth_telling or (self.torch and not is_multiprocessing_child()):
                self._write_window(perf_counter_ns())
                self._tell_of_error()
                self.journal.write("end", ended=time())
        except Exception as error:
            fault_guard.fault("finish", error)

    def _tell_of_error(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None or self.torch.get("passed_through"):
            return
        try:
            from _flatout_agent.timeline.hooks import script_error

            told = script_error.story(torch)
            if told is not None:
                self.journal.write(told[0], step=self.clock.steps, **told[1])
        except Exception as error:  # that it ended is still to be told
            fault_guard.fault("ending", error)

    def after_fork(self) -> None:
        """In a forked child: mostly a loader's worker, which stays silent; one that takes steps has its own account."""
        parent, self.pid = self.pid, os.getpid()
        try:
            self.forked = True
            self.told = False
            self.ended = 0
            self.journal = wire.Journal(self.run_dir, self.pid)
            self.clock.start_over()
            self.tape.start_over()
            self.tape.needs_steps = True
            self.tape.driver = self.tape.feed = self.tape.epochs = None
            if self.deep is not None:
                self.deep.after_fork()
        except Exception:
            self.pid, self.tape.owner = parent, 0  # not a word: what it would say is the parent's

    def _has_no_say(self) -> bool:
        """A loader's worker runs the user's code, not the user's loop; and so does a forked child without a step."""
        return is_loader_worker() or (self.forked and not self.clock.steps)

    def _write_window(self, now: int) -> None:
        if self._has_no_say():
            return
        try:
            self._introduce()
            look = self.tape.look.told(self.clock.samples + self.clock.samples_before) if self.tape.look else {}
            lines = self.tape.own_lines.told() if self.tape.own_lines else {}
            self.journal.write("window", t=now - self.clock.began, **totals_of(self.clock), **look, **lines)
        except OSError as error:
            self.tape.stop()  # a full disk: stop writing and measuring, training goes on
            fault_guard.fault("journal", error)

    def _introduce(self) -> None:
        if not self.told:
            self.told = True
            if self.forked:
                self._finish_with_multiprocessing()
            self.journal.write(
                "process",
                wire=wire.WIRE_VERSION,
                pid=self.pid,
                python=sys.version.split()[0],
                executable=sys.executable,
                rank=os.environ.get("RANK"),
                torch=self.torch,
            )
            if self.forked and self.wanted.get("knobs"):
                from _flatout_agent.modes import driver

                self.journal.write("knobs", step=0, outcomes=driver.none_in_a_fork(self.wanted["knobs"]), numerics={})

    def _finish_with_multiprocessing(self) -> None:
        """Its forked children leave by `os._exit`, without Python's exit handlers but with its own."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and is_multiprocessing_child():
            util.Finalize(None, self.finish, exitpriority=-1000)

    def _write_deep(self, **fields: Any) -> None:
        if not self._has_no_say():
            self._introduce()
            self.journal.write("deep", **fields)

    def _write_in_worker(self, **fields: Any) -> None:
        """A loader's worker is no training process, and does not introduce itself."""
        self.journal.write("deep", **fields)

    def _write_fault(self, where: str, text: str) -> None:
        if not self._has_no_say():
            self._introduce()
            self.journal.write("fault", where=where, text=text)


def install(torch: Any, tape: Tape, patches: Patches) -> Patches:
    """Put every observer on; `patches.take_off()` takes them off again. Gives those that are on the tensor class."""
    from _flatout_agent.timeline.hooks import (
        checkpoint_saves,
        compile_time,
        device_copies,
        evaluation_without_loader,
        garbage_collection,
        loader_wait,
        optimizer_steps,
    )
    from _flatout_agent.timeline.hooks.detailed_steps import CloseLook
    from _flatout_agent.timeline.hooks.hook_suspension import Resting
    from _flatout_agent.timeline.hooks.samples_from_model_inputs import Inputs
    from _flatout_agent.timeline.hooks.script_lines import OwnLines
    from _flatout_agent.timeline.hooks.step_sampling import Glances

    tape.look = CloseLook(torch)
    tape.look.reads.of_torch(torch)

    loader_wait.watch(torch, tape, patches)
    checkpoint_saves.watch(torch, tape, patches)
    evaluation_without_loader.watch(torch, tape, patches)
    garbage_collection.watch(tape, patches)
    patches.on_take_off(Inputs(torch, tape).take_off)
    steps = optimizer_steps.watch(torch, tape, patches)
    tape.glances = Glances(torch, tape, steps, torch.utils.data.dataloader._BaseDataLoaderIter)
    patches.on_take_off(tape.no_more_glances)
    on_tensors = Patches()
    device_copies.watch(torch, tape, on_tensors)
    patches.on_take_off(on_tensors.take_off)
    resting = Resting(tape.clock, on_tensors, tape.glances, lambda: device_copies.device_at_hand(torch))
    tape.look_for_device = resting.look_for_device
    look_again = resting.after_reading
    tape.after_reading.append(look_again)
    patches.on_take_off(lambda: tape.after_reading.remove(look_again))
    patches.on_take_off(lambda: setattr(tape, "look_for_device", lambda: None))
    compile_time.watch(tape, on_tensors, patches)
    tape.own_lines = own_lines = OwnLines(torch, tape)
    tape.after_reading.append(own_lines.after_reading)
    patches.on_take_off(lambda: tape.after_reading.remove(own_lines.after_reading))
    patches.on_take_off(own_lines.end)
    return on_tensors


def totals_of(clock: StepClock) -> dict[str, Any]:
    return {
        "steps": clock.steps,
        "samples": clock.samples + clock.samples_before,
        "batches": clock.batches,
        "beside": clock.beside,
        "unsized_batches": clock.unsized_batches,
        "validation_batches": clock.validation_batches,
        "foreign_batches": clock.foreign_batches,
        "backwards": clock.backwards,
        "phases": clock.totals,
        "turns": clock.turns,
        "evaluations": clock.evaluations,
        "recurring": {name: work.told() for name, work in clock.recurring.items() if work.count},
        "saves": clock.saves.told() if clock.saves.total else None,
        "script_outside": clock.script_outside,
        "put_on": clock.put_on,
        "gc": clock.collected,
        "copy_sampled": [clock.copy_device_ns, clock.copy_host_ns],
        "loaders": clock.loaders.told(),
        "warm": clock.warm,
    }


def describe(torch: Any, nanoseconds: int) -> dict[str, Any]:
    """What the process can say about its torch without starting CUDA."""
    return {
        "version": str(torch.__version__),
        "cuda": getattr(torch.version, "cuda", None),
        "hip": getattr(torch.version, "hip", None),
        "import_s": nanoseconds / 1e9,
    }


def version_of(torch: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2] if part.isdigit())


def is_loader_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(worker, "_worker_info", None) is not None


def is_multiprocessing_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def hold(job: dict[str, Any]) -> Any:
    """Put the protection of a trial on: before anything else that could fail. Gives what is to see torch's import, if any."""
    if job.get("write_guard"):
        from _flatout_agent.protection import write_guard

        write_guard.put_on(job["write_guard"])
    if job.get("network_guard"):
        from _flatout_agent.protection import network_guard

        network_guard.put_on(job["network_guard"])
    if job.get("veto"):
        from _flatout_agent.protection import windows_guard as veto

        return veto.put_on(job["veto"])
    return None


def begin() -> None:
    held = bool(os.environ.get(wire.HELD_VARIABLE))
    job = wire.read_job(os.environ, held)
    if held and not any((job or {}).get(name) for name in wire.HOLDING):
        raise RuntimeError("no protection in its job")  # a trial ends of it, see `sitecustomize`
    if job is None:
        return
    veto = hold(job)
    agent = Agent(job)
    agent.veto = veto
    atexit.register(agent.finish)
    before_teardown = getattr(threading, "_register_atexit", None)
    if before_teardown is not None:  # no public name; without it the end is seen at the last exit handler
        before_teardown(agent.main_ended)
    if hasattr(os, "register_at_fork"):
        if agent.parent is not None:
            os.register_at_fork(before=agent.parent.before_fork, after_in_child=agent.parent.after_fork)
        os.register_at_fork(after_in_child=agent.after_fork)
    after_import("torch", agent.torch_imported)
