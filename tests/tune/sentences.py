"""Drafts of the sentences of decisions, one per code: what `[tune]` in the catalogue of words is to say."""

SENTENCES = {
    "faster": "{knob} {value}: {gain:+.0f} % ± {margin:.0f}, kept",
    "faster-repaid": "{knob} {value}: {gain:+.0f} % ± {margin:.0f}, {build_s:.0f} s to build, "
    "repaid after {repaid_steps:,} steps: kept",
    "plainly-faster": "{knob} {value}: {gain:+.0f} % in {pairs} pairs, far outside the noise: kept",
    "plainly-faster-repaid": "{knob} {value}: {gain:+.0f} % in {pairs} pairs, far outside the noise, {build_s:.0f} s to build, "
    "repaid after {repaid_steps:,} steps: kept",
    "faster-together": "{knob} {value}: {gain:+.0f} % together with {others}, kept",
    "still-earns": "{knob} {value}: {gain:+.0f} % ± {margin:.0f} in the whole ({first_gain:+.0f} % when first tried), kept",
    "batch-fits": "batch {batch}: the largest that is safe ({peak} of {limit} bytes; {largest} ran in the probes), kept",
    "batch-fits-so-far": "batch {batch}: safe ({largest} ran in the probes); no time for larger ones, kept",
    "batch-ran": "batch {batch}: head-room left below {largest}, which ran; no memory was reported, kept",
    "batch-faster": "batch {batch}: {gain:+.0f} % samples/s; whether it learns faster is not shown ({why}), kept",
    "batch-learns-faster": "batch {batch}: {gain:+.0f} % samples/s, the same loss {times:.2f} times as soon, kept",
    "wanted-by-batch": "{knob} {value}: batch {batch} wants so many, and was judged with them, kept",
    "batch-idle": "batch {batch}: not faster any more, input gives {supply:.0f} samples/s at most, dropped",
    "batch-learns-slower": "batch {batch}: {gain:+.0f} % samples/s, but the same loss comes no sooner ({why})",
    "slower": "{knob} {value}: {gain:+.0f} %, dropped",
    "inside-noise": "{knob} {value}: {gain:+.1f} % ± {margin:.1f}, inside the noise ({noise:.1f} %): dropped",
    "not-repaid": "{knob} {value}: {gain:+.0f} % but {build_s:.0f} s to build, repaid after {repaid_steps:,} steps, "
    "you asked for {steps_planned:,}: dropped",
    "no-longer-earns": "{knob} {value}: {first_gain:+.0f} % when first tried, {gain:+.1f} % in the whole: dropped",
    "whole-unclear": "{knob} {value}: {gain:+.0f} %, {low:+.0f} to {high:+.0f}, {noise:.1f}",
    "whole-too-little": "{knob} {value}: {pairs} pairs, {gain:+.0f} %",
    "whole-not-faster": "{knob} {value}: the whole is not faster than the plain script ({gain:+.1f} %): dropped",
    "batch-holds": "batch {batch}: holds through an epoch's end, kept",
    "batch-dies": "batch {batch}: runs out of memory in the real loop, as all larger ones",
    "batch-no-larger": "batch {batch}: nothing larger is safe, kept as it is",
    "batch-not-faster": "batch {batch}: {gain:+.1f} % samples/s, dropped",
    "better-value": "{knob} {value}: {other} is better by another {gain:.0f} %",
    "refused": "{knob} {value}: not applied, because {why}",
    "already": "{knob} {value}: the script does it already",
    "fault": "{knob} {value}: failed ({status})",
    "fault-later": "{knob} {value}: failed later on ({status}), taken back",
    "unclear": "{knob} {value}: unknown: {gain:+.1f} % ± {margin:.1f} after {pairs} pairs",
    "too-little": "{knob} {value}: unknown after {pairs} pairs",
    "interrupted": "{knob} {value}: unknown, the run broke ({status})",
    "no-time": "{knob} {value}: not tried, it needs {needs_s:.0f} s and {left_s:.0f} s are left",
    "not-chosen": "{knob}: left out as you asked",
    "not-allowed": "{knob} {value}: not tried, only {allowed} is allowed",
    "cannot-repay": "{knob} {value}: not tried, your training takes {training_s:.0f} s",
    "loop-not-waiting": "{knob}: not tried, the loop is not waiting for it ({real:.0f} of {demand:.0f} samples/s)",
    "copy-hidden": "{knob}: not tried, the copy costs nothing ({with_copy:.0f} of {without_copy:.0f} samples/s)",
    "supply-reached": "{knob} {value}: the loop gets {real:.0f} of {supply:.0f} samples/s",
    "no-more-supply": "{knob}: more than {workers} give no more than {supply:.0f} samples/s",
    "input-is-the-wall": "{knob} {value}: input gives {supply:.0f} samples/s of {demand:.0f} that the device takes",
    "not-launch-bound": "{knob} {value}: not tried, the device is busy {busy:.0f} % of the time",
    "long-epochs": "{knob}: an epoch takes longer than the search",
    "only-in-tune": "{knob}: flatout tune can tell",
    "no-epochs": "{knob}: the loader has no epochs",
    "workers-live": "{knob}: the workers stay alive without it",
    "no-workers": "{knob}: not tried, there are no workers",
}


def sentence(decision):
    return SENTENCES[decision.code].format(**{**decision.params, "knob": decision.knob, "value": decision.value})
