"""Watts, and the time with a kernel on the card, before and after: told by the door to NVML."""

import pytest
from imagined import Machine, plan, search

from flatout.base.records import Missing, replace
from flatout.base.words import Words
from flatout.machine.machine_facts import Gpu
from flatout.report import tune as report
from flatout.report.terminal import Text
from flatout.tune.execution.card_readings import EVERY_S, CardMeter
from flatout.tune.search.questions_and_answers import BatchGoal, BatchStory, Ending

SILENT = Missing("nvml-not-supported")


def card(watts, working=SILENT):
    return Gpu(index=0, name="a card", power_draw_w=watts, utilisation=working)


def test_the_mean_of_a_segment_over_all_cards_that_tell():
    told = iter([[card(100.0), card(20.0)], [card(200.0), card(SILENT)]])
    meter = CardMeter(lambda: next(told))
    meter.begin(5.0)
    for tick in range(20):
        meter.sample(5.0 + tick * EVERY_S / 10 + 1e-6)
    assert meter.power_w() == (120 + 200) / 2
    meter.begin(9.0)
    assert isinstance(meter.power_w(), Missing)


def test_of_the_busiest_card_and_not_of_the_segment_before():
    told = iter([[card(1.0, 3), card(1.0, 0)], [card(1.0, 50), card(1.0, 90)], [card(1.0, 98), card(1.0, 1)], [card(1.0, 94)]])
    meter = CardMeter(lambda: next(told))
    meter.begin(5.0)
    assert isinstance(meter.working(), Missing)
    for tick in range(4):
        meter.sample(5.0 + tick * EVERY_S * 1.1)
    assert meter.working() == (0.98 + 0.94) / 2


def test_without_a_card_nothing_is_said():
    end, _, _ = search(Machine(), plan(only=["precision"]))
    assert isinstance(end.power_after, Missing)
    assert "W" not in plain(end)


def test_both_arms_of_the_last_comparison_and_what_a_sample_costs():
    class Drawing:
        def __init__(self, runner):
            self.runner = runner

        def run(self, segment):
            return replace(
                self.runner.run(segment), power_w=400.0 if segment.knobs else 200.0, working=0.97 if segment.knobs else 0.12
            )

    machine = Machine()
    machine.runner = lambda: Drawing(Machine.runner(machine))
    end, _, _ = search(machine, plan(only=["precision"]))
    assert (end.power_before, end.power_after) == (200.0, 400.0)
    assert f"200 → 400 W; energy per sample: {200 / end.baseline:.3g} → {400 / end.final:.3g} J" in plain(end)
    assert "GPU utilisation, as reported by the driver: 12% → 97%" in plain(end)


def plain(end):
    return "\n".join(
        str(part.plain if isinstance(part, Text) else part) for part in report.ending(end, Words("en"), "log").renderables
    )


@pytest.mark.parametrize(("ending", "named"), [(Ending.SMALLER, "Batch size 64 runs"), (Ending.NONE_HOLDS, "smallest was 82")])
def test_the_batch_that_is_named_is_the_one_that_the_sentence_is_about(ending, named):
    end, _, _ = search(Machine(), plan(only=["precision"]))
    story = BatchStory(goal=BatchGoal.FIT, own=128, size=64, died=[82], memory_limit=None, headroom=0.1, probes=[])
    assert named in plain(replace(end, ending=ending, batch=story))
