"""Why a knob was kept or not: the codes of decisions, each with the parameters that its sentence needs.

A test holds every decision of the imagined machines to this table, and the drafts of the sentences to the parameters.
"""

from __future__ import annotations

from flatout.tune.model import Verdict

REASONS: dict[str, tuple[Verdict, frozenset[str]]] = {
    "faster": (Verdict.KEPT, frozenset({"gain", "margin"})),
    "faster-repaid": (Verdict.KEPT, frozenset({"gain", "margin", "build_s", "repaid_steps"})),
    "plainly-faster": (Verdict.KEPT, frozenset({"gain", "pairs"})),
    "plainly-faster-repaid": (Verdict.KEPT, frozenset({"gain", "pairs", "build_s", "repaid_steps"})),
    "faster-together": (Verdict.KEPT, frozenset({"gain", "others"})),
    "still-earns": (Verdict.KEPT, frozenset({"gain", "margin", "first_gain"})),
    "batch-fits": (Verdict.KEPT, frozenset({"batch", "largest", "peak", "limit"})),
    "batch-fits-so-far": (Verdict.KEPT, frozenset({"batch", "largest", "peak", "limit"})),
    "batch-holds": (Verdict.KEPT, frozenset({"batch"})),
    "batch-dies": (Verdict.FAILED, frozenset({"batch"})),
    "batch-ran": (Verdict.KEPT, frozenset({"batch", "largest"})),
    "batch-faster": (Verdict.KEPT, frozenset({"batch", "gain", "why"})),
    "batch-learns-faster": (Verdict.KEPT, frozenset({"batch", "gain", "times"})),
    "wanted-by-batch": (Verdict.KEPT, frozenset({"batch"})),
    "batch-idle": (Verdict.DROPPED, frozenset({"batch", "supply"})),
    "batch-learns-slower": (Verdict.DROPPED, frozenset({"batch", "gain", "times", "why"})),
    "slower": (Verdict.DROPPED, frozenset({"gain"})),
    "inside-noise": (Verdict.DROPPED, frozenset({"gain", "margin", "noise"})),
    "not-repaid": (Verdict.DROPPED, frozenset({"gain", "build_s", "repaid_steps", "steps_planned"})),
    "no-longer-earns": (Verdict.DROPPED, frozenset({"gain", "first_gain"})),
    "whole-not-faster": (Verdict.DROPPED, frozenset({"gain"})),
    "whole-unclear": (Verdict.UNKNOWN, frozenset({"gain", "low", "high", "noise"})),
    "whole-too-little": (Verdict.UNKNOWN, frozenset({"gain", "pairs"})),
    "batch-no-larger": (Verdict.DROPPED, frozenset({"batch"})),
    "batch-not-faster": (Verdict.DROPPED, frozenset({"batch", "gain"})),
    "better-value": (Verdict.DROPPED, frozenset({"other", "gain"})),
    "refused": (Verdict.NOT_APPLIED, frozenset({"why"})),
    "already": (Verdict.NOT_APPLIED, frozenset()),
    "fault": (Verdict.FAILED, frozenset({"status"})),
    "fault-later": (Verdict.FAILED, frozenset({"status"})),
    "unclear": (Verdict.UNKNOWN, frozenset({"gain", "margin", "pairs"})),
    "too-little": (Verdict.UNKNOWN, frozenset({"pairs"})),
    "interrupted": (Verdict.UNKNOWN, frozenset({"status"})),
    "no-time": (Verdict.UNKNOWN, frozenset({"needs_s", "left_s"})),
    "not-chosen": (Verdict.SKIPPED, frozenset()),
    "not-allowed": (Verdict.SKIPPED, frozenset({"allowed"})),
    "cannot-repay": (Verdict.SKIPPED, frozenset({"training_s"})),
    "loop-not-waiting": (Verdict.SKIPPED, frozenset({"real", "demand"})),
    "supply-reached": (Verdict.SKIPPED, frozenset({"real", "supply"})),
    "no-more-supply": (Verdict.DROPPED, frozenset({"workers", "supply"})),
    "copy-hidden": (Verdict.SKIPPED, frozenset({"with_copy", "without_copy"})),
    "input-is-the-wall": (Verdict.SKIPPED, frozenset({"supply", "demand"})),
    "not-launch-bound": (Verdict.SKIPPED, frozenset({"busy"})),
    "only-in-tune": (Verdict.SKIPPED, frozenset()),
    "long-epochs": (Verdict.SKIPPED, frozenset()),
    "no-epochs": (Verdict.SKIPPED, frozenset()),
    "workers-live": (Verdict.SKIPPED, frozenset()),
    "no-workers": (Verdict.SKIPPED, frozenset()),
}
