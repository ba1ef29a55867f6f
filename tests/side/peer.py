"""Run one broker, mosq or Mosquitto, with a configuration and a script of clients; record its bytes, its log and its exit status.

No step waits for a fixed time: after each step every connection sends a PINGREQ and reads up to its PINGRESP, and the log shows
the end of a connection.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.broker import ROOT, free_port
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect, Pingreq
from tests.harness.wire import Wire

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
MOSQ = [sys.executable, "-m", "mosq"]


@dataclass(frozen=True)
class Step:
    """One action of a client. `what` holds the bytes or packets to send; if it is empty, only `how` applies. For `run`, `what`
    holds the command of an external client."""

    who: str
    what: tuple = ()
    how: str = "send"           # send, drop (close without DISCONNECT), connect, run
    level: int = 4
    ends: bool = False          # the broker must close the connection
    tls: Callable[[], ssl.SSLContext] | None = None
    websocket: bool = False


@dataclass(frozen=True)
class Scene:
    name: str
    config: str
    steps: tuple[Step, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()     # in addition to -c FILE
    status: int = 0
    fails: bool = False                 # the broker does not start: compare its status and last message
    needs: str = ""                     # "2.1": Mosquitto 2.0 does not know the option


def connect(who: str, level: int = 4, **fields: object) -> Step:
    return Step(who, (Connect(**{"client_id": who, **fields}),), "connect", level)


def send(who: str, *what: object) -> Step:
    return Step(who, what)


def last(who: str, *what: object) -> Step:
    """Return a step after which the broker closes the connection."""
    return Step(who, what, ends=True)


def drop(who: str) -> Step:
    return Step(who, (), "drop")


@dataclass
class Outcome:
    bytes: list[tuple[int, str, str]]   # (step, client, received bytes in hexadecimal)
    lines: list[str]
    status: int
    stderr: str = ""


class Peer:
    def __init__(self, command: list[str], scene: Scene) -> None:
        self.command, self.scene = command, scene
        self.port = free_port()
        self.dir = Path(tempfile.mkdtemp(prefix="side-"))
        self.dir.chmod(0o755)
        for name, content in {**scene.files, "m.conf": scene.config}.items():
            (self.dir / name).write_text(self._filled(content))
            (self.dir / name).chmod(0o644)
        self.wires: dict[str, Wire] = {}
        self.log_path = self.dir / "stderr"

    def _filled(self, text: str) -> str:
        return text.replace("{port}", str(self.port)).replace("{dir}", str(self.dir))

    def run(self) -> Outcome:
        arguments = [self._filled(word) for word in self.scene.arguments] or ["-c", str(self.dir / "m.conf")]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.log_path.open("wb") as log:
            process = subprocess.Popen([*self.command, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                       cwd=self.dir)
        try:
            told = self._ended(process) if self.scene.fails else self._played(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            for wire in self.wires.values():
                wire.close()
            shutil.rmtree(self.dir, ignore_errors=True)
        return told

    def _ended(self, process: subprocess.Popen[bytes]) -> Outcome:
        status = process.wait(TIMEOUT_S)
        return Outcome([], self.lines(), status, self.log_path.read_text())

    def _played(self, process: subprocess.Popen[bytes]) -> Outcome:
        self._await_port(process)
        heard: list[tuple[int, str, str]] = []
        for number, step in enumerate(self.scene.steps):
            self._play(step, number, heard)
        for who in sorted(self.wires):          # clients leave in order, so that the order of the log is fixed
            self.wires[who].send(b"\xe0\x00")
            self.wires[who].expect_closed()
        process.send_signal(signal.SIGTERM)
        status = process.wait(TIMEOUT_S)
        return Outcome(heard, self.lines(), status, self.log_path.read_text(errors="replace"))

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, self.log_path.read_text()
                time.sleep(0.005)
        self._await_ends(1)

    def _ends(self) -> int:
        return len(re.findall(r"^\d+: Client .*(disconnected|closed its|denied|failed)", self.log_path.read_text(errors="replace"), re.MULTILINE))

    def _await_ends(self, n: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._ends() < n:
            assert time.monotonic() < deadline, self.log_path.read_text()
            time.sleep(0.005)

    def _play(self, step: Step, number: int, heard: list[tuple[int, str, str]]) -> None:
        if step.how == "drop":
            ends = self._ends()
            self.wires.pop(step.who).close()
            self._await_ends(ends + 1)
        elif step.how == "connect":
            self._connect(step, number, heard)
        elif step.how == "run":
            self._run(step, number, heard)
        else:
            self.wires[step.who].send(*step.what)
        for who in [step.who, *sorted(set(self.wires) - {step.who})]:
            if who in self.wires:
                self._hear(step, who, number, heard)

    def _connect(self, step: Step, number: int, heard: list[tuple[int, str, str]]) -> None:
        ends = self._ends()
        try:
            wire = Wire(self.port, step.level, TIMEOUT_S, step.websocket, step.tls() if step.tls else None)
            try:
                wire.send(*step.what)
                first = wire.read_frame()
            except (ssl.SSLError, ConnectionError):     # a TLS 1.3 client may finish its handshake before the broker refuses it
                wire.close()
                raise
        except (ssl.SSLError, ConnectionError):         # the timing decides which error occurs
            heard.append((number, step.who, "no handshake"))
            self._await_ends(ends + 1)
            return
        heard.append((number, step.who, "closed" if first is None else first.hex()))
        if first is not None and (first[0] != 0x20 or first[3]):
            last = wire.read_frame()
            heard.append((number, step.who, "closed" if last is None else last.hex()))
            first = last
        if first is None:
            wire.close()
            self._await_ends(ends + 1)
        else:
            self.wires[step.who] = wire

    def _run(self, step: Step, number: int, heard: list[tuple[int, str, str]]) -> None:
        ends = self._ends()
        done = subprocess.run([self._filled(word) for word in step.what], capture_output=True, timeout=TIMEOUT_S, check=False)
        heard.append((number, step.who, "in" if done.returncode == 0 else "out"))
        self._await_ends(ends + 1)

    def _hear(self, last: Step, who: str, number: int, heard: list[tuple[int, str, str]]) -> None:
        wire = self.wires[who]
        if not (who == last.who and last.ends):
            wire.send(Pingreq())
        came = ""
        while True:
            frame = wire.read_frame()
            if frame is None:
                heard.append((number, who, f"{came} closed".strip()))
                self.wires.pop(who).close()
                return
            if frame == PINGRESP:
                break
            came = f"{came} {frame.hex()}".strip()
        if came:
            heard.append((number, who, came))

    def lines(self) -> list[str]:
        """Return the log's lines without the parts that differ in each run."""
        return [self._normal(line) for line in self.log_path.read_text(errors="replace").splitlines()
                if not re.search(r"PINGREQ|PINGRESP", line)]

    def _normal(self, line: str) -> str:
        line = re.sub(r"^\d{10}: ", "", line).replace(str(self.dir), "DIR")
        line = re.sub(rf"\b{self.port}\b", "PORT", line)
        line = re.sub(r"(127\.0\.0\.1):\d+", r"\1:N", line)
        line = re.sub(r"(mosq|mosquitto) version \S+", "mosq version V", line)
        return re.sub(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", "UUID", line)
