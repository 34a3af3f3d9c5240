"""Where faults are planted in the agent, and where not, with the reason: every function of it is in one of the two.

Names as in `planting.py`; `@guarded` for those that make the script's own call, or are called by Python itself, and
hold their own work in a `try`.
"""

from __future__ import annotations

POINTS = """
batch:size_of batch:shape_of batch:is_plain_tensor batch:parts_of batch:_is_a batch:_held

clock:StepClock.start_over
clock:StepClock.fetched clock:StepClock.loader_started clock:StepClock.let_go clock:StepClock.exhausted
clock:StepClock.backward_began clock:StepClock.backward_ended
clock:StepClock.step_began clock:StepClock.step_ended clock:StepClock.stepped
clock:StepClock.glanced_row clock:StepClock.knows_inputs
clock:StepClock.evaluation_began clock:StepClock.evaluation_ended clock:StepClock._evaluated
clock:StepClock._at_turn clock:StepClock.saved
clock:StepClock.copied clock:StepClock.waited
clock:StepClock.main_ended clock:StepClock.finish clock:StepClock._leave
clock:StepClock._back_to_hand clock:StepClock._train_on_batch clock:StepClock._take clock:StepClock._settle

exit_order:end_before_torch_waits

guard:report_to guard:fault@guarded

hand:Account.__init__ hand:Account.begin
hand:Hand.__init__ hand:Hand.account hand:Hand.drop hand:Hand.look hand:Hand.to_train_on hand:Hand.full hand:Hand.tidy

identities:Identities.__init__ identities:Identities.of identities:Identities._meet

imports:_Watch.__init__ imports:_Watch.find_spec@guarded imports:_Watch._run_after
imports:_call@guarded imports:after_import

inject.sitecustomize:_start_agent

loaders:LoaderUse.__init__ loaders:LoaderUse.told
loaders:Loaders.__init__ loaders:Loaders.made loaders:Loaders.started loaders:Loaders.told
loaders:settings_of loaders:calling_line loaders:is_ours loaders:is_of_the_script

memory:cap memory:cap.set_on_every_device@guarded

module_hooks:put_on module_hooks:Hooks.__init__ module_hooks:Hooks.take_off module_hooks:are_walked
module_hooks:_without_ours module_hooks:_without_ours._has_any_global_hook@guarded

observe.closely:CloseLook.__init__ observe.closely:CloseLook.count_tokens observe.closely:CloseLook._is_whole
observe.closely:CloseLook.mid_step observe.closely:CloseLook.mid_step@guarded observe.closely:CloseLook._mid_step
observe.closely:CloseLook.stepped observe.closely:CloseLook.stepped@guarded
observe.closely:CloseLook.told observe.closely:CloseLook.told@guarded

observe.compiling:watch observe.compiling:watch.dynamo_arrived observe.compiling:watch.dynamo_arrived@guarded
observe.compiling:_boundaries observe.compiling:_boundaries.start@guarded observe.compiling:_boundaries.end@guarded
observe.compiling:_call_back observe.compiling:_call_back.register observe.compiling:_call_back.clear@guarded
observe.compiling:_between observe.compiling:_lift observe.compiling:_put_back
observe.compiling:_run_ours_as_it_is observe.compiling:_our_code observe.compiling:_with_inner

observe.cores:Cores.__init__ observe.cores:Cores.begin observe.cores:Cores.told observe.cores:Cores._own_so_far
observe.cores:_children observe.cores:_schedule observe.cores:_time_used observe.cores:_sum
observe.cores:_Sums.__init__ observe.cores:_Sums.of

observe.ending:story observe.ending:_memory observe.ending:_holders observe.ending:_bytes
observe.ending:_where observe.ending:_tensors observe.ending:_inside observe.ending:_of_module

observe.evaluating:watch observe.evaluating:_noted_mode observe.evaluating:_noted_mode.tell@guarded
observe.evaluating:may_train

observe.glances:Glances.__init__ observe.glances:Glances.begin_look observe.glances:Glances.consider
observe.glances:Glances.is_plain observe.glances:Glances.learn
observe.glances:Glances.turn observe.glances:Glances.end observe.glances:Glances._put_back
observe.glances:Glances.drain
observe.glances:Glances._of_batches observe.glances:Glances._row_is_full@guarded
observe.rows:Batches.__init__ observe.rows:Batches.begin observe.rows:Batches.drain observe.rows:Batches.close
observe.rows:Batches._count observe.rows:Batches._note_times
observe.rows:equal_sizes observe.rows:equal_sizes@guarded
observe.rows:EqualSizes.__init__ observe.rows:EqualSizes.of_the_last
observe.glances:Glances._wanted_whole observe.glances:Glances._counted observe.glances:Glances._divided

observe.inputs:Inputs.__init__ observe.inputs:Inputs._met observe.inputs:Inputs.take_off
observe.inputs:Inputs.stepped observe.inputs:Inputs.stepped@guarded observe.inputs:Inputs._stepped
observe.inputs:Inputs._may_begin
observe.inputs:Inputs._begin observe.inputs:Inputs._entered@guarded observe.inputs:Inputs._left@guarded
observe.inputs:Inputs._conclude observe.inputs:Inputs._of observe.inputs:Inputs.end
observe.inputs:Calls.__init__ observe.inputs:is_tokens

observe.lag:Lag.__init__ observe.lag:Lag.sample observe.lag:Lag._resolve observe.lag:Lag.told

observe.listeners:Listeners.__init__ observe.listeners:Listeners.hear

observe.loader:watch observe.loader:Iterators.__init__ observe.loader:Iterators.over@guarded
observe.loader:Iterators.started observe.loader:Iterators.started.let_go@guarded observe.loader:Iterators.turned_to
observe.loader:_timed_next observe.loader:_timed_next.__next__@guarded
observe.loader:_timed_iter observe.loader:_timed_iter.__iter__@guarded
observe.loader:_noted_init observe.loader:_noted_init.__init__@guarded

observe.losses:Losses.__init__ observe.losses:Losses.sample observe.losses:Losses._send observe.losses:Losses._resolve
observe.losses:Losses._add observe.losses:Losses.told observe.losses:number_in_memory

observe.memory_state:Thinned.__init__ observe.memory_state:Thinned.add
observe.memory_state:MemoryState.__init__ observe.memory_state:MemoryState.sample observe.memory_state:MemoryState.told

observe.own_lines:OwnLines.__init__ observe.own_lines:OwnLines.after_reading observe.own_lines:OwnLines.told
observe.own_lines:OwnLines.end@guarded observe.own_lines:OwnLines._begin observe.own_lines:OwnLines._look_on@guarded
observe.own_lines:OwnLines._newest observe.own_lines:OwnLines._add observe.own_lines:OwnLines._site

observe.reads:Site.__init__
observe.reads:Reads.__init__ observe.reads:Reads.of_torch observe.reads:Reads.waited observe.reads:Reads.copied
observe.reads:Reads.told

observe.regime:of_graph observe.regime:of_optimizer observe.regime:tf32 observe.regime:tf32@guarded

observe.resting:Resting.__init__ observe.resting:Resting.after_reading observe.resting:Resting._begin
observe.resting:Resting._in_the_loop observe.resting:Resting._most observe.resting:Resting._told_of
observe.resting:Resting.look_for_device

observe.saving:watch observe.saving:watch.save@guarded observe.saving:note_file

observe.steps:watch observe.steps:compiling_test
observe.steps:Steps.__init__ observe.steps:Steps.only observe.steps:Steps.number_of observe.steps:Steps.glance
observe.steps:Steps.put_back observe.steps:Steps.take_off observe.steps:Steps._exchange
observe.steps:_began_hook observe.steps:_began_hook.step_began@guarded
observe.steps:_ended_hook observe.steps:_ended_hook.step_ended@guarded
observe.steps:_timed_backward observe.steps:_timed_backward.backward@guarded

observe.transfers:device_at_hand observe.transfers:watch
observe.transfers:MethodTwin.__init__ observe.transfers:_twin observe.transfers:_twin.Twin.__get__@guarded
observe.transfers:Asking.__init__ observe.transfers:Asking.on_host@guarded
observe.transfers:_timed_move observe.transfers:_timed_move.move@guarded observe.transfers:_event_before@guarded
observe.transfers:_timed_read observe.transfers:_timed_read.read@guarded
observe.transfers:_timed_wait observe.transfers:_timed_wait.synchronize@guarded
observe.transfers:CopySampler.__init__ observe.transfers:CopySampler.before observe.transfers:CopySampler.after
observe.transfers:CopySampler._record observe.transfers:CopySampler._resolve

patch:Patches.__init__ patch:Patches.put patch:Patches.on_take_off patch:Patches.lift patch:Patches.put_back
patch:Patches.rest patch:Patches.wake patch:Patches.withhold patch:Patches.take_off patch:Patches.take_off@guarded
patch:dress patch:passed_over patch:_signature_of patch:leave_us_out@guarded

phase_totals:PhaseTotals.__init__ phase_totals:PhaseTotals.start_over
phase_totals:PhaseTotals.compiled phase_totals:PhaseTotals.worked phase_totals:PhaseTotals.saved
phase_totals:PhaseTotals._give phase_totals:PhaseTotals._of_a_batch phase_totals:PhaseTotals._forget_inside
phase_totals:PhaseTotals._share_out

recurring:Recurring.__init__ recurring:Recurring.met recurring:Recurring.told
recurring:Saves.__init__ recurring:Saves.met recurring:Saves.told

rounds:Rounds.__init__ rounds:Rounds.count rounds:Rounds._take_turn

start:begin start:hold start:install start:totals_of start:describe start:version_of
start:is_loader_worker start:is_multiprocessing_child
start:Agent.__init__ start:Agent.torch_imported start:Agent._put_on start:Agent._put_on@guarded
start:Agent._drive start:Agent._look_deep start:Agent._write_line start:Agent._write_deep
start:Agent.main_ended@guarded start:Agent._look_last start:Agent.finish@guarded
start:Agent._tell_of_error start:Agent._tell_of_error@guarded start:Agent.after_fork@guarded
start:Agent._has_no_say start:Agent._introduce start:Agent._finish_with_multiprocessing
start:Agent._write_window start:Agent._write_fault

tape:Tape.__init__ tape:Tape.start_over tape:Tape.stop tape:Tape.inside tape:Tape.meet tape:Tape.tick tape:Tape.read
tape:Tape.something_new tape:Tape.batch_again tape:Tape.no_more_glances tape:Tape.tick_after_glances
tape:Tape.tell tape:Tape.tell@guarded tape:Tape.main_ended tape:Tape.finish tape:Tape.note

wire:journal_name wire:read_job wire:Journal.__init__ wire:Journal.write wire:Journal._open wire:_identity_of
""".split()  # noqa: SIM905 (a list literal would take a line for each)

# A fault that brings the point about: nothing else does.
BROUGHT_ABOUT_BY = {
    "guard:fault@guarded": "observe.regime:of_graph",
    "observe.inputs:Inputs.take_off": "observe.compiling:watch",
    "observe.steps:Steps.take_off": "observe.compiling:watch",
    "patch:Patches.take_off": "observe.compiling:watch",
    "patch:Patches.take_off@guarded": "observe.compiling:watch",
    "start:Agent._write_fault": "observe.regime:of_graph",
    "tape:Tape.no_more_glances": "observe.compiling:watch",
}

# Reached only while `import torch` runs: in a process that has not done it yet.
WHILE_IMPORTING = [
    "imports:_Watch.__init__",
    "imports:_Watch.find_spec@guarded",
    "imports:_Watch._run_after",
    "imports:_call@guarded",
]

NOT_HOOKS = {
    "clock:StepClock.glanced": "where a row of glances is not plain, which is chance: tests/agent/test_glances.py",
    "clock:StepClock._divide": "the same",
    "clock:StepClock.glanced_backward": "where a step is left out at a glance, which is chance: tests/agent/test_glances.py",
    "clock:StepClock.is_trained_on": "of knobs alone, whose driver holds it in a try: tests/agent/test_lines_of_loaders.py",
    "observe.loader:Iterators.began_elsewhere": "a training in a thread, held in a try: tests/tune/test_loaders_in_trials.py",
    "observe.loader:Iterators.catch_up": "the same, in the hook that found the thread",
    "exit_order:end_before_torch_waits.end": "up to torch 2.11, and held in a try: tests/apply/test_worker_exit.py",
    "identities:Identities._meet.gone": "two dict.pop in a weak reference's callback, whose errors Python keeps to itself",
    "imports:_Watch._run_after.exec_module": "the script's own import; what follows it is _call",
    "inject.sitecustomize:_chain": "runs the user's own sitecustomize, whose errors are the user's",
    "inject.sitecustomize:_leave_the_path": "compares strings; failing, it could not even give way to the user's own",
    "observe.compiling:_between.compile_frame": "makes the script's own call, and calls start and end, which are guarded",
    "observe.cores:own_time_used": "of other_load.py alone",
    "observe.evaluating:_noted_mode.train": "makes the script's own call; what follows it is tell",
    "patch:Patches.put_over": "of knobs alone; its caller holds it in a try: tests/apply/test_moving.py",
    "observe.glances:Glances._give_up": "after a fault of ours, and guarded as a whole: tests/agent/test_glances.py",
    "observe.glances:Glances._of_batches.__next__": "makes the script's own call; what follows it is _next_raised",
    "observe.glances:Glances._next_raised": "where an epoch ends at a glance, which is chance: tests/agent/test_glances.py",
    "observe.glances:Glances._next_not_noted": "after a fault of ours in a row, and guarded: tests/agent/test_glances.py",
    "observe.glances:Glances._of_ends": "a loop without a loader: tests/agent/test_glances.py",
    "observe.glances:Glances._of_ends.step_ended": "the same, and guarded as a whole",
    "observe.other_load:OtherLoad.__init__": "knobs on a running script: called by Driver.stepped",
    "observe.other_load:OtherLoad.took_the_cores": "the same",
    "observe.other_load:_busy_ns": "the same",
    "observe.rows:Batches._tell_each": "where a row of glances is not plain, which is chance: tests/agent/test_glances.py",
    "observe.rows:Batches._tell_end": "the same",
    "observe.rows:Ends.__init__": "a loop without a loader: tests/agent/test_glances.py",
    "observe.rows:Ends.begin": "the same",
    "observe.rows:Ends.drain": "the same",
    "observe.rows:Ends.close": "the same",
    "observe.glances:Glances.forget": "in a forked child alone, inside Agent.after_fork's guard",
    "observe.transfers:MethodTwin.__get__": "the attribute itself",
    "observe.transfers:MethodTwin.__call__": "the script's own call, handed on",
    "observe.transfers:MethodTwin.__eq__": "an answer about the original",
    "observe.transfers:MethodTwin.__hash__": "an answer about the original",
    "observe.transfers:MethodTwin.__getattr__": "an answer about the original",
    "observe.transfers:MethodTwin.__repr__": "an answer about the original",
    "observe.transfers:MethodTwin.__reduce__": "an answer about the original",
    "start:Agent._write_in_worker": "called by the deep look alone, inside its own guards",
    "tape:Tape.off": "an attribute of the tape, asked by nobody in a hook",
    "wire:answer_name": "a name for a file, asked by the search",
    "wire:job_text": "the front's side",
    "wire:new_job": "the front's side",
    "wire:parse_journal": "the front's side",
}

# Parts with tests of their own for what they do when they fail.
ELSEWHERE = {
    "apply": "knobs: tests/apply",
    "auto": "knobs on a running script: called by Driver.stepped",
    "books": "trials: called by Driver.stepped",
    "compose": "trials: called by Driver.stepped",
    "deep": "the deep look: tests/deep",
    "early_end": "runs that tune times: called by Driver.stepped; a fault of its feed ends one: tests/tune/test_early_end.py",
    "feeding": "trials: a fault in it ends a trial, and tune counts it as one",
    "supply": "trials: a fault in it ends a trial, and tune counts it as one",
    "drive": "knobs on a running script: gives up by itself (Driver.stepped)",
    "first_step": "trials: called by Driver.stepped, and guards its own hook: tests/agent/test_first_step.py",
    "foretelling": "trials: called by Driver.stepped, and guards each knob: tests/apply/test_foretelling.py",
    "parent": "trials and runs that tune times, which the front's keeper ends as well: tests/tune/test_leftovers.py",
    "parity": "trials: called by Driver.stepped",
    "parts": "trials: called by Driver.stepped",
    "protection": "trials alone, and fails closed: tests/protection",
    "profile": "knobs on a running script: called by Driver.stepped",
    "recheck": "knobs on a running script: called by Driver.stepped",
    "replay": "trials: called by Driver.stepped",
    "segments": "trials: called by Driver.stepped",
    "step_times": "trials: called by Driver.stepped",
    "timing": "knobs on a running script: called by Driver.stepped",
    "veto": "trials alone, and fails closed: tests/tune/test_watched.py",
}
