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


def test_the_usage_of_a_broker_is_that_of_all_its_processes() -> None:
    """Test a process with a child that works, as a broker with workers has; and after the child has ended."""
    child = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        start = moment(process.pid)
        assert len(start.processes) == 2 and start.broker.cpu_s == sum(one.cpu_s for one in start.processes.values())
        assert start.broker.cpu_s >= used(process.pid).cpu_s + 0.1
        process.stdin.write(b"\n")
        process.stdin.close()
        process.stdout.read()
    phase = Phase("pairs")
    costs(phase, start, moment(process.pid), 1.0, Spec("pairs", broker_pid=process.pid))
    assert phase.broker == {}


def test_the_busy_share_is_that_of_the_busiest_process() -> None:
    def at(first_s: float, second_s: float) -> Moment:
        return Moment(broker=Used(True, cpu_s=first_s + second_s),
                      processes={1: Used(True, cpu_s=first_s), 2: Used(True, cpu_s=second_s)})

    phase = Phase("pairs")
    costs(phase, at(1.0, 1.0), at(1.3, 1.6), 1.0, Spec("pairs", broker_pid=1))
    assert abs(phase.broker["busy_share"] - 0.6) < 1e-9 and abs(phase.broker["cpu_s"] - 0.9) < 1e-9
