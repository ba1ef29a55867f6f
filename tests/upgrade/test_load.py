"""Test upgrades in a row under load, with an audit from outside: each client records what it sent, what was acknowledged, and what it received.

No connection may end, no acknowledged message may be lost, and none may come twice, also if some of the new processes are killed at
a random step or get a state of the next format, and if the others belong to two installations of this version in turn. The longest wait for an acknowledgement is printed and not asserted, because machines differ.
"""

from __future__ import annotations

import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import mosq
from tests.harness.effort import tries
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from tests.harness.properties import P
from tests.upgrade.case import MEMORY, STORE, Upgraded
from tests.upgrade.test_failures import NEXT_FORMAT, PROGRAM, STEPS

LISTENERS = "listener {port} 127.0.0.1\nallow_anonymous true\nlistener {web} 127.0.0.1\nprotocol websockets\nallow_anonymous true\n"
WORKERS = 12
IDLE = 200
WINDOW = 8
EXPIRY = ((P.SESSION_EXPIRY, 3600),)
ACTS = ("os.kill(os.getpid(), 9)", "sys.exit(1)", "raise MemoryError")
FAILURES = [(step, act) for step in ("hello", "restore", "wait_go") for act in ACTS] + [("restore", NEXT_FORMAT)] * 3


class Worker(threading.Thread):
    """A publisher and a receiver of their own topic. Both acknowledge and record."""

    def __init__(self, connect: Callable[[bool], object], number: int) -> None:
        super().__init__(daemon=True)
        self.number, self.qos, self.clean = number, 1 + number % 2, number % 4 < 2
        self.publisher, self.receiver = connect(number % 3 == 0), connect(number % 3 == 1)
        self.topic = f"load/{number}"
        self.sent = 0
        self.acked: set[int] = set()
        self.got: list[int] = []
        self.longest_s = 0.0
        self.ends = threading.Event()
        self.failure = ""
        props = () if self.clean else EXPIRY
        for wire, name in ((self.publisher, "p"), (self.receiver, "r")):
            wire.send(Connect(f"{name}{number}", clean=self.clean, props=props))
            assert isinstance(wire.read_packet(), Connack)
        self.receiver.send(Subscribe(1, ((self.topic, self.qos),)))
        self.receiver.read_packet()

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                self.burst()
        except Exception as error:
            self.failure = f"worker {self.number}: {type(error).__name__}: {error}"

    def burst(self) -> None:
        """Send some messages, and handle all packets about them."""
        first = self.sent + 1
        self.sent += WINDOW
        begun = time.monotonic()
        self.publisher.send(*(Publish(self.topic, b"%d" % n, self.qos, n % 60000 + 1) for n in range(first, self.sent + 1)))
        for n in range(first, self.sent + 1):
            mid = n % 60000 + 1
            if self.qos == 2:
                self.publisher.expect_packet(Pubrec(mid))
                self.publisher.send(Pubrel(mid))
        for n in range(first, self.sent + 1):
            mid = n % 60000 + 1
            self.publisher.expect_packet(Puback(mid) if self.qos == 1 else Pubcomp(mid))
            self.acked.add(n)
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        done = 0
        while done < WINDOW:
            done += self.receive()

    def receive(self) -> int:
        """Handle a packet of the receiver; return 1 if it completes a delivery."""
        got = self.receiver.read_packet()
        if isinstance(got, Publish):
            assert not got.dup, got
            self.got.append(int(got.payload))
            self.receiver.send(Puback(got.mid) if self.qos == 1 else Pubrec(got.mid))
            return self.qos == 1
        assert isinstance(got, Pubrel), got
        self.receiver.send(Pubcomp(got.mid))
        return 1


@pytest.mark.again("upgrades")
@pytest.mark.parametrize("kind", [MEMORY, STORE], ids=["memory", "store"])
def test_upgrades_under_load_lose_and_double_nothing(kind: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    other = tmp_path / "other"               # the same version, installed at another place
    shutil.copytree(Path(mosq.__file__).parent, other / "mosq", ignore=shutil.ignore_patterns("__pycache__"))
    builds = (PROGRAM, f"import sys\nsys.path.insert(0, {str(other)!r})\n" + PROGRAM)
    dice = random.Random(25)
    web = Upgraded(LISTENERS)
    web.close()
    config = LISTENERS.replace("{web}", str(web.port)) + kind
    with Upgraded(config, command=[sys.executable, str(program)]) as broker:

        def connect(websocket: bool) -> object:
            plain = broker.port
            broker.websocket, broker.port = websocket, web.port if websocket else plain
            try:
                return broker.wire()
            finally:
                broker.websocket, broker.port = False, plain

        idle = [connect(n % 5 == 0) for n in range(tries(IDLE, 40))]
        for n, wire in enumerate(idle):
            wire.send(Connect(f"idle{n}"))
        for wire in idle:
            assert isinstance(wire.read_packet(), Connack)
        workers = [Worker(connect, number) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        failed = 0
        for n in range(tries(50, 5)):
            if n % 3 == 2:
                failed += 1
                step, act = dice.choice(FAILURES)
                program.write_text(STEPS.replace("{step}", step).replace("{act}", act))
                broker.fail()
            else:
                program.write_text(builds[n % 2])
                pid = broker.upgrade()
                assert (str(other) in Path(f"/proc/{pid}/maps").read_text()) == (n % 2)
        for worker in workers:
            worker.ends.set()
        for worker in workers:
            worker.join(30)
        assert not [worker.failure for worker in workers if worker.failure]
        for worker in workers:
            assert worker.got == list(range(1, worker.sent + 1)) and worker.acked == set(worker.got)
        for wire in idle:
            wire.send(Pingreq())
            wire.expect_packet(Pingresp())
        log = broker.log()
        assert log.count("This process goes on.") == failed and " 0 were closed" in log and "disconnected: server" not in log
        total = sum(worker.sent for worker in workers)
        print(f"\n{total} messages, longest wait {1000 * max(worker.longest_s for worker in workers):.0f} ms")
