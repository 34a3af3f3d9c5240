"""The deep look in a run's report: how busy the device was and with what, hidden waits, both ceilings, MFU."""

from __future__ import annotations

from pathlib import PurePath

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.deep_look import Ceilings, DeepLook, FetchCost
from flatout.report import numbers
from flatout.report.terminal import RenderableType, Text, hanging

MOST_TOP, MOST_SYNCS = 3, 4
LONGEST_NAME = 90  # kernels are named by their whole template
WORTH_WAITING = 0.3  # of a sample's time: less is the noise of a shared machine
ON_DEVICE_ONLY = ("syncs",)  # not missed on the processor


def section(deep: DeepLook, words: Words) -> list[RenderableType]:
    lines = [
        *_device(deep, words),
        *_syncs(deep, words),
        *_supply(deep, words),
        *_arithmetic(deep, words),
        *_refused(deep, words),
    ]
    if not lines:
        return []
    title = words("deep.title", steps=deep.steps, time=numbers.seconds(deep.cost_s))
    return [Text(title, style="bold"), *(hanging("  ", line) for line in lines)]


def _device(deep: DeepLook, words: Words) -> list[str]:
    lines = []
    if deep.busy is not None and isinstance(deep.kernels_per_step, float) and isinstance(deep.gaps_per_step, float):
        gaps, kernels = numbers.count(round(deep.gaps_per_step)), numbers.count(round(deep.kernels_per_step))
        lines.append(words("deep.busy", share=numbers.percent(deep.busy.share), kernels=kernels, gaps=gaps))
    if deep.top:
        lines.append(words("deep.top") if deep.busy is not None else words("deep.top-cpu"))
    for one in deep.top[:MOST_TOP]:
        name = one.name if len(one.name) <= LONGEST_NAME else f"{one.name[:LONGEST_NAME]}…"
        lines.append("  " + words("deep.top-line", share=numbers.percent(one.share), name=name, count=one.count))
    return lines


def _syncs(deep: DeepLook, words: Words) -> list[str]:
    if isinstance(deep.syncs, Missing):
        return []
    if not deep.syncs:
        return [words("deep.no-syncs")]
    return [words("deep.sync", site=short(sync.site), count=numbers.count(sync.per_step)) for sync in deep.syncs[:MOST_SYNCS]]


def _supply(deep: DeepLook, words: Words) -> list[str]:
    """The sentence with both ceilings."""
    found = deep.ceilings
    parts = [_cost(deep.fetching[0], words)] if deep.fetching else []
    if isinstance(found.cpu_samples_per_s, float) and not isinstance(found.cores, Missing):
        rate = numbers.count(found.cpu_samples_per_s)
        parts.append(words("deep.supply", cores=numbers.count(found.cores), rate=rate))
    if isinstance(found.gpu_samples_per_s, float):
        parts.append(words("deep.demand", rate=numbers.count(found.gpu_samples_per_s)))
    if not parts:
        return []
    joined = words("run.comma").join(parts)
    first = deep.fetching[0].lines[0] if deep.fetching and deep.fetching[0].lines else None
    if first is None:
        return [words("deep.sentence-plain", parts=joined)]
    line = words("deep.line", share=numbers.percent(first.share), site=short(first.site))
    return [words("deep.sentence", parts=joined, line=line)]


def _cost(cost: FetchCost, words: Words) -> str:
    """Where most of it is waiting (a disk, a network), cores are not what is short: both times are said."""
    waits = cost.wall_per_sample_s - cost.per_sample_s
    if waits > WORTH_WAITING * cost.wall_per_sample_s:
        time, part = numbers.seconds(cost.wall_per_sample_s), numbers.seconds(waits)
        return words("deep.sample-waits", source=cost.source, time=time, waits=part)
    return words("deep.sample", source=cost.source, time=numbers.seconds(cost.per_sample_s))


def _arithmetic(deep: DeepLook, words: Words) -> list[str]:
    done, found = deep.arithmetic, deep.ceilings
    if done is None or isinstance(found.flops_per_s, Missing):
        return []
    parts = [words("deep.flops", flops=numbers.scaled(done.flops), rate=numbers.scaled(found.flops_per_s))]
    if not isinstance(deep.device, Missing):
        parts += _against_peak(found, deep.device, words)
    return [words("deep.sentence-plain", parts=words("run.comma").join(parts))]


def _against_peak(found: Ceilings, card: str, words: Words) -> list[str]:
    if isinstance(found.mfu, Missing) or isinstance(found.peak_flops_per_s, Missing):
        why = found.mfu.reason if isinstance(found.mfu, Missing) else "not-reported"
        return [words("deep.mfu-unknown", why=words(f"missing.{why}"))]
    peak = numbers.scaled(found.peak_flops_per_s)
    parts = [words("deep.mfu", share=numbers.percent(found.mfu), peak=peak, card=card)]
    return [*parts, words("deep.roofline")] if found.memory_limited is True else parts


def _refused(deep: DeepLook, words: Words) -> list[str]:
    told = {look: why for look, why in deep.refused.items() if not (look in ON_DEVICE_ONLY and why == "no-device")}
    return [_not_taken(look, why, words) for look, why in told.items()]


def _not_taken(look: str, why: str, words: Words) -> str:
    look_key, why_key = f"deep-look.{look}", f"deep-reason.{why}"
    known, reason = words(look_key) if words.has(look_key) else look, words(why_key) if words.has(why_key) else why
    return words("deep.not-taken", look=known, why=reason)


def short(site: str) -> str:
    """File and line; the record has the whole path."""
    return PurePath(site).name
