"""Test what the processes of a broker with workers do with signals, with one log, and for systemd."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import threading
import time

import pytest

from tests.harness.packets import Connect, Publish
from tests.harness.wire import Wire
from tests.workers.case import Workers, accepted, until

MESSAGES = 3000
LOST = "durability none\nlog_type all\nlog_dest file {dir}/mosq.log\n"


def test_a_worker_ignores_sighup_of_its_own() -> None:
    with Workers(2, "acl_file {dir}/acl\n", {"acl": "topic readwrite old\n"}) as broker:
        before = broker.pids()
        (broker.dir / "acl").write_text("nonsense\n")
        for number in (1, 2):
            broker.kill(number, signal.SIGHUP)
        broker.connect(broker.id_on(1)).close()
        broker.connect(broker.id_on(2)).close()
        assert broker.pids() == before
        assert "Reloading config." not in broker.log() and "nonsense" not in broker.log()


def test_no_line_is_lost_or_torn_while_the_log_is_rotated() -> None:
    """A client of each worker publishes numbers; each message is a line. The log is renamed and opened again 20 times. The lines of a
    worker are in their order, over all files."""
    with Workers(2, LOST) as broker:
        names = {number: broker.id_on(number) for number in (1, 2)}

        def publish(name: str) -> None:
            client = Wire(broker.port, 4)
            client.send(Connect(name))
            accepted(client)
            for i in range(MESSAGES):
                client.send(Publish("n", b"x" * (i % 7 + 1), 0))
                if i % 100 == 0:
                    time.sleep(0.01)        # so that the rotations are spread over the messages
            client.send(Publish("end", b"", 0))
            time.sleep(0.2)
            client.close()

        threads = [threading.Thread(target=publish, args=(name,)) for name in names.values()]
        for thread in threads:
            thread.start()
        log = broker.dir / "mosq.log"
        files = []
        for i in range(20):
            files.append(log.rename(broker.dir / f"old.{i}"))
            broker.send_signal(signal.SIGRTMIN)
            until(log.exists)
        for thread in threads:
            thread.join()
        text = ""

        def whole() -> str:
            nonlocal text
            text = "".join(file.read_text() for file in (*files, log))
            return text

        until(lambda: whole().count(", 'end'") == 2, lambda: text[-3000:])
        for name in names.values():
            sizes = re.findall(rf"^.*Received PUBLISH from {name} \(d0, q0, r0, m0, 'n', \.\.\. \((\d+) bytes\)\)$", text, re.MULTILINE)
            assert [int(size) for size in sizes] == [i % 7 + 1 for i in range(MESSAGES)]


class Systemd:
    """The socket of NOTIFY_SOCKET, with the process that sent each notification."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.sock.bind(path)
        os.chmod(path, 0o777)
        self.sock.settimeout(20)

    def next(self) -> tuple[int, list[str]]:
        content, ancillary, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(12))
        return struct.unpack("iii", ancillary[0][2])[0], content.decode().split("\n")

    def is_silent_in_the_end(self) -> bool:
        """Read what was sent before; return True when nothing more comes."""
        try:
            for _ in range(100):
                self.next()
        except TimeoutError:
            return True
        return False


@pytest.mark.timing
def test_the_parent_notifies_systemd_and_sends_the_pings() -> None:
    """A worker that is stopped ends no ping: the parent kills it. A parent that is stopped sends none."""
    broker = Workers(2, "cluster_watchdog 60\n")
    systemd = Systemd(str(broker.dir / "notify"))
    broker.env = {**broker.env, "NOTIFY_SOCKET": str(broker.dir / "notify"), "WATCHDOG_USEC": "600000"}
    try:
        with broker:
            assert broker.process is not None
            parent = broker.process.pid
            assert systemd.next() == (parent, ["READY=1"])
            for number in (1, 2):
                broker.kill(number, signal.SIGSTOP)
                for _ in range(4):
                    assert systemd.next() == (parent, ["WATCHDOG=1"])
                broker.kill(number, signal.SIGCONT)
            broker.send_signal(signal.SIGSTOP)
            systemd.sock.settimeout(0.6)
            assert systemd.is_silent_in_the_end()
            systemd.sock.settimeout(20)
            broker.send_signal(signal.SIGCONT)
            assert systemd.next() == (parent, ["WATCHDOG=1"])
            broker.send_signal(signal.SIGHUP)
            sent = [systemd.next() for _ in range(6)]
            assert {pid for pid, _ in sent} == {parent}
            assert any("RELOADING=1" in lines for _, lines in sent) and (parent, ["READY=1"]) in sent
            broker.stop()
            while systemd.next()[1] != ["STOPPING=1"]:
                pass
    finally:
        systemd.sock.close()
