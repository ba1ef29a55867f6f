"""Test the lease of a worker: the system ends a process at a time in shared memory, which another process may move."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mosq.tools.tied import tied
from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S
from tests.harness.faults import until

PERIOD_MS = 10
FAR_S = 1000.0
STARTS_S = (1.0, 5.0, 25.0)      # leases of a process that starts, until one is long enough
CHILD = """
import sys
from mosq.engine import obey_lease
obey_lease(int(sys.argv[1]), int(sys.argv[2]))
print("obeys", flush=True)
while True:
    pass
"""


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Child:
    """A process that is always busy with Python, and has a lease."""

    def __init__(self, until_s: float) -> None:
        self.fd = os.memfd_create("lease", 0)
        os.ftruncate(self.fd, 8)
        self.lease(until_s)
        self.process = subprocess.Popen(tied([sys.executable, "-c", CHILD, str(self.fd), str(PERIOD_MS)]), cwd=ROOT, pass_fds=[self.fd],
                                        stdout=subprocess.PIPE)

    def lease(self, until_s: float) -> None:
        """Move the end of the lease to a time from now on."""
        os.pwrite(self.fd, struct.pack("Q", int((boottime_s() + until_s) * 1e9)), 0)

    def obeys(self) -> bool:
        """Return when it has set its timer; False if it has ended before."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() == b"obeys\n"


@contextmanager
def child(until_s: float) -> Iterator[Child]:
    one = Child(until_s)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()
        os.close(one.fd)


def test_a_process_ends_when_its_lease_is_over_although_it_is_busy() -> None:
    with child(FAR_S) as one:
        assert one.obeys()
        one.lease(0)
        assert one.process.wait(TIMEOUT_S) == -signal.SIGKILL


@pytest.mark.timing
def test_a_process_that_is_stopped_ends_when_its_lease_is_over() -> None:
    for until_s in STARTS_S:
        with child(until_s) as one:
            if not one.obeys():
                continue                # the machine is busy, and the lease was over before
            one.process.send_signal(signal.SIGSTOP)
            assert one.process.wait(TIMEOUT_S) == -signal.SIGKILL
            return


def test_a_process_without_a_lease_at_its_start_ends_at_once() -> None:
    with child(-1) as one:
        assert one.process.wait(TIMEOUT_S) == -signal.SIGKILL
        assert one.process.stdout is not None
        assert one.process.stdout.read() == b""


@pytest.mark.timing
def test_a_process_goes_on_when_its_lease_is_moved() -> None:
    for until_s in STARTS_S:
        with child(until_s) as one:
            first_s = boottime_s() + until_s
            if not one.obeys():
                continue
            one.lease(FAR_S)
            until(lambda end_s=first_s: boottime_s() > end_s)
            if one.process.poll() is not None:
                continue                # this process was late
            one.lease(0)
            assert one.process.wait(TIMEOUT_S) == -signal.SIGKILL
            return
    raise AssertionError("each process has ended with its first lease")
