"""Start a fresh mosq for one run: on a free port of this machine, without a log, with unlimited queues. Or the relay.

The broker ends with the run. If the run is killed, the kernel ends the broker; its folder then remains, but the key is
no longer in it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.tools.bench.spec import BenchError
from mosq.tools.tied import tied

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 1000
max_queued_messages 0
max_packet_size 268435455
log_type error
"""
START_S = 15.0
PORTS_FROM = 10_000
PROCESSES = 64


def free_port() -> int:
    """Return a free port below the range of ephemeral ports.

    A client that repeatedly connects to an unused ephemeral port may get that port as its own, and connect to itself.
    Processes whose numbers differ by less than PROCESSES never choose the same port at the same time. A process gets
    each of its ports once before it gets one of them again.
    """
    ports = _ports(os.getpid())
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, next(ports)))
            return int(probe.getsockname()[1])


@functools.cache
def _ports(pid: int) -> Iterator[int]:
    """Yield the ports of this process in a random order, without end; 0 if ephemeral ports leave no room."""
    clients = 32768
    with contextlib.suppress(OSError, ValueError):
        clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = list(range(PORTS_FROM + pid % PROCESSES, clients, PROCESSES)) or [0]
    random.shuffle(ports)
    return itertools.cycle(ports)


@contextlib.contextmanager
def broker(cpu: int | None = None, *, tls: bool = False, ws: bool = False) -> Iterator[dict[str, object]]:
    """Start a broker; yield the options that a Spec needs. With tls it has a self-signed certificate."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="mosq-bench-") as folder:
        where: dict[str, object] = {"host": HOST, "port": port}
        config = CONFIG.format(port=port)
        if ws:
            config += "protocol websockets\n"
        if tls:
            config += _certificate(Path(folder))
            where["cafile"] = str(Path(folder, "broker.crt"))
        if os.geteuid() == 0:
            config += "user root\n"             # another user could not read this folder
        path = Path(folder, "mosq.conf")
        path.write_text(config)
        with _running(["-c", str(path)], port, cpu) as pid:
            Path(folder, "broker.key").unlink(missing_ok=True)      # the broker has read it
            yield {**where, "broker_pid": pid, "started": "mosq"}


@contextlib.contextmanager
def relay(cpu: int | None = None) -> Iterator[dict[str, object]]:
    """Start the relay; yield the options that a Spec needs."""
    port = free_port()
    with _running(["bench", "relay", "--port", str(port)], port, cpu) as pid:
        yield {"host": HOST, "port": port, "broker_pid": pid, "started": "relay"}


@contextlib.contextmanager
def _running(arguments: list[str], port: int, cpu: int | None) -> Iterator[int]:
    """Run `mosq` with these arguments until the block ends; yield its process id when it listens."""
    process = subprocess.Popen(
        tied([sys.executable, "-m", "mosq", *arguments]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        process_group=0)       # Ctrl-C ends the run; the run then ends the broker
    try:
        if cpu is not None:
            _pin(process.pid, cpu)
        _wait(port, process)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve_relay(port: int) -> None:
    """Run the relay in this process until a signal ends it. Raises BenchError."""
    from mosq._bench import Relay

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)       # the relay gives no turn to Python while it is busy
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise BenchError(f"the relay cannot listen on {HOST}:{port}: {error.strerror}") from None
        listener.listen(1024)
        listener.setblocking(False)
        relay = Relay(listener.fileno())
        while True:
            relay.run(-1)


def _pin(pid: int, cpu: int) -> None:
    try:
        os.sched_setaffinity(pid, {cpu})
    except OSError:
        raise BenchError(f"there is no core {cpu} for the broker") from None


def _certificate(folder: Path) -> str:
    from mosq._bench import self_signed

    certificate, key = self_signed(f"DNS:localhost,IP:{HOST}")
    Path(folder, "broker.crt").write_bytes(certificate)
    Path(folder, "broker.key").write_bytes(key)
    return f"certfile {folder}/broker.crt\nkeyfile {folder}/broker.key\n"


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"mosq did not start (status {process.poll()})") from None
            time.sleep(0.005)
