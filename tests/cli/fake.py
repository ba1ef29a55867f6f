"""Provide an engine without a data plane, to test the control plane alone.

Started as a program it is `mosq` with that engine: `python -m tests.cli.fake WAY [mosq's arguments]`, where WAY selects the behaviour of the engine.
"""

import errno
import json
import os
import signal
import sys
import threading

from mosq import _core, cli
from mosq.server import control
from mosq.records import LogLine, SubscriptionListing, SubscriptionRow


class FakeEngine:
    """Behave as an engine (see mosq/engine.py); `way` selects the rule that it breaks."""

    def __init__(self, settings, listeners, securities, way="good"):
        if way == "nonsense":
            raise ValueError("turn_budget is 0; it must be between 1000 and 9")
        self.settings, self.listeners, self.securities, self.way = settings, listeners, securities, way
        self.stopped = threading.Event()
        self.asked = threading.Event()
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self.records = []
        self.began = False

    def log(self, type_bit, text):
        self.records.append(LogLine(1700000000, type_bit, text))
        os.write(self.write_fd, b"x")

    def open(self):
        if self.way == "busy":
            raise OSError(errno.EADDRINUSE, "cannot listen on 127.0.0.1 port 1883: Address already in use")
        if self.way in ("stopped", "parent"):
            os.kill(os.getpid() if self.way == "stopped" else os.getppid(), signal.SIGTERM)

    def run(self, started):
        started()
        if self.way == "late":
            self.asked.wait(5)
        self.began = True
        self.log(4, "the loop runs")
        if self.way == "dies":
            raise OSError(errno.EBADF, "epoll failed")
        self.stopped.wait(5 if self.way == "deaf" else None)
        self.log(4, "the loop ends")

    def stop(self):
        self.asked.set()
        if self.way != "deaf" and self.began:
            self.stopped.set()

    def event_fd(self):
        return self.read_fd

    def watch_reload(self, number):
        self.real = _core.Engine({}, [])         # the descriptor comes from the kernel
        return self.real.watch_reload(number)

    def hold_connects(self, held):
        """No client is there to be held."""

    def drain(self):
        try:
            os.read(self.read_fd, 4096)
        except BlockingIOError:
            pass
        records, self.records = self.records, []
        return records

    def stats(self):
        if self.way == "stuck":
            self.stopped.wait()
        return {}

    def requests(self):
        return []

    def subscriptions(self, most=100_000):
        return SubscriptionListing([SubscriptionRow("s1", "a/b", 1), SubscriptionRow("s2", "$share/g/a/b", 0)], 0)

    def answer(self, answers):
        for a in answers:
            print(json.dumps([a.kind, a.topic, a.payload.decode(), a.qos, a.retain]), flush=True)

    def reload(self, settings, listeners, securities):
        if any(listener["port"] == 666 for listener in listeners):
            raise OSError(errno.EADDRINUSE, "cannot listen on 127.0.0.1 port 666: Address already in use")
        print(json.dumps({"settings": settings, "listeners": listeners, "securities": securities}), flush=True)

    def ports(self):
        return [listener["port"] for listener in self.listeners]


def main() -> int:
    way = sys.argv.pop(1)

    def make(settings, listeners, securities):
        if way == "tell":
            print(json.dumps({"settings": settings, "listeners": listeners, "securities": securities}), flush=True)
        return FakeEngine(settings, listeners, securities, way)

    serve = control.serve
    control.serve = lambda config, **how: serve(config, make_engine=make, **how)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
