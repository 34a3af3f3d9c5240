"""How much of the processor a script and its workers use, read from the system they run on."""

import hashlib
import multiprocessing
import sys
import threading
import time

import pytest

from _flatout_agent.timeline.hooks.cpu_contention import Cores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

BURNT_S = 0.6


def burn(seconds):
    block, began = bytes(1 << 20), time.thread_time()
    while time.thread_time() - began < seconds:
        hashlib.sha256(block).digest()


def burn_in_threads(ready, done):
    """In threads of its own, as libraries do: the first thread of the process sleeps meanwhile."""
    threads = [threading.Thread(target=burn, args=(BURNT_S / 2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ready.set()
    done.wait(60)


def test_all_threads_of_the_script_and_its_workers_count():
    cores = Cores()
    cores.begin()
    fork = multiprocessing.get_context("fork")
    ready, done = fork.Event(), fork.Event()
    worker = fork.Process(target=burn_in_threads, args=(ready, done))
    worker.start()
    assert ready.wait(60)
    of_the_worker = cores.told()["cores"]["own"] / 1e9
    assert BURNT_S * 0.9 <= of_the_worker < 3 * BURNT_S
    helper = threading.Thread(target=burn, args=(BURNT_S,))
    helper.start()
    helper.join()
    both = cores.told()["cores"]["own"] / 1e9
    assert both - of_the_worker >= BURNT_S * 0.9
    done.set()
    worker.join()
    after = cores.told()["cores"]["own"] / 1e9
    assert after >= both, "what a worker used stays when it is gone"
