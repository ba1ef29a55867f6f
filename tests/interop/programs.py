"""Wrap client programs: mosquitto_pub and mosquitto_sub, and MQTT.js under node."""

from __future__ import annotations

import contextlib
import fcntl
import json
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S
from tests.interop.clients import LONG_S, Client, Message, Setup

SOURCES = Path(__file__).parent / "mqttjs"
NODE_DIR = ROOT / "build" / "node"


class Mosquitto(Client):
    """A client that runs mosquitto_sub when it subscribes, or has a will, and mosquitto_pub for each message."""

    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.subscribed = threading.Event()
        if self.setup.will is not None or self.setup.persistent:
            self._listen("unused/" + self.setup.client_id, 0)

    def _arguments(self) -> list[str]:
        version = "5" if self.setup.version == 5 else "311"
        return ["-h", "127.0.0.1", "-p", str(self.setup.port), "-V", version]

    def _listen(self, pattern: str, qos: int) -> None:
        s, more = self.setup, []
        if s.persistent:
            more = ["-c", *(["-x", str(LONG_S)] if s.version == 5 else [])]
        if s.will is not None:
            more += ["--will-topic", s.will.topic, "--will-payload", s.will.payload, "--will-qos", str(s.will.qos)]
            more += ["--will-retain"] if s.will.retain else []
        self.subscribed.clear()
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", "mosquitto_sub", *self._arguments(), "-i", s.client_id, "-t", pattern, "-q", str(qos), *more, "-d", "-F", "|%t|%q|%r|%p"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()
        assert self.subscribed.wait(TIMEOUT_S), "mosquitto_sub did not subscribe"

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode().rstrip("\n")
            if line.startswith("Subscribed ("):
                self.subscribed.set()
            elif line.startswith("|"):
                _, topic, qos, retain, payload = line.split("|", 4)
                self.inbox.put(Message(topic, payload, int(qos), retain == "1"))

    def subscribe(self, pattern: str, qos: int) -> None:
        self._end(False)
        self._listen(pattern, qos)

    def settle(self) -> None:
        """Do nothing: mosquitto_sub acknowledges a message before it prints it."""

    def publish(self, message: Message) -> None:
        retain = ["-r"] if message.retain else []
        subprocess.run(
            ["mosquitto_pub", *self._arguments(), "-t", message.topic, "-q", str(message.qos), *retain, "-s" if message.payload else "-n"],
            input=message.payload.encode(),
            check=True,
            timeout=TIMEOUT_S,
            capture_output=True,
        )

    def stop(self) -> None:
        self._end(False)

    def drop(self) -> None:
        self._end(True)

    def _end(self, hard: bool) -> None:
        if self.process is None:
            return
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            if hard or time.monotonic() > deadline:
                self.process.kill()
            else:
                self.process.terminate()  # sends DISCONNECT first; a signal during the connect has no effect
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        self.reader.join(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


def install_mqttjs() -> Path:
    """Install MQTT.js into build/node as its lock file says, once for all processes of a test run; return the path of the driver."""
    lock, driver = SOURCES / "package-lock.json", NODE_DIR / "driver.mjs"
    stamp = NODE_DIR / "installed.json"
    NODE_DIR.mkdir(parents=True, exist_ok=True)
    with (NODE_DIR / "busy").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, NODE_DIR / name)
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=NODE_DIR, check=True, timeout=300)
            stamp.write_bytes(lock.read_bytes())
        if not driver.exists() or driver.read_bytes() != (SOURCES / "driver.mjs").read_bytes():
            shutil.copy(SOURCES / "driver.mjs", driver)     # not while node reads the file for another process
    return driver


class MqttJs(Client):
    """A client that drives driver.mjs with lines of JSON."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.resumed: queue.Queue[bool] = queue.Queue()         # for each connection after the first, whether its session was present

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["node", str(NODE_DIR / "driver.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=NODE_DIR, text=True
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        s = self.setup
        will = vars(s.will) if s.will else None
        self._ask(do="connect", port=s.port, clientId=s.client_id, version=s.version, persistent=s.persistent, will=will, websocket=s.websocket,
                  reconnects=s.reconnects)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            item = json.loads(line)
            if "message" in item:
                self.inbox.put(Message(**item["message"]))
            elif "resumed" in item:
                self.resumed.put(item["resumed"])
            else:
                self.answers.put(item)

    def _ask(self, **command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = self.answers.get(timeout=TIMEOUT_S)
        assert answer == {"done": command["do"]}, answer

    def subscribe(self, pattern: str, qos: int) -> None:
        self._ask(do="subscribe", pattern=pattern, qos=qos)

    def publish(self, message: Message) -> None:
        self._ask(do="publish", **vars(message))

    def stop(self) -> None:
        self._ask(do="stop")
        self._end()

    def drop(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stdout.close()
