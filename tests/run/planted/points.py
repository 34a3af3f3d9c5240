"""Where faults are planted in the agent, and where not, with the reason: every function of it is in one of the two.

Names as in `planting.py`; `@guarded` for those that make the script's own call, or are called by Python itself, and
hold their own work in a `try`.
"""

# ruff: noqa: E501 (a point and its reason stand in one line)

from __future__ import annotations

POINTS = """
timeline.samples_in_batch:size_of timeline.samples_in_batch:shape_of timeline.samples_in_batch:is_plain_tensor
timeline.samples_in_batch:parts_of timeline.samples_in_batch:_is_a timeline.samples_in_batch:_held

timeline.step_clock:StepClock.start_over
timeline.step_clock:StepClock.fetched timeline.step_clock:StepClock.loader_started timeline.step_clock:StepClock.let_go
timeline.step_clock:StepClock.exhausted
timeline.step_clock:StepClock.backward_began timeline.step_clock:StepClock.backward_ended
timeline.step_clock:StepClock.step_began timeline.step_clock:StepClock.step_ended timeline.step_clock:StepClock.stepped
timeline.step_clock:StepClock.glanced_row timeline.step_clock:StepClock.knows_inputs
timeline.step_clock:StepClock.evaluation_began timeline.step_clock:StepClock.evaluation_ended
timeline.step_clock:StepClock._evaluated
timeline.step_clock:StepClock._at_turn timeline.step_clock:StepClock.saved
timeline.step_clock:StepClock.copied timeline.step_clock:StepClock.waited
timeline.step_clock:StepClock.main_ended timeline.step_clock:StepClock.finish timeline.step_clock:StepClock._leave
timeline.step_clock:StepClock._back_to_hand timeline.step_clock:StepClock._train_on_batch timeline.step_clock:StepClock._take
timeline.step_clock:StepClock._settle

core.script_workers_at_exit:end_before_torch_waits

core.fault_guard:report_to core.fault_guard:fault@guarded

timeline.batches_in_flight:Account.__init__ timeline.batches_in_flight:Account.begin
timeline.batches_in_flight:Hand.__init__ timeline.batches_in_flight:Hand.account timeline.batches_in_flight:Hand.drop
timeline.batches_in_flight:Hand.look timeline.batches_in_flight:Hand.to_train_on timeline.batches_in_flight:Hand.full
timeline.batches_in_flight:Hand.tidy

core.object_numbers:Identities.__init__ core.object_numbers:Identities.of core.object_numbers:Identities._meet

core.after_import:_Watch.__init__ core.after_import:_Watch.find_spec@guarded core.after_import:_Watch._run_after
core.after_import:_call@guarded core.after_import:after_import

inject.sitecustomize:_start_agent

timeline.script_loaders:LoaderUse.__init__ timeline.script_loaders:LoaderUse.told
timeline.script_loaders:Loaders.__init__ timeline.script_loaders:Loaders.made timeline.script_loaders:Loaders.started
timeline.script_loaders:Loaders.told
timeline.script_loaders:settings_of timeline.script_loaders:calling_line timeline.script_loaders:is_ours
timeline.script_loaders:is_of_the_script

core.memory_cap:cap core.memory_cap:cap.set_on_every_device@guarded

core.module_hooks:put_on core.module_hooks:Hooks.__init__ core.module_hooks:Hooks.take_off core.module_hooks:are_walked
core.module_hooks:_without_ours core.module_hooks:_without_ours._has_any_global_hook@guarded

timeline.hooks.detailed_steps:CloseLook.__init__ timeline.hooks.detailed_steps:CloseLook.count_tokens
timeline.hooks.detailed_steps:CloseLook._is_whole
timeline.hooks.detailed_steps:CloseLook.mid_step timeline.hooks.detailed_steps:CloseLook.mid_step@guarded
timeline.hooks.detailed_steps:CloseLook._mid_step
timeline.hooks.detailed_steps:CloseLook.stepped timeline.hooks.detailed_steps:CloseLook.stepped@guarded
timeline.hooks.detailed_steps:CloseLook.told timeline.hooks.detailed_steps:CloseLook.told@guarded

timeline.hooks.garbage_collection:watch
timeline.hooks.compile_time:watch timeline.hooks.compile_time:watch.dynamo_arrived
timeline.hooks.compile_time:watch.dynamo_arrived@guarded
timeline.hooks.compile_time:_boundaries timeline.hooks.compile_time:_boundaries.start@guarded
timeline.hooks.compile_time:_boundaries.end@guarded
timeline.hooks.compile_time:_call_back timeline.hooks.compile_time:_call_back.register
timeline.hooks.compile_time:_call_back.clear@guarded
timeline.hooks.compile_time:_between timeline.hooks.compile_time:_lift timeline.hooks.compile_time:_put_back
timeline.hooks.compile_time:_run_ours_as_it_is timeline.hooks.compile_time:_our_code timeline.hooks.compile_time:_with_inner

timeline.hooks.cpu_contention:Cores.__init__ timeline.hooks.cpu_contention:Cores.begin
timeline.hooks.cpu_contention:Cores.told timeline.hooks.cpu_contention:Cores._own_so_far
timeline.hooks.cpu_contention:_children timeline.hooks.cpu_contention:_schedule timeline.hooks.cpu_contention:_time_used
timeline.hooks.cpu_contention:_sum
timeline.hooks.cpu_contention:_Sums.__init__ timeline.hooks.cpu_contention:_Sums.of

timeline.hooks.script_error:story timeline.hooks.script_error:_memory timeline.hooks.script_error:_holders
timeline.hooks.script_error:_bytes
timeline.hooks.script_error:_where timeline.hooks.script_error:_tensors timeline.hooks.script_error:_inside
timeline.hooks.script_error:_of_module

timeline.hooks.evaluation_without_loader:watch timeline.hooks.evaluation_without_loader:_noted_mode
timeline.hooks.evaluation_without_loader:_noted_mode.tell@guarded
timeline.hooks.evaluation_without_loader:may_train

timeline.hooks.step_sampling:Glances.__init__ timeline.hooks.step_sampling:Glances.begin_look
timeline.hooks.step_sampling:Glances.consider
timeline.hooks.step_sampling:Glances.is_plain timeline.hooks.step_sampling:Glances.learn
timeline.hooks.step_sampling:Glances.turn timeline.hooks.step_sampling:Glances.end
timeline.hooks.step_sampling:Glances._put_back
timeline.hooks.step_sampling:Glances.drain
timeline.hooks.step_sampling:Glances._of_batches timeline.hooks.step_sampling:Glances._row_is_full@guarded
timeline.hooks.sampled_step_rows:Batches.__init__ timeline.hooks.sampled_step_rows:Batches.begin
timeline.hooks.sampled_step_rows:Batches.drain timeline.hooks.sampled_step_rows:Batches.close
timeline.hooks.sampled_step_rows:Batches._count timeline.hooks.sampled_step_rows:Batches._note_times
timeline.hooks.sampled_step_rows:equal_sizes timeline.hooks.sampled_step_rows:equal_sizes@guarded
timeline.hooks.sampled_step_rows:EqualSizes.__init__ timeline.hooks.sampled_step_rows:EqualSizes.of_the_last
timeline.hooks.step_sampling:Glances._wanted_whole timeline.hooks.step_sampling:Glances._counted
timeline.hooks.step_sampling:Glances._divided

timeline.hooks.samples_from_model_inputs:Inputs.__init__ timeline.hooks.samples_from_model_inputs:Inputs._met
timeline.hooks.samples_from_model_inputs:Inputs.take_off
timeline.hooks.samples_from_model_inputs:Inputs.stepped timeline.hooks.samples_from_model_inputs:Inputs.stepped@guarded
timeline.hooks.samples_from_model_inputs:Inputs._stepped
timeline.hooks.samples_from_model_inputs:Inputs._may_begin
timeline.hooks.samples_from_model_inputs:Inputs._begin timeline.hooks.samples_from_model_inputs:Inputs._entered@guarded
timeline.hooks.samples_from_model_inputs:Inputs._left@guarded
timeline.hooks.samples_from_model_inputs:Inputs._conclude timeline.hooks.samples_from_model_inputs:Inputs._of
timeline.hooks.samples_from_model_inputs:Inputs.end
timeline.hooks.samples_from_model_inputs:Calls.__init__ timeline.hooks.samples_from_model_inputs:is_tokens

timeline.hooks.device_lag:Lag.__init__ timeline.hooks.device_lag:Lag.sample timeline.hooks.device_lag:Lag._resolve
timeline.hooks.device_lag:Lag.told

timeline.hooks.script_listeners:Listeners.__init__ timeline.hooks.script_listeners:Listeners.hear

timeline.hooks.loader_wait:watch timeline.hooks.loader_wait:Iterators.__init__ timeline.hooks.loader_wait:Iterators.over@guarded
timeline.hooks.loader_wait:Iterators.started timeline.hooks.loader_wait:Iterators.started.let_go@guarded
timeline.hooks.loader_wait:Iterators.turned_to
timeline.hooks.loader_wait:_timed_next timeline.hooks.loader_wait:_timed_next.__next__@guarded
timeline.hooks.loader_wait:_timed_iter timeline.hooks.loader_wait:_timed_iter.__iter__@guarded
timeline.hooks.loader_wait:_noted_init timeline.hooks.loader_wait:_noted_init.__init__@guarded

timeline.hooks.loss_values:Losses.__init__ timeline.hooks.loss_values:Losses.sample timeline.hooks.loss_values:Losses._send
timeline.hooks.loss_values:Losses._resolve
timeline.hooks.loss_values:Losses._add timeline.hooks.loss_values:Losses.told timeline.hooks.loss_values:number_in_memory

timeline.hooks.device_memory:Thinned.__init__ timeline.hooks.device_memory:Thinned.add
timeline.hooks.device_memory:MemoryState.__init__ timeline.hooks.device_memory:MemoryState.sample
timeline.hooks.device_memory:MemoryState.told

timeline.hooks.script_lines:OwnLines.__init__ timeline.hooks.script_lines:OwnLines.after_reading
timeline.hooks.script_lines:OwnLines.told
timeline.hooks.script_lines:OwnLines.end@guarded timeline.hooks.script_lines:OwnLines._begin
timeline.hooks.script_lines:OwnLines._look_on@guarded
timeline.hooks.script_lines:OwnLines._newest timeline.hooks.script_lines:OwnLines._add
timeline.hooks.script_lines:OwnLines._site

timeline.hooks.device_reads:Site.__init__
timeline.hooks.device_reads:Reads.__init__ timeline.hooks.device_reads:Reads.of_torch timeline.hooks.device_reads:Reads.waited
timeline.hooks.device_reads:Reads.copied
timeline.hooks.device_reads:Reads.told

timeline.hooks.precision_and_device:of_graph timeline.hooks.precision_and_device:of_optimizer
timeline.hooks.precision_and_device:tf32 timeline.hooks.precision_and_device:tf32@guarded

timeline.hooks.hook_suspension:Resting.__init__ timeline.hooks.hook_suspension:Resting.after_reading
timeline.hooks.hook_suspension:Resting._begin
timeline.hooks.hook_suspension:Resting._in_the_loop timeline.hooks.hook_suspension:Resting._most
timeline.hooks.hook_suspension:Resting._told_of
timeline.hooks.hook_suspension:Resting.look_for_device

timeline.hooks.checkpoint_saves:watch timeline.hooks.checkpoint_saves:watch.save@guarded
timeline.hooks.checkpoint_saves:note_file

timeline.hooks.optimizer_steps:watch timeline.hooks.optimizer_steps:compiling_test
timeline.hooks.optimizer_steps:Steps.__init__ timeline.hooks.optimizer_steps:Steps.only
timeline.hooks.optimizer_steps:Steps.number_of timeline.hooks.optimizer_steps:Steps.glance
timeline.hooks.optimizer_steps:Steps.put_back timeline.hooks.optimizer_steps:Steps.take_off
timeline.hooks.optimizer_steps:Steps._exchange
timeline.hooks.optimizer_steps:_began_hook timeline.hooks.optimizer_steps:_began_hook.step_began@guarded
timeline.hooks.optimizer_steps:_ended_hook timeline.hooks.optimizer_steps:_ended_hook.step_ended@guarded
timeline.hooks.optimizer_steps:_timed_backward timeline.hooks.optimizer_steps:_timed_backward.backward@guarded

timeline.hooks.device_copies:device_at_hand timeline.hooks.device_copies:watch
timeline.hooks.device_copies:MethodTwin.__init__ timeline.hooks.device_copies:_twin
timeline.hooks.device_copies:_twin.Twin.__get__@guarded
timeline.hooks.device_copies:Asking.__init__ timeline.hooks.device_copies:Asking.on_host@guarded
timeline.hooks.device_copies:_timed_move timeline.hooks.device_copies:_timed_move.move@guarded
timeline.hooks.device_copies:_event_before@guarded
timeline.hooks.device_copies:_timed_read timeline.hooks.device_copies:_timed_read.read@guarded
timeline.hooks.device_copies:_timed_wait timeline.hooks.device_copies:_timed_wait.synchronize@guarded
timeline.hooks.device_copies:CopySampler.__init__ timeline.hooks.device_copies:CopySampler.before
timeline.hooks.device_copies:CopySampler.after
timeline.hooks.device_copies:CopySampler._record timeline.hooks.device_copies:CopySampler._resolve

core.patches:Patches.__init__ core.patches:Patches.put core.patches:Patches.on_take_off core.patches:Patches.lift
core.patches:Patches.put_back
core.patches:Patches.rest core.patches:Patches.wake core.patches:Patches.withhold core.patches:Patches.take_off
core.patches:Patches.take_off@guarded
core.patches:dress core.patches:passed_over core.patches:_signature_of core.patches:leave_us_out@guarded

timeline.phase_totals:PhaseTotals.__init__ timeline.phase_totals:PhaseTotals.start_over
timeline.phase_totals:PhaseTotals.compiled timeline.phase_totals:PhaseTotals.worked timeline.phase_totals:PhaseTotals.saved
timeline.phase_totals:PhaseTotals._give timeline.phase_totals:PhaseTotals._of_a_batch
timeline.phase_totals:PhaseTotals._forget_inside
timeline.phase_totals:PhaseTotals._share_out

timeline.recurring_work:Recurring.__init__ timeline.recurring_work:Recurring.met timeline.recurring_work:Recurring.told
timeline.recurring_work:Saves.__init__ timeline.recurring_work:Saves.met timeline.recurring_work:Saves.told

timeline.step_grouping:Rounds.__init__ timeline.step_grouping:Rounds.count timeline.step_grouping:Rounds._take_turn

start:begin start:hold start:install start:totals_of start:describe start:version_of
start:is_loader_worker start:is_multiprocessing_child
start:Agent.__init__ start:Agent.torch_imported start:Agent._put_on start:Agent._put_on@guarded
start:Agent._drive start:Agent._look_deep start:Agent._write_line start:Agent._write_deep
start:Agent.main_ended@guarded start:Agent._look_last start:Agent.finish@guarded
start:Agent._tell_of_error start:Agent._tell_of_error@guarded start:Agent.after_fork@guarded
start:Agent._has_no_say start:Agent._introduce start:Agent._finish_with_multiprocessing
start:Agent._write_window start:Agent._write_fault

timeline.event_buffer:Tape.__init__ timeline.event_buffer:Tape.start_over timeline.event_buffer:Tape.stop
timeline.event_buffer:Tape.inside timeline.event_buffer:Tape.meet timeline.event_buffer:Tape.tick
timeline.event_buffer:Tape.read
timeline.event_buffer:Tape.something_new timeline.event_buffer:Tape.batch_again timeline.event_buffer:Tape.no_more_glances
timeline.event_buffer:Tape.tick_after_glances
timeline.event_buffer:Tape.tell timeline.event_buffer:Tape.tell@guarded timeline.event_buffer:Tape.main_ended
timeline.event_buffer:Tape.finish timeline.event_buffer:Tape.note

wire:journal_name wire:read_job wire:Journal.__init__ wire:Journal.write wire:Journal._open wire:_identity_of
""".split()  # noqa: SIM905 (a list literal would take a line for each)

# A fault that brings the point about: nothing else does.
BROUGHT_ABOUT_BY = {
    "core.fault_guard:fault@guarded": "timeline.hooks.precision_and_device:of_graph",
    "timeline.hooks.samples_from_model_inputs:Inputs.take_off": "timeline.hooks.compile_time:watch",
    "timeline.hooks.optimizer_steps:Steps.take_off": "timeline.hooks.compile_time:watch",
    "core.patches:Patches.take_off": "timeline.hooks.compile_time:watch",
    "core.patches:Patches.take_off@guarded": "timeline.hooks.compile_time:watch",
    "start:Agent._write_fault": "timeline.hooks.precision_and_device:of_graph",
    "timeline.event_buffer:Tape.no_more_glances": "timeline.hooks.compile_time:watch",
}

# Reached only while `import torch` runs: in a process that has not done it yet.
WHILE_IMPORTING = [
    "core.after_import:_Watch.__init__",
    "core.after_import:_Watch.find_spec@guarded",
    "core.after_import:_Watch._run_after",
    "core.after_import:_call@guarded",
]

NOT_HOOKS = {
    "timeline.step_clock:StepClock.glanced": "where a row of glances is not plain, which is chance: tests/agent/test_glances.py",
    "timeline.step_clock:StepClock._divide": "the same",
    "timeline.step_clock:StepClock.glanced_backward": "where a step is left out at a glance, which is chance: tests/agent/test_glances.py",
    "timeline.step_clock:StepClock.is_trained_on": "of knobs alone, whose driver holds it in a try: tests/agent/test_lines_of_loaders.py",
    "timeline.hooks.loader_wait:Iterators.began_elsewhere": "a training in a thread, held in a try: tests/tune/test_loaders_in_trials.py",
    "timeline.hooks.loader_wait:Iterators.catch_up": "the same, in the hook that found the thread",
    "timeline.hooks.garbage_collection:watch.collected": "of the collector, when it likes; adds two numbers, and Python keeps its errors to itself",
    "timeline.hooks.garbage_collection:watch.take_off": "as the observers are taken off, each in a try",
    "core.script_workers_at_exit:end_before_torch_waits.end": "up to torch 2.11, and held in a try: tests/apply/test_worker_exit.py",
    "core.object_numbers:Identities._meet.gone": "two dict.pop in a weak reference's callback, whose errors Python keeps to itself",
    "core.after_import:_Watch._run_after.exec_module": "the script's own import; what follows it is _call",
    "inject.sitecustomize:_chain": "runs the user's own sitecustomize, whose errors are the user's",
    "inject.sitecustomize:_leave_the_path": "compares strings; failing, it could not even give way to the user's own",
    "timeline.hooks.compile_time:_between.compile_frame": "makes the script's own call, and calls start and end, which are guarded",
    "timeline.hooks.cpu_contention:own_time_used": "of load_by_others.py alone",
    "timeline.hooks.evaluation_without_loader:_noted_mode.train": "makes the script's own call; what follows it is tell",
    "core.patches:Patches.put_over": "of knobs alone; its caller holds it in a try: tests/apply/test_moving.py",
    "timeline.hooks.step_sampling:Glances._give_up": "after a fault of ours, and guarded as a whole: tests/agent/test_glances.py",
    "timeline.hooks.step_sampling:Glances._of_batches.__next__": "makes the script's own call; what follows it is _next_raised",
    "timeline.hooks.step_sampling:Glances._next_raised": "where an epoch ends at a glance, which is chance: tests/agent/test_glances.py",
    "timeline.hooks.step_sampling:Glances._next_not_noted": "after a fault of ours in a row, and guarded: tests/agent/test_glances.py",
    "timeline.hooks.step_sampling:Glances._of_ends": "a loop without a loader: tests/agent/test_glances.py",
    "timeline.hooks.step_sampling:Glances._of_ends.step_ended": "the same, and guarded as a whole",
    "timeline.hooks.load_by_others:OtherLoad.__init__": "knobs on a running script: called by Driver.stepped",
    "timeline.hooks.load_by_others:OtherLoad.took_the_cores": "the same",
    "timeline.hooks.load_by_others:_busy_ns": "the same",
    "timeline.hooks.sampled_step_rows:Batches._tell_each": "where a row of glances is not plain, which is chance: tests/agent/test_glances.py",
    "timeline.hooks.sampled_step_rows:Batches._tell_end": "the same",
    "timeline.hooks.sampled_step_rows:Ends.__init__": "a loop without a loader: tests/agent/test_glances.py",
    "timeline.hooks.sampled_step_rows:Ends.begin": "the same",
    "timeline.hooks.sampled_step_rows:Ends.drain": "the same",
    "timeline.hooks.sampled_step_rows:Ends.close": "the same",
    "timeline.hooks.step_sampling:Glances.forget": "in a forked child alone, inside Agent.after_fork's guard",
    "timeline.hooks.device_copies:MethodTwin.__get__": "the attribute itself",
    "timeline.hooks.device_copies:MethodTwin.__call__": "the script's own call, handed on",
    "timeline.hooks.device_copies:MethodTwin.__eq__": "an answer about the original",
    "timeline.hooks.device_copies:MethodTwin.__hash__": "an answer about the original",
    "timeline.hooks.device_copies:MethodTwin.__getattr__": "an answer about the original",
    "timeline.hooks.device_copies:MethodTwin.__repr__": "an answer about the original",
    "timeline.hooks.device_copies:MethodTwin.__reduce__": "an answer about the original",
    "start:Agent._write_in_worker": "called by the deep look alone, inside its own guards",
    "timeline.event_buffer:Tape.off": "an attribute of the tape, asked by nobody in a hook",
    "wire:answer_name": "a name for a file, asked by the search",
    "wire:job_text": "the front's side",
    "wire:new_job": "the front's side",
    "wire:parse_journal": "the front's side",
}

# Parts with tests of their own for what they do when they fail.
ELSEWHERE = {
    "core.parent_process": "trials and runs that tune times, which the front's keeper ends as well: tests/tune/test_leftovers.py",
    "knobs": "put on by Driver.stepped, which gives up by itself: tests/apply",
    "modes": "called by Driver.stepped; the deep look: tests/deep; a run that is ended early: tests/tune/test_early_end.py",
    "protection": "trials alone, and fails closed: tests/protection, tests/tune/test_watched.py",
    "trial": "trials: a fault in it ends a trial, and tune counts it as one",
}
