"""Run Debian's HAProxy with the example in conf/haproxy, in front of nodes of a test."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from mosq.tools.tied import tied
from tests.harness.broker import ROOT, free_port
from tests.harness.faults import until

EXAMPLE = ROOT / "conf/haproxy/haproxy.cfg"
TRACKS = ""                     # status of the check of a server whose state is that of one in another backend


def program() -> str | None:
    """Return the path of HAProxy, which Debian installs where not every user looks; None: it is not installed."""
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Haproxy:
    """HAProxy on two ports of 127.0.0.1: `port` for MQTT, `tls_port` for MQTT over TLS. `servers`: host and ports of up to three nodes, in the
    order of the example. It ends with the test's process."""

    process: subprocess.Popen[bytes]

    def __init__(self, servers: list[tuple[str, int, int]]) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="mosq-haproxy-"))
        self.socket, self.log = self.folder / "admin.sock", self.folder / "log"
        text = EXAMPLE.read_text().replace("/run/haproxy/admin.sock", str(self.socket)).replace("/dev/log", "stderr")
        text = text.replace("maxconn 100000", "maxconn 1000")       # a test may have few descriptors
        text = re.sub(r"^ +(user|group|chroot) .*\n", "", text, flags=re.MULTILINE)        # a test may have no right to change these
        text = text.replace("bind :1883\n", f"bind 127.0.0.1:{self.port}\n").replace("bind :8883\n", f"bind 127.0.0.1:{self.tls_port}\n")
        for n, (host, port, tls_port) in enumerate(servers):
            text = text.replace(f"192.0.2.1{n + 1}:1883", f"{host}:{port}").replace(f"192.0.2.1{n + 1}:8883", f"{host}:{tls_port}")
        self.conf = self.folder / "haproxy.cfg"
        self.conf.write_text(re.sub(r"^ +server .* 192\.0\.2\..*\n", "", text, flags=re.MULTILINE))

    def start(self) -> None:
        path = program()
        assert path is not None, "haproxy is not installed"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(tied([path, "-db", "-f", str(self.conf)]), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        until(lambda: self.process.poll() is not None or bool(self.ask("show info")))
        assert self.process.poll() is None, self.report()

    def report(self) -> str:
        """Return what HAProxy has logged."""
        return self.log.read_text() if self.log.exists() else ""

    def ask(self, command: str) -> str:
        """Return the answer to a command; nothing if HAProxy does not answer."""
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(self.socket))
                sock.sendall(f"{command}\n".encode())
                return b"".join(iter(lambda: sock.recv(65536), b"")).decode()
            except OSError:
                return ""

    def servers(self, backend: str = "nodes") -> dict[str, tuple[bool, int]]:
        """Return for each node whether it is up, and the number of its connections. HAProxy takes a node for up until the first check, and
        down if that one fails, so a node counts as up only when its last check has passed."""
        rows = csv.DictReader(io.StringIO(self.ask("show stat").removeprefix("# ")))
        return {row["svname"]: (row["status"].startswith("UP") and row["check_status"].removeprefix("* ") in ("L7OK", TRACKS), int(row["scur"]))
                for row in rows if row["pxname"] == backend and row["svname"] not in ("FRONTEND", "BACKEND")}

    def wait_up(self, *names: str) -> None:
        """Wait until exactly these nodes are up, as both backends see it."""
        for backend in ("nodes", "nodes_tls"):
            until(lambda backend=backend: {name for name, (is_up, _) in self.servers(backend).items() if is_up} == set(names))  # type: ignore[misc]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
