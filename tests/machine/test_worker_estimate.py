"""One estimate of loader workers, whoever gives the advice."""

import pytest

from flatout.doctor import remedy
from flatout.machine import worker_estimate
from flatout.machine.machine_facts import Facts
from flatout.tune.config import estimate


@pytest.mark.parametrize("cores", [2, 3, 4, 8, 12, 16, 64])
@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_the_doctor_and_a_configuration_say_the_same(cores, system):
    facts = Facts()
    facts.processor.usable = float(cores)
    facts.system.name = system
    here = estimate.MachineFacts(cores=float(cores), system=system)
    configured, _ = estimate.workers(here, estimate.PRESETS[estimate.USUAL])
    assert remedy.worker_count(facts) == configured == worker_estimate.estimate(cores, system)


def test_one_core_is_left_to_the_training_of_each_card():
    assert [worker_estimate.estimate(cores, "Linux") for cores in (1, 2, 4, 8, 64)] == [1, 1, 2, 4, 8]
    assert worker_estimate.estimate(16, "Linux", cards=4) == 2
