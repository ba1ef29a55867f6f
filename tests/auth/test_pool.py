import os
import subprocess
import sys
import threading

import pytest

from mosq.auth.pool import NICE, Pool
from tests.harness.effort import TIMEOUT_S


@pytest.fixture
def pools():
    made = []

    def make(threads=1, waiting_max=100, when_idle=lambda: None, failed=lambda name: None):
        made.append(Pool("test", threads, waiting_max, when_idle, failed))
        return made[-1]

    yield make
    for pool in made:
        pool.close(5)


def test_work_runs_in_threads_of_low_priority(pools):
    done = threading.Event()
    seen = []

    def work():
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        done.set()

    assert pools().put(work)
    assert done.wait(TIMEOUT_S)
    assert seen == [max(NICE, os.getpriority(os.PRIO_PROCESS, os.getpid()))]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < NICE


# a process of its own: a fork of the tests, which have threads, may copy a lock of the allocator, which no thread of the copy releases
FORKED = """
import os, threading
from mosq.auth.pool import Pool

pool = Pool("test", 1, 100, lambda: None, lambda name: None)
child = os.fork()
done = threading.Event()
pool.put(done.set)
worked = done.wait(60) and pool.close(60)
if child == 0:
    os._exit(0 if worked else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and worked
"""


def test_threads_start_with_the_first_work_also_after_a_fork():
    subprocess.run([sys.executable, "-c", FORKED], check=True)


def test_a_full_pool_refuses_work(pools):
    begun, go = threading.Event(), threading.Event()
    pool = pools(waiting_max=2)

    def block():
        begun.set()
        go.wait(TIMEOUT_S)

    assert pool.put(block)
    assert begun.wait(TIMEOUT_S)
    assert pool.put(go.is_set)
    assert pool.put(go.is_set)
    assert not pool.put(go.is_set)
    assert pool.running_for(1e12) > 0
    go.set()


def test_an_exception_is_reported_by_name_and_the_thread_continues(pools):
    names, done = [], threading.Event()
    pool = pools(failed=names.append)
    pool.put(lambda: {}["secret"])
    pool.put(done.set)
    assert done.wait(TIMEOUT_S)
    assert names == ["KeyError"]


def test_idle_is_called_after_the_last_work(pools):
    order, done = [], threading.Event()

    def idle():
        order.append("idle")
        if "b" in order:
            done.set()

    pool = pools(when_idle=idle)
    pool.put(lambda: order.append("a"))
    pool.put(lambda: order.append("b"))
    assert done.wait(TIMEOUT_S)
    assert order[-1] == "idle"


def test_close_drops_queued_work_and_runs_the_last(pools):
    begun, go, done = threading.Event(), threading.Event(), []
    pool = pools()

    def block():
        begun.set()
        go.wait(TIMEOUT_S)

    pool.put(block)
    assert begun.wait(TIMEOUT_S)
    pool.put(lambda: done.append("dropped"))
    assert not pool.close(0, lambda: done.append("last"))
    assert not pool.put(go.set)
    go.set()
    for thread in pool._threads:
        thread.join(5)
    assert done == ["last"]


def test_close_calls_what_comes_instead_of_queued_work(pools):
    begun, go, done = threading.Event(), threading.Event(), []
    pool = pools()

    def block():
        begun.set()
        go.wait(TIMEOUT_S)

    pool.put(block, lambda: done.append("instead of a running call"))
    assert begun.wait(TIMEOUT_S)
    pool.put(lambda: done.append("work"), lambda: done.append("instead"))
    pool.close(0)
    go.set()
    assert done == ["instead"]


def test_a_failed_thread_start_refuses_work_and_is_tried_again(pools, monkeypatch):
    start, left = threading.Thread.start, [1]

    def starts(thread):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    done = threading.Event()
    pool = pools(threads=3)
    assert pool.put(done.set)               # one thread does everything
    assert done.wait(TIMEOUT_S)
    none = pools()
    assert not none.put(done.clear)
    left.append(1)
    assert none.put(done.clear)
    assert none.close(5, done.is_set)
    assert pool.close(5)
    assert pools().close(5, done.is_set)    # without a thread
