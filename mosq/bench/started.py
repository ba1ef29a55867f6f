"""A fresh mosq for one run: on a free port of this machine, without log, its queues without limits."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.bench.spec import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 1000
max_queued_messages 0
max_packet_size 268435455
log_type error
"""
START_S = 15.0


@contextlib.contextmanager
def broker(cpu: int | None = None) -> Iterator[tuple[int, int]]:
    """-> its port and its process id"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="mosq-bench-") as directory:
        path = Path(directory, "mosq.conf")
        config = CONFIG.format(port=port)
        if os.geteuid() == 0:
            config += "user root\n"             # it may not read what is in here as another
        path.write_text(config)
        process = subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(path)], stdin=subprocess.DEVNULL)
        try:
            if cpu is not None:
                os.sched_setaffinity(process.pid, {cpu})
            _wait(port, process)
            yield port, process.pid
        finally:
            process.terminate()
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"mosq did not start (status {process.poll()})") from None
            time.sleep(0.005)
