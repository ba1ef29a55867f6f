"""Test CPU and memory of processes: either complete or missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from mosq.tools.bench.result import Phase
from mosq.tools.bench.runner import costs
from mosq.tools.bench.spec import Spec
from mosq.tools.bench.usage import Moment, Used, moment, used


def test_a_thread_that_has_ended_still_counts() -> None:
    spent: list[float] = []

    def spend() -> None:
        while time.thread_time() < 0.05:
            pass
        spent.append(time.thread_time())

    before = used(os.getpid())
    thread = threading.Thread(target=spend)
    thread.start()
    thread.join()
    assert used(os.getpid()).cpu_s - before.cpu_s >= spent[0] >= 0.05


def test_a_broker_that_was_killed_has_no_figures() -> None:
    """Test before and after the killed process is reaped."""
    process = subprocess.Popen([sys.executable, "-c", "print(sum(range(10**6)), flush=True); input()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        start = moment(process.pid)
        assert start.broker.there and start.broker.cpu_s > 0 and start.broker.rss_bytes
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ends = [moment(process.pid)]
        process.wait()
        ends.append(moment(process.pid))
    for end in ends:
        phase = Phase("pairs")
        costs(phase, start, end, 1.0, Spec("pairs", broker_pid=process.pid))
        assert phase.broker == {} and not end.broker.there


def test_ended_threads_do_not_lower_the_busy_share() -> None:
    start, end = (Moment(broker=Used(True, cpu_s=cpu_s, wait_s=wait_s)) for cpu_s, wait_s in ((1.0, 5.0), (1.5, 0.0)))
    phase = Phase("pairs")
    costs(phase, start, end, 1.0, Spec("pairs", broker_pid=1))
    assert phase.broker["busy_share"] == phase.broker["cpu_s"] == 0.5
